//! Carries out a checked plan: rows and publications, without decisions.

use std::collections::BTreeMap;
use std::time::Instant;

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VERDICTS, Vacate, VerdictEntry};
use hayward_rm_scheduler_domain::{Decided, Plan, Reason, Verdict, gangs::MAX_CONCURRENT, plan};
use hayward_service::metrics::catalogue::{PHASE, ROUND_DURATION};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};

use super::RoundOutcome;
use crate::context::view::RoundChanges;
use crate::metrics;
use crate::model::{AllocationRecord, LeaveOrder};
use crate::round_trace::{RoundTimer, RoundTrace};
use crate::store::{Rows, rounds};
use crate::translate::entries;
use crate::working_set::Ledger;
use crate::working_set::orchestrator_shares;
use crate::working_set::planning::RecordedInputs;
use crate::working_set::second_places;

impl Ledger {
    pub(crate) fn carry_out(
        &mut self,
        decided: Decided,
        moment: &Moment,
        batch: &mut Batch<Rows>,
        made: RoundOutcome,
    ) {
        let Decided {
            plan, shares, gone, ..
        } = decided;
        let watch = made.watch;
        let trace = self.trace_of_round(&watch, &plan);
        self.planning.set_trace(trace);
        self.store_carry_over(plan.carried, moment, batch);
        let taken_off = made.taken_off.into_iter();
        let mut vacated: BTreeMap<String, String> = taken_off
            .map(|order| (order.allocation.to_string(), order.detail))
            .collect();
        for vacate in plan.vacates {
            vacated.insert(vacate.allocation.to_string(), vacate.detail.clone());
            self.vacate(leave_order(vacate), moment, batch);
        }
        let mut grants = Vec::new();
        for grant in plan.grants {
            // The plan may grant a replacement for a task that it orders to leave. This grant is
            // dropped, because a task has only one process.
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
            planning_us: made.planning_us,
            grants,
            vacated,
            receipts: Vec::new(),
            waiting,
            refused: made.refused,
            without_inputs: made.inputs.as_ref().err().cloned(),
        };
        let view = changes_something(&view).then_some(view);
        self.record_round(view.as_ref(), made.inputs, batch);
        let news = RoundChanges {
            shares,
            verdicts,
            gone,
        };
        self.update_view(view, news, moment, batch);
        watch.finish();
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
                .map(|(inputs, rest)| self.planning.record(round, inputs, rest));
        } else if let Ok((inputs, _)) = inputs {
            self.snapshot.not_written(inputs);
        }
    }

    /// Ends the trace of the round when the batch is committed.
    fn end_trace(&mut self, batch: &mut Batch<Rows>) {
        if let Some(traced) = self.planning.take_trace() {
            let handed = Instant::now();
            batch.once_committed(move |revision| {
                traced.committed(revision);
                ROUND_DURATION.record_duration(handed.elapsed(), &[PHASE.is("commit")]);
            });
        }
    }

    /// Returns the trace of a round that decided something.
    fn trace_of_round(&self, watch: &RoundTimer, plan: &Plan) -> Option<RoundTrace> {
        let granted = plan.grants.iter().map(|grant| &grant.work);
        let demands = granted.filter_map(|work| self.followed.demand().get(work.as_str()));
        watch.trace(
            self.timing.round(),
            plan,
            demands.filter_map(DemandEntry::submitted_within),
        )
    }

    pub(crate) fn grant(
        &mut self,
        grant: plan::Grant,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> AllocationId {
        let id = AllocationId::fresh(fresh_uuid());
        let request = self.request_behind(&grant.work);
        // The grant of a request becomes an allocation of the requested process.
        let work = request
            .as_ref()
            .map_or(grant.work.clone(), |it| it.work.clone());
        let predecessor = match &request {
            Some(request) => request.predecessor.clone(),
            None => self.predecessor_of_work(&work),
        };
        let demand = self.followed.demand().get(work.as_str());
        let submitted = demand.and_then(DemandEntry::submitted_within);
        let exclusive = demand.is_some_and(|demand| demand.when_unreachable.is_exclusive());
        let mut launch = demand
            .and_then(|demand| demand.launch.clone())
            .or_else(|| self.worker_pools.launch(&work, &id));
        let trial = self.nodes_on_trial.trial_of(&grant.node);
        let started_outside = demand.is_some_and(orchestrator_shares::starts_own_processes);
        // A reservation holds its node, and no process is started on it.
        let state = match launch {
            None if !started_outside => AllocationState::Running,
            _ => AllocationState::Assigned,
        };
        metrics::granted(&self.snapshot, &grant);
        let mut within = self.planning.trace_mut().and_then(|traced| {
            let described = metrics::allocation(&id, &work, &grant);
            let place = traced.grant(described, submitted)?;
            Some(place.to_string())
        });
        if let Some(launch) = &mut launch {
            // The service that launches the process traces this allocation and needs the trace
            // parent.
            launch.within = within.take();
        }
        let entry = AllocationEntry {
            id: id.clone(),
            incarnation: self.next_incarnation(&work, batch),
            work,
            kind: grant.kind,
            user: grant.user,
            class: grant.class.to_string(),
            node: grant.node,
            order: grant.order,
            size: grant.size,
            granted_at: moment.now,
            running_since: (state == AllocationState::Running).then_some(moment.now),
            exclusive,
            predecessor,
            request: request.map(|it| it.id),
            state,
            vacate: None,
            marked: None,
            exit: None,
            launch,
        };
        if entry.state == AllocationState::Running {
            self.answer_receipts(&entry, moment, batch);
        }
        self.set_allocation(
            AllocationRecord {
                entry,
                fixed: grant.fixed,
                gpus: grant.gpus,
                group: grant.group,
                trial,
                within,
            },
            batch,
        );
        id
    }

    pub(crate) fn vacate(&mut self, order: LeaveOrder, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(held) = self.allocations.get(&order.allocation) else {
            return;
        };
        let (mut held, waits) = (held.clone(), self.ends_by_orchestrator(&held.entry));
        metrics::count_vacate(order.reason);
        let entry = &mut held.entry;
        entry.vacate = Some(Vacate {
            reason: order.reason,
            detail: order.detail.clone(),
            since: moment.now,
            purge: order.purge,
        });
        let cause = match entry.launch {
            // The end is not awaited on a node that cannot answer (`purge`), nor for a reservation,
            // which has no process.
            _ if order.purge => Some(ExitCause::Node),
            // The orchestrator ends the process and reports the end.
            None if waits => None,
            None => Some(ExitCause::Intended),
            Some(_) => None,
        };
        if let Some(cause) = cause {
            entry.state = AllocationState::Ended;
            entry.exit = Some(Exit::of(cause, order.detail));
            metrics::end_trace_of(&held, cause, batch);
        } else if waits {
            entry.state = AllocationState::Stopping;
        }
        let work = held.entry.work.clone();
        self.set_allocation(held, batch);
        let demand = self.followed.demand().get(work.as_str());
        if demand.is_some_and(|demand| demand.part.is_some()) {
            // The ended attempt counts until it is settled.
            self.refresh_demand(work.as_str());
        }
        self.remove_if_settled(&order.allocation, batch);
    }

    /// Publishes the verdicts whose meaning changed, and returns the first of them.
    fn publish_verdicts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Vec<VerdictEntry> {
        let mut changed = Vec::new();
        let (mut published, mut later) = (0, Vec::new());
        while let Some((work, verdict)) = self.verdicts.next_to_publish() {
            // Only container-manager needs the verdict on a request.
            if second_places::owns(&work) {
                self.second_places.record_verdict(work, &verdict);
                continue;
            }
            let before = self.verdicts.get(&work);
            let note = self.unreachable.note_for(&work);
            let same = |earlier: &VerdictEntry| {
                same_text(earlier, &verdict, note) && same_meaning(earlier, &verdict)
            };
            if before.is_some_and(same) {
                continue;
            }
            // Only the text of the external planner may have changed.
            let words = |earlier: &VerdictEntry| {
                let outside = verdict.reason == Reason::OutsidePlanner;
                outside && entries::note(&earlier.detail) == note && same_meaning(earlier, &verdict)
            };
            let now_ms = moment.monotonic_ms;
            if before.is_some_and(words) && !self.external_planners.words.may_change(&work, now_ms)
            {
                later.push((work, verdict));
                continue;
            }
            if published == MAX_CONCURRENT {
                self.timing.request_round();
                self.verdicts.publish_later(work, verdict);
                break;
            }
            published += 1;
            let reason = verdict.reason;
            let since = before.filter(|earlier| earlier.reason == reason);
            let mut entry = entries::verdict(&work, &verdict);
            entry.detail = entries::with_note(entry.detail, note);
            entry.since = since.map_or(moment.now, |earlier| earlier.since);
            entry.receipts = before.map_or_else(Vec::new, |earlier| earlier.receipts.clone());
            batch.publish(VERDICTS, "", work.as_str(), &entry);
            if changed.len() < rounds::MAX_VERDICTS {
                changed.push(entry.clone());
            }
            self.verdicts.insert(work, entry);
        }
        self.verdicts.publish_all_later(later);
        changed
    }

    fn update_view(
        &self,
        round: Option<RoundView>,
        news: RoundChanges,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let ledger = self.usage.rows();
        let all = news.shares.is_none().then(|| self.planning.shares());
        let (counted_in, at) = (self.timing.round(), moment.now);
        let budgets = self.budgets();
        let context = self.context.clone();
        batch.once_committed(move |_| {
            let mut view = context.view.write();
            let counted = view.counted.get_or_insert_default();
            news.apply(all, counted);
            (counted.round, counted.at, counted.ledger) = (counted_in, at, ledger);
            counted.budgets = budgets;
            view.rounds.extend(round);
            while view.rounds.len() > rounds::MAX_STORED {
                view.rounds.pop_front();
            }
        });
    }

    /// Updates time and fairness ledger of the shared view after a round without decisions.
    pub(crate) fn update_view_time(&self, moment: &Moment, batch: &mut Batch<Rows>) {
        let (at, ledger) = (moment.now, self.usage.rows());
        let context = self.context.clone();
        batch.once_committed(move |_| {
            if let Some(counted) = &mut context.view.write().counted {
                (counted.at, counted.ledger) = (at, ledger);
            }
        });
    }
}

