//! Checks the invariants of rm-scheduler, for `GET /v1/invariants`. The checks are pure functions
//! of the domain crate. This module passes them the working set.

use hayward_publication::Moment;
use hayward_publication::invariants::Findings;
use hayward_rm_scheduler_domain::fleet_invariants::{self, Account, WaitCheckInput};
use hayward_service::invariants::{TimedFinding, timed_finding};
use hayward_vocabulary::invariant_finding::{Bound, Finding};
use hayward_vocabulary::{Receipt, WorkId};

use crate::context::shared_view::SharedView;
use crate::store::{receipts, rounds};
use crate::working_set::Ledger;

impl Ledger {
    pub(crate) fn check_invariants(&mut self, moment: &Moment) -> Findings {
        let context = self.context.clone();
        let view = context.view.read();
        let mut findings = self.check_allocations();
        findings.push(timed_finding(|| {
            let is_wanted = |work: &WorkId| self.snapshot.demand.contains_key(work);
            let is_awaited = |it: &Receipt| self.unreachable.is_waiting(&it.node, &it.allocation);
            let receipts = view.receipts.values();
            fleet_invariants::check_preemptions(receipts, is_wanted, is_awaited, moment.now)
        }));
        let memory = &mut self.invariant_memory;
        let (snapshot, now_ms) = (&*self.snapshot, moment.monotonic_ms);
        let allocations = &self.allocations;
        let grant_count = |work: &WorkId| allocations.last_incarnation(work).unwrap_or(0);
        findings.push(timed_finding(|| {
            fleet_invariants::check_gangs(snapshot, grant_count, memory, now_ms)
        }));
        findings.extend(self.check_waiting_work(&view, moment));
        Findings {
            findings,
            bounds: bounds(&view),
        }
    }

    /// Checks that the records of allocations agree. Once all neighbours have answered, also checks
    /// that no node is over-committed and that no blocked node got an allocation.
    fn check_allocations(&self) -> Vec<TimedFinding> {
        let (snapshot, sequence) = (&*self.snapshot, self.snapshot.sequence());
        let mut findings = vec![timed_finding(|| self.check_accounts())];
        if self.followed.all_answered() {
            findings.push(timed_finding(|| {
                fleet_invariants::check_over_commit(snapshot, sequence)
            }));
            findings.push(timed_finding(|| {
                fleet_invariants::check_blocked_nodes(snapshot, sequence)
            }));
        } else {
            // Without the entries of all neighbours, the snapshot is incomplete.
            let why = "not all neighbours have been heard in this term";
            for rule in [fleet_invariants::OVER_COMMIT, fleet_invariants::BLOCKED] {
                findings.push(timed_finding(|| Finding::not_checked(rule, why)));
            }
        }
        findings
    }

    /// Checks that the allocations, the snapshot and the index by node contain the same quanta.
    fn check_accounts(&self) -> Finding {
        let mut live = Account::new("the allocations");
        for record in self.allocations.values().filter(|it| it.entry.holds()) {
            let entry = &record.entry;
            live.add(&entry.user, &entry.class, &entry.node, entry.order);
        }
        let mut planned = Account::new("the snapshot of the planner");
        for allocation in self.snapshot.allocations.values() {
            planned.add(
                &allocation.user,
                &allocation.class,
                &allocation.node,
                allocation.quanta,
            );
        }
        let mut indexed = Account::new("the index by node");
        for (node, record) in self.allocations.by_node() {
            let entry = &record.entry;
            indexed.add(&entry.user, &entry.class, node, entry.order);
        }
        fleet_invariants::check_accounts(&live, &[planned, indexed])
    }

    /// Checks that verdicts are correct, and that no capacity is idle that waiting work could use.
    fn check_waiting_work(&mut self, view: &SharedView, moment: &Moment) -> Vec<TimedFinding> {
        let rules = [fleet_invariants::EXPLAINED, fleet_invariants::CONSERVING];
        let all_unchecked = |why: &str| {
            let finding = |rule| timed_finding(|| Finding::not_checked(rule, why));
            rules.map(finding).into()
        };
        let Some(newest) = &view.newest_round else {
            return all_unchecked("no round has been taken in this term");
        };
        if let Some(silent) = self.timing.stale_neighbour() {
            return all_unchecked(&format!("{silent} is silent, and nothing is taken back"));
        }
        let input = WaitCheckInput {
            snapshot: &self.snapshot,
            verdicts: &newest.verdicts,
            unplanned: self.snapshot.unplanned(),
            settled: !self.timing.needs_round(),
            sequence: self.snapshot.sequence(),
            round: self.timing.round(),
            now_ms: moment.monotonic_ms,
        };
        let memory = &mut self.invariant_memory;
        vec![
            timed_finding(|| fleet_invariants::check_explanations(&input)),
            timed_finding(|| fleet_invariants::check_work_conserving(&input, memory)),
        ]
    }
}

/// Returns the bounds of the data that is stored for readers (I25).
fn bounds(view: &SharedView) -> Vec<Bound> {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    vec![
        Bound {
            name: "receipts in memory",
            current: number(view.receipts.len()),
            limit: receipts::MAX_STORED,
        },
        Bound {
            name: "rounds in memory",
            current: number(view.rounds.len()),
            limit: number(rounds::MAX_STORED),
        },
    ]
}
