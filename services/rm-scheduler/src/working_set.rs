//! The working set of rm-scheduler, and the three ways it changes: someone asked
//! ([`crate::commands`]), news came ([`crate::absorb`]), time to decide ([`crate::round`]).
//!
//! The snapshot a round plans from is kept up to date entry by entry, so a round costs no
//! translation of the whole fleet, and what changed in it is noted, so it costs no reading of the
//! whole fleet either. What is followed is not copied into rows: a new term asks its
//! neighbours for everything and plans nothing before each has answered once.

pub mod carry_over;
mod fleet_copy;
pub mod gang_exchange;
pub mod on_trial;
pub mod orchestrator_shares;
mod processes_on_nodes;
pub mod second_places;
pub mod snapshot;
pub mod spending;
pub mod unreachable;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::{ContainerEntry, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Followed, Moment, Trial, Wake};
use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS, VerdictEntry};
use hayward_rm_scheduler_capacity::Rounds;
use hayward_rm_scheduler_domain::snapshot::Allocation;
use hayward_rm_scheduler_domain::{Verdicts, budget::Hour, check::Holdings, monitor};
use hayward_rm_scheduler_policy::Rules;
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::lengthy;
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};
use sqlx::PgConnection;

use crate::absorb::translate;
use crate::command::Command;
use crate::context::Context;
use crate::external_planners::{self, ExternalPlanners};
use crate::metrics;
use crate::model::{AllocationRecord, CarriedRows};
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
use crate::working_set::on_trial::NodesOnTrial;
use crate::working_set::second_places::SecondPlaces;
use crate::working_set::snapshot::TrackedSnapshot;
use crate::working_set::unreachable::UnreachableWork;

pub const JOB_CONVERTER: &str = "job-converter";

pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) policy: PolicyView,
    /// The policy in the words of the planner.
    pub(crate) rules: Arc<Rules>,
    pub(crate) nodes: Followed<NodeEntry>,
    pub(crate) demand: Followed<DemandEntry>,
    pub(crate) blocks: Followed<BlockEntry>,
    pub(crate) containers: Followed<ContainerEntry>,
    pub(crate) requests: Followed<RequestEntry>,
    /// What follows from requests, and what container-manager is told.
    pub(crate) second_places: SecondPlaces,
    pub(crate) allocations: BTreeMap<AllocationId, AllocationRecord>,
    pub(crate) by_work: BTreeMap<WorkId, BTreeSet<AllocationId>>,
    /// Those that hold their quanta.
    pub(crate) by_node: BTreeMap<NodeName, BTreeSet<AllocationId>>,
    pub(crate) incarnations: BTreeMap<WorkId, u64>,
    /// Worker pools, which ask for work of their own.
    pub(crate) worker_pools: WorkerPools,
    /// As published.
    pub(crate) verdicts: BTreeMap<WorkId, VerdictEntry>,
    pub(crate) receipts: Receipts,
    /// What was taken back within the hour (B5).
    pub(crate) preempted_last_hour: Hour,
    /// What is remembered from round to round, as it is in rows.
    pub(crate) carried_rows: CarriedRows,
    pub(crate) accounts_written_ms: u64,
    /// Some accounts are newer than their lines.
    pub(crate) accounts_dirty: bool,
    /// What the next round plans from.
    pub(crate) snapshot: TrackedSnapshot,
    pub(crate) rounds: Rounds,
    /// What is held, as the check sees it.
    pub(crate) holdings: Holdings,
    /// Those outside.
    pub(crate) external_planners: ExternalPlanners,
    /// The next round says everything, and not just what changed.
    pub(crate) full_report: bool,
    /// Verdicts that changed and wait for their turn to be published.
    pub(crate) verdicts_to_publish: Verdicts,
    /// Keeps what rounds were planned from.
    pub(crate) recorder: Recorder,
    /// Ends of blocks, so that each counts exactly until its end.
    pub(crate) block_ends: BTreeSet<(Timestamp, String)>,
    /// What is told of machines, and how work fares on them.
    pub(crate) machine_facts: MachineFacts,
    pub(crate) evacuations: Evacuations,
    /// Places that are looked for before what needs them is told to leave.
    pub(crate) successors: SuccessorSearch,
    pub(crate) unreachable: UnreachableWork,
    pub(crate) nodes_on_trial: NodesOnTrial,
    /// Nodes that are blocked for one job or service alone.
    pub(crate) avoided: BTreeMap<WorkId, BTreeSet<NodeName>>,
    /// Nodes that are drained.
    pub(crate) drained: BTreeSet<NodeName>,
    pub(crate) usage: BTreeMap<(UserName, String), LedgerLine>,
    /// What each user holds and is due since the last accounting: (due, held) in quanta.
    pub(crate) rates: BTreeMap<(UserName, String), (u64, u64)>,
    pub(crate) accounted_ms: u64,
    pub(crate) usage_written_ms: u64,
    pub(crate) round: u64,
    pub(crate) last_round_ms: Option<u64>,
    /// What the last round cost.
    pub(crate) cost_ms: u64,
    /// The neighbour that has not been heard for too long.
    pub(crate) stale_neighbour: Option<&'static str>,
    /// Something happened since the last round that a plan could depend on.
    pub(crate) needs_round: bool,
    /// From look to look at the invariants.
    pub(crate) invariant_memory: monitor::Memory,
}