fn leave_order(vacate: plan::Vacate) -> LeaveOrder {
    LeaveOrder {
        allocation: vacate.allocation,
        reason: entries::vacate_reason(vacate.reason),
        detail: vacate.detail,
        purge: vacate.purge,
    }
}

fn changes_something(round: &RoundView) -> bool {
    !round.grants.is_empty()
        || !round.vacated.is_empty()
        || !round.waiting.is_empty()
        || !round.refused.is_empty()
}

/// Returns true if the texts of two verdicts count as equal. For an external planner, every
/// difference counts, because the text is the only explanation of its work. For quotas, the text
/// without amounts counts, because it names the quota. For other reasons, only the note counts.
fn same_text(earlier: &VerdictEntry, verdict: &Verdict, note: Option<&str>) -> bool {
    let now = || entries::with_note(verdict.detail.clone(), note);
    match verdict.reason {
        Reason::OutsidePlanner => earlier.detail == now(),
        Reason::UserQuota | Reason::QueueQuota | Reason::NotRunnable => {
            without_amounts(&earlier.detail).eq(without_amounts(&now()))
        }
        _ => entries::note(&earlier.detail) == note,
    }
}

/// Returns the words of a sentence without amounts and units, which change with every round.
fn without_amounts(sentence: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 7] = ["TiB", "GiB", "GB", "MiB", "MB", "KiB", "bytes"];
    let words = sentence.split_ascii_whitespace();
    words.filter(|word| !word.starts_with(|it: char| it.is_ascii_digit()) && !UNITS.contains(word))
}

