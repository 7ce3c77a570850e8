//! The invariants that node-status can see (section 1 of the reliability rules): its states that
//! have deadlines, and its limits.

use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::drain::LATE_MS;
use hayward_node_status_domain::overdue::overstays;
use hayward_publication::invariants::{Findings, Look};
use hayward_publication::{Handle, Moment};
use hayward_service::invariants::{Watch, timed};
use hayward_vocabulary::invariant::{Bound, Transit, mortal};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::command::Command;
use crate::ledger::Ledger;
use crate::model::Drain;

pub fn watch(handle: &Handle<Command>) -> Watch {
    let look = Look {
        handle: handle.clone(),
        command: Command::Invariants,
    };
    Watch::new(crate::NAME, look)
}

impl Ledger {
    pub(crate) fn report(&self, moment: &Moment) -> Findings {
        let drains = self.drains.iter();
        let drains = drains.map(|(node, drain)| of_drain(node, drain, moment.now));
        let nodes = self.of_nodes(self.now_ms(moment));
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        // I25: against what the operator allows. A list held against the map that it is an index of
        // would only say that both have grown.
        let most = number(self.context.guards.max_nodes);
        let bound = |what, has| Bound {
            what,
            has: number(has),
            most,
        };
        Findings {
            findings: vec![timed(|| mortal(nodes.chain(drains)))],
            bounds: vec![
                bound("nodes", self.nodes.len()),
                bound("nodes that wait to be judged", self.due.len()),
                bound("drains", self.drains.len()),
                bound("deadlines of drains", self.deadlines.len()),
            ],
        }
    }

    /// I24: suspicion, warm-up, and the watch over those who are well.
    fn of_nodes(&self, now_ms: u64) -> impl Iterator<Item = Transit<&NodeName>> {
        self.nodes.values().map(move |node| {
            let pool = self.pools.get(node.counted_in());
            let brake = pool.map(|pool| pool.brake).unwrap_or_default();
            let late = overstays(&node.record(brake, &self.context, now_ms), now_ms);
            let (state, late_ms) = late.unwrap_or(("is as it should be", 0));
            Transit {
                subject: &node.name,
                state,
                late_ms,
                why: (late_ms > 0).then(|| node.health_reason.clone()),
            }
        })
    }
}

/// I24: a drain that neither ended nor failed with its deadline.
fn of_drain<'a>(node: &'a NodeName, drain: &Drain, now: Timestamp) -> Transit<&'a NodeName> {
    let goes_on = matches!(drain.state, DrainState::Draining | DrainState::Paused);
    let deadline = drain.deadline.filter(|_| goes_on);
    let late = deadline.map(|deadline| now.ms_since(deadline.plus_ms(LATE_MS)));
    Transit {
        subject: node,
        state: "is being drained",
        late_ms: late.unwrap_or(0),
        why: Some(drain.reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant::SWEEP_MS;

    use super::*;

    #[test]
    fn i24_a_drain_fails_with_its_deadline_or_is_late() {
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
            alive: None,
            look: None,
        };
        let ms = |ms: u64| i64::try_from(ms).unwrap();
        let end = 10_000 + ms(LATE_MS + SWEEP_MS);
        let holds = |drain: &Drain, now| mortal([of_drain(&node, drain, at(now))]).holds();
        assert!(holds(&drain, end));
        assert!(!holds(&drain, end + 1));
        drain.state = DrainState::Paused;
        assert!(!holds(&drain, end + 1));
        drain.state = DrainState::Failed;
        assert!(holds(&drain, end + 1));
        drain.deadline = None;
        drain.state = DrainState::Draining;
        assert!(holds(&drain, end + 1));
    }
}
