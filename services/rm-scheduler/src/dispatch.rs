//! Entry points of the committer to the working set: loading, commands, rounds and gauges.

use std::sync::Arc;
use std::time::Duration;

use hayward_publication::{Batch, DryRunSupport, Moment, Wake};
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::{VERDICTS, VerdictEntry};
use hayward_rm_scheduler_domain::fleet_invariants;
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::block_in_place;
use sqlx::PgConnection;

use crate::command::{Command, FleetCopy, PolicyPreview};
use crate::context::Context;
use crate::context::snapshot_reads::run_timed;
use crate::external_planners;
use crate::metrics;
use crate::queries::{load, node_contents, queues};
use crate::recorder::Recorder;
use crate::store::{self, Rows};
use crate::tracked_snapshot::TrackedSnapshot;
use crate::translate;
use crate::working_set::allocations::Allocations;
use crate::working_set::carry_over::{self, CarryOver};
use crate::working_set::evacuations::Evacuations;
use crate::working_set::external_planners::ExternalPlanners;
use crate::working_set::failure_evidence::FailureEvidence;
use crate::working_set::fairness_ledger::Usage;
use crate::working_set::followed_publications::FollowedPublications;
use crate::working_set::nodes_on_trial::NodesOnTrial;
use crate::working_set::planning::Planning;
use crate::working_set::preemption_spending;
use crate::working_set::receipts::Receipts;
use crate::working_set::round_timing::RoundTiming;
use crate::working_set::successor_requests::SuccessorRequests;
use crate::working_set::successor_search::SuccessorSearch;
use crate::working_set::verdicts::PublishedVerdicts;
use crate::working_set::work_on_lost_nodes::UnreachableWork;
use crate::working_set::worker_pools::{self, WorkerPools};
use crate::working_set::{Ledger, PolicyInForce};

impl Ledger {
    /// Returns demand and supply of the newest round. Returns `None` before the first round.
    fn load_of_newest_round(&self) -> Option<Load> {
        let view = self.context.view.read();
        let newest = view.newest_round.as_ref()?;
        Some(load::compute_load(&self.snapshot, newest))
    }

    /// Returns a copy of the fleet. Returns `None` until all neighbours have answered.
    fn copy_fleet_if_complete(
        &mut self,
        preview: Option<&PolicyPreview>,
        moment: &Moment,
    ) -> Option<(FleetCopy, Duration)> {
        self.followed.all_answered().then(|| {
            self.snapshot.set_now(moment.now);
            block_in_place(|| run_timed(|| self.copy_fleet(preview)))
        })
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
        let pools =
            store::worker_pools::load(&mut *tx, worker_pools::pool_rules(&context.settings))
                .await?;
        let (carried, preempted_last_hour) =
            preemption_spending::split_rows(store::planner_state::load(&mut *tx).await?);
        let verdict_of = |entry: &VerdictEntry| entry.work.clone();
        let verdicts = store::published_entries::load(&mut *tx, VERDICTS, verdict_of).await?;
        let allocations = store::allocations::load(&mut *tx).await?;
        let incarnations = store::allocations::load_incarnations(&mut *tx).await?;
        let mut ledger = Self {
            context: context.clone(),
            policy: PolicyInForce::default(),
            followed: FollowedPublications::default(),
            allocations: Allocations::new(allocations, incarnations),
            snapshot: TrackedSnapshot::new(translate::empty_snapshot()),
            planning: Planning::new(Recorder::new(context.settings.input_limits())),
            timing: RoundTiming::new(rounds.last().map_or(0, |round| round.round)),
            carry_over: CarryOver::new(carried, moment.monotonic_ms),
            usage: Usage::new(store::usage::load(&mut *tx).await?, moment.monotonic_ms),
            preempted_last_hour,
            verdicts: PublishedVerdicts::new(verdicts),
            receipts: Receipts::new(&receipts),
            failure_evidence: FailureEvidence::load(&mut *tx, moment).await?,
            evacuations: Evacuations::load(&mut *tx).await?,
            successors: SuccessorSearch::default(),
            successor_requests: SuccessorRequests::load(&mut *tx).await?,
            unreachable: UnreachableWork::default(),
            nodes_on_trial: NodesOnTrial::default(),
            worker_pools: WorkerPools::new(pools),
            external_planners: ExternalPlanners::default(),
            invariant_memory: fleet_invariants::Memory::default(),
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
            Command::Load(reply) => batch.answer(reply, self.load_of_newest_round()),
            Command::NodeContents(filter, reply) => {
                let allocations = self.allocations.by_id();
                let page = node_contents::page(&self.snapshot, allocations, &filter);
                batch.answer(reply, page);
            }
            Command::SetPolicy(change, reply) => {
                let response = self.change_policy(*change, moment, batch);
                batch.answer(reply, response);
            }
            Command::CopyFleet(policy, reply) => {
                let copy = self.copy_fleet_if_complete(policy.as_deref(), moment);
                batch.answer(reply, copy);
            }
            Command::ProcessesOnNodes(nodes, reply) => {
                batch.answer(reply, self.processes_on(&nodes));
            }
            Command::Queues(pool, reply) => {
                self.snapshot.set_now(moment.now);
                let list =
                    || block_in_place(|| queues::list_queues(&self.snapshot, pool.as_deref()));
                let queues = self.followed.all_answered().then(list);
                batch.answer(reply, queues);
            }
            Command::ApplyPlannerOutcome(outcome, reply) => {
                self.apply_planner_outcome(*outcome, moment);
                batch.answer(reply, ());
            }
            Command::Planners(reply) => {
                let list = || external_planners::list_planners(self, moment);
                batch.answer(reply, self.followed.all_answered().then(list));
            }
            Command::Invariants(reply) => {
                batch.answer(reply, block_in_place(|| self.check_invariants(moment)));
            }
            Command::WorkerPools(command) => self.apply_pool_command(*command, moment, batch),
        }
    }

    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::SetPolicy(..) | Command::CopyFleet(..) | Command::WorkerPools(_) => {
                DryRunSupport::InPlace
            }
            _ => DryRunSupport::Unsupported,
        }
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
            newest: view.newest_round.as_ref(),
            silence_ms: self.followed.longest_silence_ms(moment.monotonic_ms),
            now: moment.now,
        })
    }

    fn count_changes(rows: &Rows) -> usize {
        rows.count()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        rows.write(tx).await
    }
}