impl Ledger {
    /// Sets an allocation in memory, in the snapshot, in the rows and in `allocations`.
    pub(crate) fn set_allocation(&mut self, held: AllocationRecord, batch: &mut Batch<Rows>) {
        let id = held.entry.id.clone();
        self.by_work
            .entry(held.entry.work.clone())
            .or_default()
            .insert(id.clone());
        self.index_allocation(&held.entry);
        let seen = held.entry.holds().then(|| self.planner_allocation(&held));
        let before = self.snapshot.set_allocation(&id, seen.clone());
        self.snapshot.stamp(&id, &held.entry.node);
        // That it came to run matters for who is taken back first, and asks for no new round.
        let meaning = |seen: Option<Allocation>| {
            seen.map(|seen| Allocation {
                running: false,
                running_since: None,
                ..seen
            })
        };
        self.needs_round |= meaning(seen) != meaning(before);
        batch.publish(ALLOCATIONS, "", id.as_str(), &held.entry);
        self.worker_pools.record_change(&held.entry);
        batch.rows.allocations.insert(id.clone(), held.clone());
        self.allocations.insert(id, held);
    }

    /// What follows from the allocations that were read.
    fn index_loaded_allocations(&mut self) {
        let held: Vec<AllocationRecord> = self.allocations.values().cloned().collect();
        for held in held {
            let entry = &held.entry;
            let of_work = self.by_work.entry(entry.work.clone()).or_default();
            of_work.insert(entry.id.clone());
            self.index_allocation(entry);
            if entry.holds() {
                let seen = self.planner_allocation(&held);
                self.snapshot.set_allocation(&entry.id, Some(seen));
                self.snapshot.stamp(&entry.id, &entry.node);
            }
        }
    }

    /// Notes who holds anything where.
    fn index_allocation(&mut self, entry: &AllocationEntry) {
        self.evacuations.update_marked(entry);
        if entry.holds() {
            let here = self.by_node.entry(entry.node.clone()).or_default();
            here.insert(entry.id.clone());
        } else if let Some(here) = self.by_node.get_mut(&entry.node) {
            here.remove(&entry.id);
            if here.is_empty() {
                self.by_node.remove(&entry.node);
            }
        }
    }

    /// What holds anything on a node.
    pub(crate) fn allocations_on(
        &self,
        node: &NodeName,
    ) -> impl Iterator<Item = &AllocationRecord> {
        let here = self.by_node.get(node).into_iter().flatten();
        here.filter_map(|id| self.allocations.get(id))
    }

    /// Buries an ended allocation once the rung above has let go of it: its work is withdrawn, or
    /// lists it as settled.
    pub(crate) fn remove_if_settled(&mut self, id: &AllocationId, batch: &mut Batch<Rows>) {
        let Some(held) = self.allocations.get(id) else {
            return;
        };
        let demand = self.demand.get(held.entry.work.as_str());
        let settled = demand.is_none_or(|demand| demand.settled.contains(id));
        if held.entry.holds() || !settled || !self.demand.heard() {
            return;
        }
        let work = held.entry.work.clone();
        self.allocations.remove(id);
        self.update_orphan(id);
        batch.withdraw(ALLOCATIONS, "", id.as_str());
        batch.rows.allocations.remove(id);
        batch.rows.buried.insert(id.clone());
        if let Some(siblings) = self.by_work.get_mut(&work) {
            siblings.remove(id);
            if siblings.is_empty() {
                self.by_work.remove(&work);
            }
        }
        self.forget_work_if_gone(&work, batch);
    }

    /// Drops what is remembered of work that is withdrawn and holds nothing any more.
    pub(crate) fn forget_work_if_gone(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        let wanted = self.demand.get(work.as_str()).is_some() || self.worker_pools.wants(work);
        if wanted || self.by_work.contains_key(work) {
            return;
        }
        if self.incarnations.remove(work).is_some() {
            batch.rows.incarnations.remove(work);
            batch.rows.forgotten_work.insert(work.clone());
        }
    }

    pub(crate) fn next_incarnation(&mut self, work: &WorkId, batch: &mut Batch<Rows>) -> u64 {
        let last = self.incarnations.entry(work.clone()).or_default();
        *last += 1;
        batch.rows.incarnations.insert(work.clone(), *last);
        batch.rows.forgotten_work.remove(work);
        *last
    }

    pub(crate) fn withdraw_verdict(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        self.verdicts_to_publish.remove(work);
        if self.verdicts.remove(work).is_some() {
            batch.withdraw(VERDICTS, "", work.as_str());
        }
    }

