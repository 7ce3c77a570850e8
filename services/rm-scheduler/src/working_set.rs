//! The working set of rm-scheduler and its entry points: commands ([`crate::commands`]), changes of
//! followed publications ([`crate::absorb`]) and rounds ([`crate::round`]).
//!
//! The snapshot that a round plans from is updated entry by entry, and its changes are recorded. So
//! a round neither translates nor reads the whole fleet. Followed publications are not stored as
//! rows: a new term asks its neighbours for everything, and plans nothing before each has answered.

mod allocations;
pub mod carry_over;
mod fleet_copy;
mod followed;
pub mod gang_exchange;
pub mod on_trial;
pub mod orchestrator_shares;
pub(crate) mod planning;
mod processes_on_nodes;
pub mod second_places;
pub mod snapshot;
pub mod spending;
mod timing;
pub mod unreachable;
mod usage;
mod verdicts;

use std::sync::Arc;

use hayward_publication::{Batch, DryRunSupport, Moment, Wake};
use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::{ALLOCATIONS, VERDICTS, VerdictEntry};
use hayward_rm_scheduler_domain::snapshot::Allocation;
use hayward_rm_scheduler_domain::{budget::Hour, monitor};
use hayward_rm_scheduler_policy::Rules;
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::block_in_place;
use hayward_vocabulary::{AllocationId, WorkId};
use sqlx::PgConnection;

use crate::absorb::translate;
use crate::command::Command;
use crate::context::Context;
use crate::external_planners::{self, ExternalPlanners};
use crate::metrics;
use crate::model::AllocationRecord;
use crate::publications::evacuations::Evacuations;
use crate::publications::machine_facts::MachineFacts;
use crate::publications::receipts::Receipts;
use crate::queries::snapshot_reads::timed;
use crate::queries::{load, node_contents};
use crate::queues;
use crate::recorder::Recorder;
use crate::round::SuccessorSearch;
use crate::store::{self, Rows};
use crate::worker_pools::{self, WorkerPools};
use crate::working_set::allocations::Allocations;
use crate::working_set::carry_over::CarryOver;
use crate::working_set::followed::FollowedInputs;
use crate::working_set::on_trial::NodesOnTrial;
use crate::working_set::planning::Planning;
use crate::working_set::second_places::SecondPlaces;
use crate::working_set::snapshot::TrackedSnapshot;
use crate::working_set::timing::Timing;
use crate::working_set::unreachable::UnreachableWork;
use crate::working_set::usage::Usage;
use crate::working_set::verdicts::PublishedVerdicts;

pub use followed::JOB_CONVERTER;

/// All state of one term. Each part keeps its fields to itself.
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) policy: PolicyInForce,
    pub(crate) followed: FollowedInputs,
    pub(crate) allocations: Allocations,
    /// The input of the next round.
    pub(crate) snapshot: TrackedSnapshot,
    pub(crate) planning: Planning,
    pub(crate) timing: Timing,
    pub(crate) carry_over: CarryOver,
    pub(crate) usage: Usage,
    /// Quanta preempted within the last hour, by minute, pool and user.
    pub(crate) preempted_last_hour: Hour,
    pub(crate) verdicts: PublishedVerdicts,
    pub(crate) receipts: Receipts,
    pub(crate) machine_facts: MachineFacts,
    pub(crate) evacuations: Evacuations,
    pub(crate) successors: SuccessorSearch,
    pub(crate) second_places: SecondPlaces,
    pub(crate) unreachable: UnreachableWork,
    pub(crate) nodes_on_trial: NodesOnTrial,
    pub(crate) worker_pools: WorkerPools,
    pub(crate) external_planners: ExternalPlanners,
    /// What the check of invariants has to remember from one check to the next.
    pub(crate) invariant_memory: monitor::Memory,
}

/// The policy as published, and as rules for the planner.
#[derive(Default)]
pub(crate) struct PolicyInForce {
    view: PolicyView,
    rules: Arc<Rules>,
}

impl PolicyInForce {
    pub fn view(&self) -> &PolicyView {
        &self.view
    }

    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }
}

