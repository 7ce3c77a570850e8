//! Carries out a checked plan: creates and vacates allocations, and publishes and records the
//! results of the round. No decision is made here.

use std::collections::BTreeMap;
use std::time::Instant;

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VERDICTS, Vacate, VerdictEntry};
use hayward_rm_scheduler_domain::{
    Decision, Plan, Reason, Verdict, gangs::MAX_GRANTS_PER_ROUND, plan,
};
use hayward_service::metrics::catalogue::{PHASE, ROUND_DURATION};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_service::trace::SpanBuilder;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};

use super::RoundOutcome;
use crate::context::shared_view::RoundChanges;
use crate::metrics;
use crate::model::{AllocationRecord, LeaveOrder};
use crate::round_trace::{RoundTimer, RoundTrace};
use crate::store::{Rows, rounds};
use crate::translate::published_entries;
use crate::working_set::Ledger;
use crate::working_set::orchestrator_allocations;
use crate::working_set::planning::RecordedInputs;
use crate::working_set::successor_requests;

impl Ledger {
    /// Carries out the plan of a round, and publishes and records the results of the round.
    pub(crate) fn carry_out(
        &mut self,
        decided: Decision,
        moment: &Moment,
        batch: &mut Batch<Rows>,
        outcome: RoundOutcome,
    ) {
        let Decision {
            plan, shares, gone, ..
        } = decided;
        let timer = outcome.timer;
        let trace = self.trace_of_round(&timer, &plan);
        self.planning.set_trace(trace);
        self.store_carry_over(plan.carried, moment, batch);
        let leave_orders = outcome.leave_orders.into_iter();
        let mut vacated: BTreeMap<String, String> = leave_orders
            .map(|order| (order.allocation.to_string(), order.detail))
            .collect();
        for vacate in plan.vacates {
            vacated.insert(vacate.allocation.to_string(), vacate.detail.clone());
            self.vacate(to_leave_order(vacate), moment, batch);
        }
        let mut grants = Vec::new();
        for grant in plan.grants {
            // The plan may grant a replacement for a task that the plan itself orders to leave.
            // Such a grant is dropped, because a task has only one process at a time.
            if !self.is_leaving_task(&grant.work) {
                grants.push(self.grant(grant, moment, batch));
            }
        }
        self.end_trace(batch);
        self.set_rates();
        let verdicts = plan.verdicts.clone();
        self.verdicts.publish_all_later(plan.verdicts);
        let waiting = self.publish_verdicts(moment, batch);
        self.publish_waits(batch);
        self.write_receipts(&plan.receipts, &vacated, moment, batch);
        self.close_lapsed_receipts(moment, batch);
        let view = RoundView {
            round: self.timing.round(),
            at: moment.now,
            planning_us: outcome.planning_us,
            grants,
            vacated,
            receipts: Vec::new(),
            waiting,
            refused: outcome.refused,
            without_inputs: outcome.inputs.as_ref().err().cloned(),
        };
        let view = changes_something(&view).then_some(view);
        self.record_round(view.as_ref(), outcome.inputs, batch);
        let changes = RoundChanges {
            shares,
            verdicts,
            removed_work: gone,
        };
        self.update_view(view, changes, moment, batch);
        timer.finish();
    }

    /// Records a round that changed something. The inputs of other rounds are not written.
    fn record_round(
        &mut self,
        view: Option<&RoundView>,
        inputs: RecordedInputs,
        batch: &mut Batch<Rows>,
    ) {
        if let Some(view) = view {
            batch.rows.rounds.push(view.clone());
            let round = self.timing.round();
            batch.rows.inputs = inputs
                .ok()
                .map(|(inputs, plan)| self.planning.record(round, inputs, plan));
        } else if let Ok((inputs, _)) = inputs {
            self.snapshot.restore_unrecorded(inputs);
        }
    }

    /// Ends the trace of the round when the batch is committed.
    fn end_trace(&mut self, batch: &mut Batch<Rows>) {
        if let Some(trace) = self.planning.take_trace() {
            let requested_at = Instant::now();
            batch.once_committed(move |revision| {
                trace.mark_committed(revision);
                ROUND_DURATION.record_duration(requested_at.elapsed(), &[PHASE.with("commit")]);
            });
        }
    }

