//! Reports the invariants of the working set. [`crate::invariants`] defines the rules.

use hayward_publication::committer::Moment;
use hayward_publication::invariants::Findings;
use hayward_service::invariants::timed_finding;
use hayward_vocabulary::invariant_finding::{Bound, TimedState, check_deadlines};

use super::Ledger;
use crate::invariants;

/// Number by which the limits may be exceeded, because deleting is bounded per round.
const MAX_EXCESS: usize = 2_000;

impl Ledger {
    pub(super) fn check_invariants(&mut self, moment: &Moment) -> Findings {
        let now_ms = moment.monotonic_ms;
        let jobs = self.works.values();
        let jobs = jobs.filter_map(|work| Some((&work.id, work.job()?.tasks.find_inconsistency())));
        let tasks = timed_finding(|| invariants::check_task_counts(jobs));
        let incomplete_gangs = &mut self.incomplete_gangs;
        let gangs = self.applications.gangs();
        let gangs =
            timed_finding(|| invariants::check_gangs(gangs, incomplete_gangs, moment.now, now_ms));
        self.transitional_states
            .record(now_ms, self.applications.transitional_states());
        let grace_ms = self.shared.settings.stop_grace_ms;
        let states = invariants::overdue_states(&self.transitional_states, now_ms, grace_ms)
            .chain(self.applications.timers(moment.now))
            .chain(self.late_waits(now_ms));
        Findings {
            findings: vec![tasks, gangs, timed_finding(|| check_deadlines(states))],
            bounds: self.bounds(),
        }
    }

    /// Returns leases and holds that should have ended. Their ordered entries may be early, never
    /// late.
    fn late_waits(&self, now_ms: u64) -> impl Iterator<Item = TimedState<String>> {
        let leases = self.lease_order.iter();
        let leases = leases.map(|(due, holder)| (holder.to_string(), "holds tasks", *due));
        let hold_ends = self.hold_ends.iter();
        let holds = hold_ends.map(|(due, uuid)| (uuid.to_string(), "is held back", *due));
        leases
            .chain(holds)
            .map(move |(subject, state, due)| TimedState {
                subject,
                state,
                late_ms: now_ms.saturating_sub(due),
                cause: None,
            })
    }

    /// Returns the current sizes and their limits (I25).
    fn bounds(&self) -> Vec<Bound> {
        let settings = &self.shared.settings;
        let to_u64 = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let bound = |name, size, limit| Bound {
            name,
            current: to_u64(size),
            limit: to_u64(limit),
        };
        let open = self.works.len() + self.orchestrators.work_count();
        let (finals, keys) = (settings.keep_final, settings.keep_keys);
        vec![
            bound("open work", open, settings.max_open_work),
            bound(
                "work that is over",
                self.final_works.len(),
                finals + MAX_EXCESS,
            ),
            bound("idempotency keys", self.keys.len(), keys + MAX_EXCESS),
            bound(
                "applications",
                self.applications.len(),
                settings.max_applications,
            ),
            bound(
                "tasks and members of applications",
                self.applications.live_tasks(),
                settings.max_open_work,
            ),
        ]
    }
}