impl Ledger {
    /// Sets an allocation in memory, in the snapshot, in the rows and in `allocations`.
    pub(crate) fn set_allocation(&mut self, record: AllocationRecord, batch: &mut Batch<Rows>) {
        let id = record.entry.id.clone();
        let holds = record.entry.holds();
        let now = holds.then(|| self.planner_allocation(&record));
        let before = self.snapshot.set_allocation(&id, now.clone());
        self.snapshot.stamp(&id, &record.entry.node);
        self.evacuations.update_marked(&record.entry);
        // A start only changes the order of preemption, so it needs no round of its own.
        let without_start = |allocation: Option<Allocation>| {
            allocation.map(|allocation| Allocation {
                running: false,
                running_since: None,
                ..allocation
            })
        };
        let changed = without_start(now) != without_start(before);
        self.timing.request_round_if(changed);
        batch.publish(ALLOCATIONS, "", id.as_str(), &record.entry);
        self.worker_pools.record_change(&record.entry);
        batch.rows.allocations.insert(id, record.clone());
        self.allocations.insert(record);
    }

    /// Puts the loaded allocations into the snapshot.
    fn index_loaded_allocations(&mut self) {
        for record in self.allocations.values() {
            self.evacuations.update_marked(&record.entry);
        }
        let holding = self.allocations.values().filter(|it| it.entry.holds());
        for record in holding.cloned().collect::<Vec<_>>() {
            let allocation = self.planner_allocation(&record);
            let entry = &record.entry;
            self.snapshot.set_allocation(&entry.id, Some(allocation));
            self.snapshot.stamp(&entry.id, &entry.node);
        }
    }

    /// Removes an ended allocation once job-converter no longer needs it: its work is withdrawn, or
    /// lists it as settled.
    pub(crate) fn remove_if_settled(&mut self, id: &AllocationId, batch: &mut Batch<Rows>) {
        let Some(record) = self.allocations.get(id) else {
            return;
        };
        let demand = self.followed.demand();
        let entry = demand.get(record.entry.work.as_str());
        let settled = entry.is_none_or(|entry| entry.settled.contains(id));
        if record.entry.holds() || !settled || !demand.heard() {
            return;
        }
        let work = record.entry.work.clone();
        self.allocations.remove(id);
        self.update_orphan(id);
        batch.withdraw(ALLOCATIONS, "", id.as_str());
        batch.rows.allocations.remove(id);
        batch.rows.buried.insert(id.clone());
        self.forget_work_if_gone(&work, batch);
    }

    /// Drops the attempt number of work that is withdrawn and has no allocation left.
    pub(crate) fn forget_work_if_gone(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        let demanded = self.followed.demand().get(work.as_str()).is_some();
        if demanded || self.worker_pools.wants(work) || self.allocations.has_any(work) {
            return;
        }
        if self.allocations.forget_incarnation(work) {
            batch.rows.incarnations.remove(work);
            batch.rows.forgotten_work.insert(work.clone());
        }
    }

    pub(crate) fn next_incarnation(&mut self, work: &WorkId, batch: &mut Batch<Rows>) -> u64 {
        let next = self.allocations.next_incarnation(work);
        batch.rows.incarnations.insert(work.clone(), next);
        batch.rows.forgotten_work.remove(work);
        next
    }

    pub(crate) fn withdraw_verdict(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        if self.verdicts.remove(work) {
            batch.withdraw(VERDICTS, "", work.as_str());
        }
    }