    /// Returns the trace of a round that decided something.
    fn trace_of_round(&self, timer: &RoundTimer, plan: &Plan) -> Option<RoundTrace> {
        let granted = plan.grants.iter().map(|grant| &grant.work);
        let demands = granted.filter_map(|work| self.followed.demand().get(work.as_str()));
        timer.trace(
            self.timing.round(),
            plan,
            demands.filter_map(DemandEntry::submitted_within),
        )
    }

    /// Starts the trace span of a new allocation. Returns the trace parent of spans below it.
    fn start_allocation_span(
        &mut self,
        span: SpanBuilder,
        submitted: Option<&str>,
    ) -> Option<String> {
        let trace = self.planning.trace_mut()?;
        let parent = trace.start_allocation_span(span, submitted)?;
        Some(parent.to_string())
    }

    /// Creates the allocation of a grant.
    pub(crate) fn grant(
        &mut self,
        grant: plan::Grant,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> AllocationId {
        let id = AllocationId::from_uuid(fresh_uuid());
        let request = self.request_for_grant(&grant.work);
        // The grant of a request becomes an allocation of the requested process.
        let work = request
            .as_ref()
            .map_or(grant.work.clone(), |it| it.work.clone());
        let predecessor = match &request {
            Some(request) => request.predecessor.clone(),
            None => self.predecessor_of_work(&work),
        };
        let demand = self.followed.demand().get(work.as_str());
        let submitted = demand.and_then(|demand| demand.submitted_within().map(str::to_owned));
        let exclusive = demand.is_some_and(|demand| demand.when_unreachable.is_exclusive());
        let mut launch = demand
            .and_then(|demand| demand.launch.clone())
            .or_else(|| self.worker_pools.launch(&work, &id));
        let orchestrator_starts =
            demand.is_some_and(orchestrator_allocations::starts_own_processes);
        // A reservation holds its node, and no process is started on it.
        let state = match launch {
            None if !orchestrator_starts => AllocationState::Running,
            _ => AllocationState::Assigned,
        };
        metrics::count_grant(&self.snapshot, &grant);
        let span = metrics::allocation_span(&id, &work, &grant);
        let mut trace_parent = self.start_allocation_span(span, submitted.as_deref());
        if let Some(launch) = &mut launch {
            // The service that launches the process traces this allocation and needs the trace
            // parent.
            launch.within = trace_parent.take();
        }
        let running_since = (state == AllocationState::Running).then_some(moment.now);
        let entry = AllocationEntry {
            id: id.clone(),
            incarnation: self.next_incarnation(&work, batch),
            work,
            kind: grant.kind,
            user: grant.user,
            class: grant.class.to_string(),
            node: grant.node,
            order: grant.quanta,
            size: grant.size,
            granted_at: moment.now,
            running_since,
            exclusive,
            predecessor,
            request: request.map(|it| it.id),
            state,
            vacate: None,
            marked: None,
            exit: None,
            launch,
        };
        let record = AllocationRecord {
            trial: self.nodes_on_trial.trial_of(&entry.node),
            entry,
            fixed: grant.fixed,
            gpus: grant.gpus,
            group: grant.group,
            trace_parent,
        };
        self.store_new_allocation(record, moment, batch);
        id
    }

    /// Stores the allocation of a grant. One that runs already may fulfil receipts.
    fn store_new_allocation(
        &mut self,
        record: AllocationRecord,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if record.entry.state == AllocationState::Running {
            self.fulfil_receipts(&record.entry, moment, batch);
        }
        self.set_allocation(record, batch);
    }

    /// Orders an allocation to leave. If its end cannot be awaited, the allocation ends at once.
    pub(crate) fn vacate(&mut self, order: LeaveOrder, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(record) = self.allocations.get(&order.allocation) else {
            return;
        };
        let (mut record, awaits_orchestrator) =
            (record.clone(), self.ends_by_orchestrator(&record.entry));
        metrics::count_vacate(order.reason);
        let entry = &mut record.entry;
        entry.vacate = Some(Vacate {
            reason: order.reason,
            detail: order.detail.clone(),
            since: moment.now,
            purge: order.purge,
        });
        let cause = match entry.launch {
            // A node that cannot answer reports no end.
            _ if order.purge => Some(ExitCause::Node),
            // The orchestrator ends the process and reports the end.
            None if awaits_orchestrator => None,
            // A reservation has no process whose end could be awaited.
            None => Some(ExitCause::Intended),
            Some(_) => None,
        };
        if let Some(cause) = cause {
            entry.state = AllocationState::Ended;
            entry.exit = Some(Exit::of(cause, order.detail));
            metrics::end_trace_of(&record, cause, batch);
        } else if awaits_orchestrator {
            entry.state = AllocationState::Stopping;
        }
        let work = record.entry.work.clone();
        self.set_allocation(record, batch);
        let demand = self.followed.demand().get(work.as_str());
        if demand.is_some_and(|demand| demand.part.is_some()) {
            // An ended attempt of an application counts against the limit of its part until
            // job-converter lists the attempt as settled.
            self.refresh_demand(work.as_str());
        }
        self.remove_if_settled(&order.allocation, batch);
    }

    /// Publishes the verdicts whose meaning changed. Returns the first [`rounds::MAX_VERDICTS`] of
    /// them, for the record of the round.
    fn publish_verdicts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Vec<VerdictEntry> {
        let mut changed = Vec::new();
        let (mut published, mut postponed) = (0, Vec::new());
        while let Some((work, verdict)) = self.verdicts.next_to_publish() {
            // Only container-manager needs the verdict on a request.
            if successor_requests::is_request(&work) {
                self.successor_requests.record_verdict(work, &verdict);
                continue;
            }
            let published_verdict = self.verdicts.get(&work);
            let note = self.unreachable.note_for(&work);
            let is_unchanged = |earlier: &VerdictEntry| {
                has_same_text(earlier, &verdict, note) && has_same_meaning(earlier, &verdict)
            };
            if published_verdict.is_some_and(is_unchanged) {
                continue;
            }
            // The text of an external planner may change often, so these changes are limited.
            let only_planner_text_changed = |earlier: &VerdictEntry| {
                let is_external = verdict.reason == Reason::ExternalPlanner;
                is_external
                    && published_entries::note(&earlier.detail) == note
                    && has_same_meaning(earlier, &verdict)
            };
            let now_ms = moment.monotonic_ms;
            if published_verdict.is_some_and(only_planner_text_changed)
                && !self
                    .external_planners
                    .text_changes
                    .may_change(&work, now_ms)
            {
                postponed.push((work, verdict));
                continue;
            }
            if published == MAX_GRANTS_PER_ROUND {
                self.timing.request_round();
                self.verdicts.publish_later(work, verdict);
                break;
            }
            published += 1;
            let reason = verdict.reason;
            let since = published_verdict.filter(|earlier| earlier.reason == reason);
            let mut entry = published_entries::verdict(&work, &verdict);
            entry.detail = published_entries::with_note(entry.detail, note);
            entry.since = since.map_or(moment.now, |earlier| earlier.since);
            entry.receipts =
                published_verdict.map_or_else(Vec::new, |earlier| earlier.receipts.clone());
            batch.publish(VERDICTS, "", work.as_str(), &entry);
            if changed.len() < rounds::MAX_VERDICTS {
                changed.push(entry.clone());
            }
            self.verdicts.insert(work, entry);
        }
        self.verdicts.publish_all_later(postponed);
        changed
    }

    /// Updates the view that handlers read, once the batch is committed.
    fn update_view(
        &self,
        round: Option<RoundView>,
        changes: RoundChanges,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let ledger = self.usage.rows();
        let all_shares = changes.shares.is_none().then(|| self.planning.shares());
        let (round_number, at) = (self.timing.round(), moment.now);
        let budgets = self.budgets();
        let context = self.context.clone();
        batch.once_committed(move |_| {
            let mut view = context.view.write();
            let newest = view.newest_round.get_or_insert_default();
            changes.apply(all_shares, newest);
            (newest.round, newest.at, newest.ledger) = (round_number, at, ledger);
            newest.budgets = budgets;
            view.rounds.extend(round);
            while view.rounds.len() > rounds::MAX_STORED {
                view.rounds.pop_front();
            }
        });
    }

    /// Updates the time and the fairness ledger of the shared view when nothing was planned.
    pub(crate) fn update_view_time(&self, moment: &Moment, batch: &mut Batch<Rows>) {
        let (at, ledger) = (moment.now, self.usage.rows());
        let context = self.context.clone();
        batch.once_committed(move |_| {
            if let Some(newest) = &mut context.view.write().newest_round {
                (newest.at, newest.ledger) = (at, ledger);
            }
        });
    }
}

fn to_leave_order(vacate: plan::Vacate) -> LeaveOrder {
    LeaveOrder {
        allocation: vacate.allocation,
        reason: published_entries::vacate_reason(vacate.reason),
        detail: vacate.detail,
        purge: vacate.purge,
    }
}

/// Returns true if the round is worth recording.
fn changes_something(round: &RoundView) -> bool {
    !round.grants.is_empty()
        || !round.vacated.is_empty()
        || !round.waiting.is_empty()
        || !round.refused.is_empty()
}

/// Returns true if the texts of two verdicts count as equal. There are three cases:
///
/// - Work of an external planner: the whole text is compared, because nothing else explains the
///   verdict.
/// - Quotas: the text is compared without amounts, because the words name the quota.
/// - All other reasons: only the note about an unreachable process is compared.
fn has_same_text(earlier: &VerdictEntry, verdict: &Verdict, note: Option<&str>) -> bool {
    let new_text = || published_entries::with_note(verdict.detail.clone(), note);
    match verdict.reason {
        Reason::ExternalPlanner => earlier.detail == new_text(),
        Reason::UserQuota | Reason::QueueQuota | Reason::NotRunnable => {
            words_without_amounts(&earlier.detail).eq(words_without_amounts(&new_text()))
        }
        _ => published_entries::note(&earlier.detail) == note,
    }
}

/// Returns the words of a sentence without amounts and units, which change with every round.
fn words_without_amounts(sentence: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 7] = ["TiB", "GiB", "GB", "MiB", "MB", "KiB", "bytes"];
    let words = sentence.split_ascii_whitespace();
    words.filter(|word| !word.starts_with(|it: char| it.is_ascii_digit()) && !UNITS.contains(word))
}

