//! A round: brings the snapshot up to date, plans, checks the plan and carries it out.
//!
//! A change of the snapshot requests a round. Rounds are at least `round_min_ms` apart. A plan
//! depends on the snapshot alone, so nothing is planned without a change. In that case, only the
//! use of nodes is charged to users, once in `round_max_ms`. Queues are an exception, because their
//! delays end with time. While work waits in a queue, a round is planned once in `round_max_ms`. A
//! round that changes something requests the next one. Jobs may double their processes in each
//! round.
//!
//! Each plan is checked by code that is independent of the planner. Parts that the check refuses
//! are reported, and never carried out.

mod carry_out;
mod departures;
mod mark_processes;
mod reserve_successors;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hayward_publication::{Batch, Moment, Wake};
use hayward_rm_scheduler_domain::gangs::{self, GangGrants, MAX_GRANTS_PER_ROUND};
use hayward_rm_scheduler_domain::{Decision, Plan, Reason};
use hayward_service::runtime::block_in_place::block_in_place;
use hayward_vocabulary::{Timestamp, WorkId};

use crate::metrics;
use crate::model::LeaveOrder;
use crate::round_trace::RoundTimer;
use crate::store::Rows;
use crate::working_set::planning::RecordedInputs;
use crate::working_set::{JOB_CONVERTER, Ledger, worker_pools};

/// Minimum time from one round to the next, as a multiple of the time that the last round took. The
/// setting `round_max_ms` limits this minimum.
const ROUND_INTERVAL_FACTOR: u64 = 5;

/// The results of a round other than its plan.
pub(crate) struct RoundOutcome {
    planning_us: u64,
    /// Parts of the plan that the check refused, as sentences.
    refused: Vec<String>,
    /// Inputs to record, or the reason why they are not recorded.
    inputs: RecordedInputs,
    /// Orders to leave that were given before planning.
    leave_orders: Vec<LeaveOrder>,
    timer: RoundTimer,
}

