//! Idle workers, and nodes that are blocked without being emptied (section 22, blocklist).
//!
//! Such a node keeps its workers, because only the owner knows which of them matter: busy ones stay
//! and stay counted. An idle one is not counted, so another is asked for elsewhere, and the owner
//! gives the idle one back when it likes. Nothing is released here (W4).

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::commands::{Refusal, Speaker};
use crate::owner_events::Kind;
use crate::pool::Pool;
use crate::time::Now;
use crate::worker::State;

/// The answer to a report of idle workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idleness {
    /// Idle on a marked node: not counted.
    pub idle_blocked: Vec<AllocationId>,
    pub requested_now: u64,
}

impl Pool {
    /// The owner says which of its workers are idle; all others are busy.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn report_idle(
        &mut self,
        from: Speaker,
        idle: &BTreeSet<AllocationId>,
        now: Now,
    ) -> Result<Idleness, Refusal> {
        self.fence(from, now)?;
        let before = self.idle_blocked();
        for (id, worker) in &mut self.workers {
            worker.idle = worker.state == State::Started && idle.contains(id);
        }
        self.tell_of_idle(&before);
        Ok(Idleness {
            requested_now: self.request_missing(now),
            idle_blocked: self.idle_blocked().into_iter().collect(),
        })
    }

    /// These of its nodes are blocked now, and are not emptied at once.
    pub fn nodes_are_marked(&mut self, nodes: BTreeSet<NodeName>, now: Now) {
        let before = self.idle_blocked();
        for worker in self.workers.values_mut() {
            worker.marked = worker
                .node
                .as_ref()
                .is_some_and(|node| nodes.contains(node));
        }
        self.marked = nodes;
        self.tell_of_idle(&before);
        self.request_missing(now);
    }

    pub(crate) fn idle_blocked(&self) -> BTreeSet<AllocationId> {
        let blocked = self.workers.iter().filter(|(_, it)| it.is_idle_blocked());
        blocked.map(|(id, _)| id.clone()).collect()
    }

    /// True when there was any to tell of.
    pub(crate) fn tell_of_idle(&mut self, before: &BTreeSet<AllocationId>) -> bool {
        let now = self.idle_blocked();
        let mut told = false;
        for id in now.difference(before) {
            told = true;
            let text =
                "it is idle on a node that is blocked, and not counted: it may be given back";
            self.tell(Kind::Info, Some(id.clone()), text);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use crate::test_platform::{Trial, id, ids};
    use crate::{Ending, Kind, State, Told, Wish};

    fn mark(trial: &mut Trial, nodes: &[&str]) {
        let nodes = nodes.iter().map(|node| node.parse().unwrap()).collect();
        trial.pool.nodes_are_marked(nodes, trial.now);
        trial.hear();
    }

    fn idle(trial: &mut Trial, workers: &[u64]) -> super::Idleness {
        let (owner, now) = (trial.owner(), trial.now);
        let told = trial.pool.report_idle(owner, &ids(workers), now).unwrap();
        trial.hear();
        told
    }

    #[test]
    fn section_22_a_marked_node_keeps_its_workers_and_only_busy_ones_count() {
        let mut trial = Trial::running(3, 3);
        mark(&mut trial, &["n1"]);
        assert_eq!(trial.numbers(), (0, 0, 3), "nobody said that any is idle");
        let told = idle(&mut trial, &[1, 9]);
        assert_eq!((told.idle_blocked, told.requested_now), (vec![id(1)], 1));
        assert_eq!(trial.numbers(), (1, 0, 3));
        assert_eq!(idle(&mut trial, &[1, 9]).requested_now, 0, "said again");
        let said = trial.news.iter().filter(|news| news.worker == Some(id(1)));
        assert_eq!(said.map(|news| news.kind).collect::<Vec<_>>(), [Kind::Info]);
        // W4: it stays wanted until the owner gives it back.
        assert_eq!(trial.pool.wants().len(), 4);
        trial.remove(1).unwrap();
        trial.end(1, Ending::Intended);
        assert_eq!(trial.numbers(), (1, 0, 2), "one replacement, and not two");
        assert_eq!(trial.pool.failed_so_far, 0);
    }

    #[test]
    fn section_22_a_worker_that_registers_from_a_node_blocked_meanwhile_is_idle() {
        let mut trial = Trial::running(2, 1);
        trial.grant(2);
        mark(&mut trial, &["n1"]);
        assert_eq!(trial.start(2), Ok(true), "accepted");
        assert_eq!(trial.numbers(), (1, 0, 2), "and not counted");
        // The owner's word is the truth: what it gave work to is busy.
        idle(&mut trial, &[]);
        assert_eq!(trial.pool.counts().available(), 3);
        assert_eq!(trial.state(2), Some(State::Started));
    }

    #[test]
    fn section_22_a_new_leader_takes_no_busy_worker_for_idle() {
        let mut trial = Trial::running(2, 2);
        mark(&mut trial, &["n1"]);
        trial.restart();
        trial.connect(2, &[1, 2]).unwrap();
        assert_eq!(trial.numbers(), (0, 0, 2));
    }

    #[test]
    fn section_22_unblocking_may_leave_surplus_and_releases_nobody() {
        let mut trial = Trial::running(2, 2);
        idle(&mut trial, &[1]);
        mark(&mut trial, &["n1"]);
        assert_eq!(trial.numbers(), (1, 0, 2));
        let number = trial.pool.requested.first().copied().unwrap();
        let node = "n2".parse().unwrap();
        trial.told(Told::Granted {
            id: id(3),
            number,
            node,
        });
        trial.start(3).unwrap();
        mark(&mut trial, &[]);
        assert_eq!(trial.numbers(), (0, 0, 3), "one more than the size, W4");
        assert_eq!(trial.pool.wants().len(), 3);
    }

    #[test]
    fn section_15_4_an_idle_worker_that_is_not_counted_is_over_at_any_size() {
        let mut trial = Trial::running(2, 2);
        idle(&mut trial, &[1]);
        mark(&mut trial, &["n1"]);
        let wish = Wish {
            size: 2,
            release: true,
            unwanted: vec![id(1)],
            if_version: None,
        };
        assert_eq!(trial.resize(&wish).unwrap().released, [id(1)]);
        assert_eq!(trial.numbers(), (1, 0, 1));
    }
}