/// Returns true if two verdicts differ only in numbers, which change with every round.
fn same_meaning(earlier: &VerdictEntry, verdict: &Verdict) -> bool {
    let change = match (&earlier.unblock, &verdict.unblock) {
        (Some(earlier), Some(now)) => earlier.is_like(now),
        (earlier, now) => earlier.is_none() && now.is_none(),
    };
    change
        && earlier.reason == verdict.reason
        && earlier.refused == verdict.refused
        && earlier.class.as_deref() == verdict.class.as_deref()
        && earlier.also == verdict.also
}

#[cfg(test)]
mod tests {
    use super::without_amounts;

    #[test]
    fn texts_differ_by_the_limit_they_name_and_not_by_amounts() {
        let user = "user ann holds 1536 MiB of 2 GiB memory, and 1 GiB more are needed in queue q1";
        let words = |sentence: &'static str| -> Vec<&str> { without_amounts(sentence).collect() };
        let later = "user ann holds 2 GiB of 2 GiB memory, and 512 MiB more are needed in queue q1";
        assert_eq!(words(user), words(later));
        let group = "group dev holds 1536 MiB of 2 GiB memory, and 1 GiB more are needed in queue \
                     q1";
        assert_ne!(words(user), words(group));
        let below = "user ann holds 1536 MiB of 2 GiB memory, and 1 GiB more are needed in queue \
                     q2";
        assert_ne!(words(user), words(below));
    }
}