impl Ledger {
    /// Runs a round if one is due. Returns when to call this function again.
    pub(crate) fn run_round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        if !self.followed.all_answered() {
            return Wake::OnCommand;
        }
        self.expire_blocks(moment.now);
        self.expire_preemption_minutes(moment, batch);
        self.update_machine_facts(moment, batch);
        self.check_deadlines(moment);
        self.check_neighbours(moment.monotonic_ms);
        let (min_ms, max_ms) = (self.pause_ms(), self.context.settings.round_max_ms);
        let elapsed_ms = self.timing.since_last_round_ms(moment.monotonic_ms);
        let min_interval_ms = if self.timing.needs_round() {
            min_ms
        } else {
            max_ms
        };
        if elapsed_ms < min_interval_ms {
            return self.next_wake(min_interval_ms - elapsed_ms, moment);
        }
        self.timing.set_last_round(moment.monotonic_ms);
        self.charge_usage(moment, batch);
        self.timing.request_round_if(self.queues_depend_on_time());
        if !self.timing.needs_round() {
            if self.carry_over.has_unwritten_accounts() {
                self.write_carried(moment, batch);
            }
            self.update_view_time(moment, batch);
            return self.next_wake(max_ms, moment);
        }
        self.execute_round(moment, batch);
        self.next_wake(
            if self.timing.needs_round() {
                self.pause_ms()
            } else {
                max_ms
            },
            moment,
        )
    }

    /// Executes one round: prepares the snapshot, plans, checks the plan and carries it out.
    fn execute_round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let round = self.timing.begin_round();
        self.snapshot.set_round(round);
        let started = Instant::now();
        let mut timer = RoundTimer::begin();
        block_in_place(|| {
            let mut leave_orders = self.order_departures(moment, batch);
            leave_orders.extend(self.exchange_placeholders(moment, batch));
            self.publish_marks(batch);
            self.refresh_nodes_on_trial();
            self.refresh_requests();
            self.mark_waiting_as_leaving();
            self.remove_drained_queues();
            self.publish_closed_nodes(moment.now, batch);
            self.timing.clear_request();
            timer.mark("prepare");
            let (mut decided, mut outcome) = self.plan(timer);
            self.update_external_planners(&mut decided.plan, moment, batch);
            let with_successors = self.vacate_with_successors(&mut decided.plan, moment, batch);
            outcome.timer.mark("check");
            outcome.leave_orders = leave_orders;
            outcome.leave_orders.extend(with_successors);
            self.carry_out(decided, moment, batch, outcome);
            self.publish_evacuations(batch);
        });
        let cost_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.timing.set_cost_ms(cost_ms);
    }

    /// Returns the minimum time between two rounds. If rounds take long, it is a multiple of their
    /// duration, so that most of the time remains for absorbing changes.
    fn pause_ms(&self) -> u64 {
        let settings = &self.context.settings;
        let pause_ms = self.timing.cost_ms().saturating_mul(ROUND_INTERVAL_FACTOR);
        settings
            .round_min_ms
            .max(pause_ms.min(settings.round_max_ms))
    }

    /// Plans the round. Removes the parts of the plan that cannot be carried out.
    fn plan(&mut self, mut timer: RoundTimer) -> (Decision, RoundOutcome) {
        let started = Instant::now();
        let (mut decided, inputs) = self.planning.decide(&mut self.snapshot, &mut timer);
        let plan = &mut decided.plan;
        let gang_grants = GangGrants::new(&self.snapshot, &plan.grants);
        if self.timing.stale_neighbour().is_some() {
            self.drop_vacates(plan);
        }
        let refused = self.drop_refused_parts(plan);
        self.limit_nodes_on_trial(&mut decided.plan);
        // If one grant of a gang was dropped above, all grants of the gang are dropped. They are
        // planned again in the next round.
        let grants = &mut decided.plan.grants;
        self.timing
            .request_round_if(gang_grants.drop_incomplete(&self.snapshot, grants));
        self.timing.request_round_if(gangs::limit_grants(
            &self.snapshot,
            grants,
            MAX_GRANTS_PER_ROUND,
        ));
        let planning_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        (
            decided,
            RoundOutcome {
                planning_us,
                refused,
                inputs,
                leave_orders: Vec::new(),
                timer,
            },
        )
    }

    /// Records that a neighbour became silent or answers again. While a neighbour is silent, a
    /// round takes nothing away from work.
    fn check_neighbours(&mut self, now_ms: u64) {
        let silent = self
            .followed
            .find_stale(now_ms, self.context.settings.stale_ms);
        if silent == self.timing.stale_neighbour() {
            return;
        }
        if let Some(neighbour) = silent {
            tracing::warn!(
                neighbour,
                "silent for too long; nothing is revoked until it is heard"
            );
        } else {
            tracing::info!("all neighbours are heard again");
        }
        self.timing.set_stale_neighbour(silent);
        // Verdicts contain the name of the silent neighbour, so all of them are published again.
        self.planning.request_full_report();
        self.timing.request_round();
    }

    /// Removes vacates from the plan while a neighbour is silent. Only allocations of withdrawn
    /// work still leave, because the withdrawal is known and not assumed.
    fn drop_vacates(&self, plan: &mut Plan) {
        let is_withdrawn = |work: &WorkId| {
            let is_known = self.timing.stale_neighbour() != Some(JOB_CONVERTER)
                || worker_pools::is_pool_work(work);
            is_known && !self.snapshot.demand.contains_key(work)
        };
        let mut spared: BTreeSet<WorkId> = BTreeSet::new();
        plan.vacates.retain(|vacate| {
            let Some(record) = self.allocations.get(&vacate.allocation) else {
                return false;
            };
            let is_leaving = is_withdrawn(&record.entry.work);
            if !is_leaving {
                spared.insert(record.entry.work.clone());
            }
            is_leaving
        });
        // The process of such work stays, so a granted successor would be one process too many.
        plan.grants.retain(|grant| !spared.contains(&grant.work));
        // The plan is not carried out as it was made, so its carry-over is dropped too.
        plan.carried.clone_from(&self.snapshot.carried);
        let silent = self.timing.stale_neighbour().unwrap_or_default();
        for verdict in plan.verdicts.values_mut() {
            if verdict.reason == Reason::WaitingForPreemption {
                verdict.reason = Reason::StaleInput;
                verdict.detail = format!("nothing is preempted while {silent} is silent");
            }
        }
    }

    /// Returns how long to sleep. The next round is due in `round_in_ms`. The sleep is shorter if a
    /// block, a grace period or another wait ends before that.
    fn next_wake(&self, round_in_ms: u64, moment: &Moment) -> Wake {
        let until = |end: &Timestamp| end.ms_since(moment.now);
        let block = self.followed.next_block_end().as_ref().map(until);
        let deadline = self.evacuations.deadlines.first().map(until);
        let budget = self.preempted_last_hour.next_expiry().as_ref().map(until);
        let remaining = |due: u64| due.saturating_sub(moment.monotonic_ms);
        let lost = self.lost_work_due_ms().map(remaining);
        let success = self.failure_evidence.due_ms().map(remaining);
        let planner = self.external_planners.due_ms().map(remaining);
        let first = [block, deadline, budget, lost, success, planner]
            .into_iter()
            .flatten()
            .min();
        let first = first.unwrap_or(u64::MAX).max(1);
        Wake::After(Duration::from_millis(round_in_ms.min(first)))
    }

    /// Returns the monotonic time at which work on a lost node is given up. Returns `None` while a
    /// neighbour is silent.
    fn lost_work_due_ms(&self) -> Option<u64> {
        self.unreachable
            .due_ms()
            .filter(|_| self.timing.stale_neighbour().is_none())
    }

    /// Requests a round when a deadline has passed or the wait for lost work has ended.
    fn check_deadlines(&mut self, moment: &Moment) {
        let deadline = self.evacuations.deadlines.first();
        let lost = self.lost_work_due_ms();
        self.timing.request_round_if(
            deadline.is_some_and(|end| *end <= moment.now)
                || lost.is_some_and(|due| due <= moment.monotonic_ms),
        );
        let planners = self.planners_are_due(moment.monotonic_ms);
        self.timing.request_round_if(planners);
    }

    /// Ends each block exactly at its end, even while blocklist is unavailable.
    fn expire_blocks(&mut self, now: Timestamp) {
        self.snapshot.set_now(now);
        while let Some(key) = self.followed.take_ended_block(now) {
            self.refresh_blocked(&key);
            self.timing.request_round();
        }
    }

    /// Drops the parts of a plan that the check refuses. Returns them as sentences.
    fn drop_refused_parts(&self, plan: &mut Plan) -> Vec<String> {
        let (accepted, violations) = self.planning.check(&self.snapshot, std::mem::take(plan));
        *plan = accepted;
        violations.iter().for_each(metrics::count_refusal);
        let refused: Vec<String> = violations.iter().map(ToString::to_string).collect();
        if !refused.is_empty() {
            tracing::error!(round = self.timing.round(), violations = ?refused, "parts of a plan \
                were refused");
        }
        refused
    }
}