    pub(crate) fn set_policy(&mut self, policy: PolicyView) {
        self.rules = Arc::new(Rules::of(&policy.policy));
        let changed = self.snapshot_under(&self.rules);
        self.snapshot.rework(|snapshot| *snapshot = changed);
        self.follow_planners();
        self.policy = policy;
        self.needs_round = true;
    }
}

/// A line with its key.
fn of_class(line: LedgerLine) -> ((UserName, String), LedgerLine) {
    ((line.user.clone(), line.class.clone()), line)
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
        let usage = store::usage::load(&mut *tx).await?;
        let pools = store::pools::load(&mut *tx, worker_pools::rules(&context.settings)).await?;
        let (lines, hour) = spending::restore(store::carried::load(&mut *tx).await?);
        let mut ledger = Self {
            context: context.clone(),
            policy: PolicyView::default(),
            rules: Arc::default(),
            nodes: Followed::default(),
            demand: Followed::default(),
            blocks: Followed::default(),
            containers: Followed::default(),
            requests: Followed::default(),
            second_places: SecondPlaces::load(&mut *tx).await?,
            allocations: store::allocations::load(&mut *tx).await?,
            by_work: BTreeMap::new(),
            by_node: BTreeMap::new(),
            incarnations: store::allocations::load_incarnations(&mut *tx).await?,
            worker_pools: WorkerPools::loaded(pools),
            verdicts: store::entries::load(&mut *tx, VERDICTS, |entry: &VerdictEntry| {
                entry.work.clone()
            })
            .await?,
            receipts: Receipts::of(&receipts),
            preempted_last_hour: hour,
            carried_rows: lines,
            accounts_written_ms: moment.monotonic_ms,
            accounts_dirty: false,
            snapshot: TrackedSnapshot::new(translate::empty_snapshot()),
            rounds: Rounds::default(),
            holdings: Holdings::default(),
            external_planners: ExternalPlanners::default(),
            full_report: true,
            verdicts_to_publish: BTreeMap::new(),
            recorder: Recorder::new(context.settings.inputs()),
            block_ends: BTreeSet::new(),
            machine_facts: MachineFacts::load(&mut *tx, moment).await?,
            evacuations: Evacuations::load(&mut *tx).await?,
            successors: SuccessorSearch::default(),
            unreachable: UnreachableWork::default(),
            nodes_on_trial: NodesOnTrial::default(),
            avoided: BTreeMap::new(),
            drained: BTreeSet::new(),
            usage: usage.into_iter().map(of_class).collect(),
            rates: BTreeMap::new(),
            accounted_ms: moment.monotonic_ms,
            usage_written_ms: moment.monotonic_ms,
            round: rounds.last().map_or(0, |round| round.round),
            last_round_ms: None,
            cost_ms: 0,
            stale_neighbour: None,
            needs_round: true,
            invariant_memory: monitor::Memory::default(),
        };
        ledger.index_loaded_allocations();
        ledger.resume_success_timers(moment.monotonic_ms);
        ledger
            .snapshot
            .set_carried(carry_over::restore(&ledger.carried_rows));
        ledger.resume_policy(policy);
        ledger.request_all_workers();
        let mut view = context.view.write();
        view.policy = ledger.policy.clone();
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
                batch.answer(
                    reply,
                    node_contents::page(&self.snapshot, &self.allocations, &wanted),
                );
            }
            Command::SetPolicy(change, reply) => {
                let answer = self.change_policy(*change, moment, batch);
                batch.answer(reply, answer);
            }
            Command::CopyFleet(policy, reply) => {
                let look = self.has_heard_all().then(|| {
                    self.snapshot.set_now(moment.now);
                    lengthy(|| timed(|| self.copy_fleet(policy.as_deref())))
                });
                batch.answer(reply, look);
            }
            Command::ProcessesOn(nodes, reply) => {
                batch.answer(reply, self.processes_on(&nodes));
            }
            Command::Queues(pool, reply) => {
                self.snapshot.set_now(moment.now);
                let show = || lengthy(|| queues::shown(&self.snapshot, pool.as_deref()));
                let queues = self.has_heard_all().then(show);
                batch.answer(reply, queues);
            }
            Command::PlannerAnswered(answered, reply) => {
                self.apply_planner_outcome(*answered, moment);
                batch.answer(reply, ());
            }
            Command::Planners(reply) => {
                batch.answer(
                    reply,
                    self.has_heard_all()
                        .then(|| external_planners::shown(self, moment)),
                );
            }
            Command::Invariants(reply) => {
                batch.answer(reply, lengthy(|| self.check_invariants(moment)));
            }
            Command::WorkerPools(asked) => asked(self, moment, batch),
        }
    }

    fn trial(&self, command: &Command) -> Trial<Self> {
        crate::commands::trial(command)
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.update_worker_pools(moment, batch);
        let wake = self.run_round(moment, batch);
        self.update_worker_pools(moment, batch);
        self.wake_for_pools(wake, moment)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        metrics::readings(self, moment)
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        rows.write(tx).await
    }
}
