//! Invariants of node-status: no judgement and no drain is late, and no set of nodes exceeds the
//! limit of nodes.

use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::drain::LATE_MS;
use hayward_node_status_domain::overdue_judgement::late_judgement;
use hayward_publication::Moment;
use hayward_publication::invariants::Findings;
use hayward_service::invariants::timed_finding;
use hayward_vocabulary::invariant_finding::{Bound, TimedState, check_deadlines};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::ledger::Ledger;
use crate::model::Drain;

impl Ledger {
    pub(crate) fn check_invariants(&self, moment: &Moment) -> Findings {
        let drains = self.drains.iter();
        let drains = drains.map(|(node, drain)| to_timed_drain_state(node, drain, moment.now));
        let nodes = self.node_timed_states(self.now_ms(moment));
        let to_u64 = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        // Maps and their indices are each compared with the setting, because either may grow (I25).
        let max_nodes = to_u64(self.context.guards.max_nodes);
        let bound = |name, current| Bound {
            name,
            current: to_u64(current),
            limit: max_nodes,
        };
        Findings {
            findings: vec![timed_finding(|| check_deadlines(nodes.chain(drains)))],
            bounds: vec![
                bound("nodes", self.nodes.len()),
                bound("nodes with a scheduled check", self.due.len()),
                bound("drains", self.drains.len()),
                bound("deadlines of drains", self.drain_checks.len()),
            ],
        }
    }

    /// Returns the state of each node, and by how much its next judgement is late (I24).
    fn node_timed_states(&self, now_ms: u64) -> impl Iterator<Item = TimedState<&NodeName>> {
        self.nodes.values().map(move |node| {
            let pool = self.pools.get(node.brake_pool());
            let brake = pool.map(|pool| pool.brake).unwrap_or_default();
            let late = late_judgement(&node.facts(brake, &self.context, now_ms), now_ms);
            let (state, late_ms) = late.unwrap_or(("is judged in time", 0));
            TimedState {
                subject: &node.name,
                state,
                late_ms,
                cause: (late_ms > 0).then(|| node.health_reason.clone()),
            }
        })
    }
}

/// Returns the state of a drain, and by how much its end is late (I24).
fn to_timed_drain_state<'a>(
    node: &'a NodeName,
    drain: &Drain,
    now: Timestamp,
) -> TimedState<&'a NodeName> {
    let is_in_progress = matches!(drain.state, DrainState::Draining | DrainState::Paused);
    let deadline = drain.deadline.filter(|_| is_in_progress);
    let late = deadline.map(|deadline| now.ms_since(deadline.plus_ms(LATE_MS)));
    TimedState {
        subject: node,
        state: "is being drained",
        late_ms: late.unwrap_or(0),
        cause: Some(drain.reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant_finding::SWEEP_MS;

    use super::*;

    #[test]
    fn a_drain_that_outlives_its_deadline_is_late() {
        let at = Timestamp::from_unix_ms;
        let node = NodeName::new("n1").unwrap();
        let mut drain = Drain {
            number: 1,
            reason: "a new disk".into(),
            by: "ann".into(),
            began: at(0),
            deadline: Some(at(10_000)),
            paused: false,
            state: DrainState::Draining,
            state_since: at(0),
            running: None,
            next_check: None,
        };
        let ms = |ms: u64| i64::try_from(ms).unwrap();
        let last_in_time = 10_000 + ms(LATE_MS + SWEEP_MS);
        let holds = |drain: &Drain, now| {
            check_deadlines([to_timed_drain_state(&node, drain, at(now))]).holds()
        };
        assert!(holds(&drain, last_in_time));
        assert!(!holds(&drain, last_in_time + 1));
        drain.state = DrainState::Paused;
        assert!(!holds(&drain, last_in_time + 1));
        drain.state = DrainState::Failed;
        assert!(holds(&drain, last_in_time + 1));
        drain.deadline = None;
        drain.state = DrainState::Draining;
        assert!(holds(&drain, last_in_time + 1));
    }
}