    pub(crate) fn set_policy(&mut self, view: PolicyView) {
        let rules = Arc::new(Rules::new(&view.policy));
        let changed = self.snapshot_under(&rules);
        self.policy.rules = rules;
        self.snapshot.rework(|snapshot| *snapshot = changed);
        self.follow_planners();
        self.policy.view = view;
        self.timing.request_round();
    }
}

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Context;

    async fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Context>,
    ) -> Result<Self, sqlx::Error> {
        let policy = store::policies::newest(&mut *tx).await?.unwrap_or_default();
        let rounds = store::rounds::load(&mut *tx).await?;
        let receipts = store::receipts::load(&mut *tx).await?;
        let pools = store::pools::load(&mut *tx, worker_pools::rules(&context.settings)).await?;
        let (carried, hour) = spending::restore(store::carried::load(&mut *tx).await?);
        let verdict_of = |entry: &VerdictEntry| entry.work.clone();
        let verdicts = store::entries::load(&mut *tx, VERDICTS, verdict_of).await?;
        let allocations = store::allocations::load(&mut *tx).await?;
        let incarnations = store::allocations::load_incarnations(&mut *tx).await?;
        let mut ledger = Self {
            context: context.clone(),
            policy: PolicyInForce::default(),
            followed: FollowedInputs::default(),
            allocations: Allocations::new(allocations, incarnations),
            snapshot: TrackedSnapshot::new(translate::empty_snapshot()),
            planning: Planning::new(Recorder::new(context.settings.inputs())),
            timing: Timing::new(rounds.last().map_or(0, |round| round.round)),
            carry_over: CarryOver::new(carried, moment.monotonic_ms),
            usage: Usage::new(store::usage::load(&mut *tx).await?, moment.monotonic_ms),
            preempted_last_hour: hour,
            verdicts: PublishedVerdicts::new(verdicts),
            receipts: Receipts::of(&receipts),
            machine_facts: MachineFacts::load(&mut *tx, moment).await?,
            evacuations: Evacuations::load(&mut *tx).await?,
            successors: SuccessorSearch::default(),
            second_places: SecondPlaces::load(&mut *tx).await?,
            unreachable: UnreachableWork::default(),
            nodes_on_trial: NodesOnTrial::default(),
            worker_pools: WorkerPools::loaded(pools),
            external_planners: ExternalPlanners::default(),
            invariant_memory: monitor::Memory::default(),
        };
        ledger.index_loaded_allocations();
        ledger.resume_success_timers(moment.monotonic_ms);
        let carried = carry_over::restore(ledger.carry_over.rows());
        ledger.snapshot.set_carried(carried);
        ledger.resume_policy(policy);
        ledger.request_all_workers();
        let mut view = context.view.write();
        view.policy = ledger.policy.view().clone();
        view.rounds = rounds.into();
        view.receipts = receipts;
        drop(view);
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Nodes(update, reply) => {
                self.absorb_nodes(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Demand(update, reply) => {
                self.absorb_demand(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Blocks(update, reply) => {
                self.absorb_blocks(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Containers(update, reply) => {
                self.absorb_containers(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Requests(update, reply) => {
                self.absorb_requests(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Load(reply) => {
                let load = {
                    let view = self.context.view.read();
                    let counted = view.counted.as_ref();
                    counted.map(|counted| load::load(&self.snapshot, counted))
                };
                batch.answer(reply, load);
            }
            Command::NodeContents(wanted, reply) => {
                let allocations = self.allocations.by_id();
                let page = node_contents::page(&self.snapshot, allocations, &wanted);
                batch.answer(reply, page);
            }
            Command::SetPolicy(change, reply) => {
                let answer = self.change_policy(*change, moment, batch);
                batch.answer(reply, answer);
            }
            Command::CopyFleet(policy, reply) => {
                let copy = self.followed.heard_all().then(|| {
                    self.snapshot.set_now(moment.now);
                    block_in_place(|| timed(|| self.copy_fleet(policy.as_deref())))
                });
                batch.answer(reply, copy);
            }
            Command::ProcessesOn(nodes, reply) => {
                batch.answer(reply, self.processes_on(&nodes));
            }
            Command::Queues(pool, reply) => {
                self.snapshot.set_now(moment.now);
                let show = || block_in_place(|| queues::shown(&self.snapshot, pool.as_deref()));
                let queues = self.followed.heard_all().then(show);
                batch.answer(reply, queues);
            }
            Command::PlannerAnswered(answered, reply) => {
                self.apply_planner_outcome(*answered, moment);
                batch.answer(reply, ());
            }
            Command::Planners(reply) => {
                let show = || external_planners::shown(self, moment);
                batch.answer(reply, self.followed.heard_all().then(show));
            }
            Command::Invariants(reply) => {
                batch.answer(reply, block_in_place(|| self.check_invariants(moment)));
            }
            Command::WorkerPools(asked) => asked(self, moment, batch),
        }
    }

    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        crate::commands::dry_run(command)
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.update_worker_pools(moment, batch);
        let wake = self.run_round(moment, batch);
        self.update_worker_pools(moment, batch);
        self.wake_for_pools(wake, moment)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        let view = self.context.view.read();
        metrics::readings(&metrics::GaugeInputs {
            snapshot: &self.snapshot,
            demand: self.followed.demand(),
            policy: &self.policy.view().policy,
            newest: view.counted.as_ref(),
            silence_ms: self.followed.longest_silence_ms(moment.monotonic_ms),
            now: moment.now,
        })
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        rows.write(tx).await
    }
}