/// Returns true if two verdicts differ only in numbers, which change with every round.
fn has_same_meaning(earlier: &VerdictEntry, verdict: &Verdict) -> bool {
    let same_unblock = match (&earlier.unblock, &verdict.unblock) {
        (Some(earlier), Some(now)) => earlier.is_same_kind(now),
        (earlier, now) => earlier.is_none() && now.is_none(),
    };
    same_unblock
        && earlier.reason == verdict.reason
        && earlier.refused == verdict.refused
        && earlier.class.as_deref() == verdict.class.as_deref()
        && earlier.also == verdict.also
}

#[cfg(test)]
mod tests {
    use super::words_without_amounts;

    #[test]
    fn texts_that_differ_only_in_amounts_are_equal() {
        let user = "user ann holds 1536 MiB of 2 GiB memory, and 1 GiB more are needed in queue q1";
        let remaining_words =
            |sentence: &'static str| -> Vec<&str> { words_without_amounts(sentence).collect() };
        let later = "user ann holds 2 GiB of 2 GiB memory, and 512 MiB more are needed in queue q1";
        assert_eq!(remaining_words(user), remaining_words(later));
        let group = "group dev holds 1536 MiB of 2 GiB memory, and 1 GiB more are needed in queue \
                     q1";
        assert_ne!(remaining_words(user), remaining_words(group));
        let other_queue = "user ann holds 1536 MiB of 2 GiB memory, \
                           and 1 GiB more are needed in queue q2";
        assert_ne!(remaining_words(user), remaining_words(other_queue));
    }
}
