//! Idle workers on nodes that are blocked without evacuation.
//!
//! Such a node keeps its workers, because only the owner knows which are busy. Busy workers stay
//! and count. An idle one does not count, so another worker is requested, and the owner gives the
//! idle one back later (WP-4).

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::commands::{Caller, Refusal};
use crate::owner_events::EventKind;
use crate::pool::Pool;
use crate::time::Now;
use crate::worker::State;

/// Result of a report of idle workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleReport {
    /// Idle workers on a blocked node, which do not count.
    pub idle_blocked: Vec<AllocationId>,
    /// Number of workers that this report requested.
    pub requested_now: u64,
}

impl Pool {
    /// Applies the owner's list of idle workers. All other workers are busy.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn report_idle(
        &mut self,
        from: Caller,
        idle: &BTreeSet<AllocationId>,
        now: Now,
    ) -> Result<IdleReport, Refusal> {
        self.fence(from, now)?;
        let before = self.idle_blocked();
        for (id, worker) in &mut self.workers {
            worker.idle = worker.state == State::Started && idle.contains(id);
        }
        self.report_idle_blocked(&before);
        Ok(IdleReport {
            requested_now: self.request_missing(now),
            idle_blocked: self.idle_blocked().into_iter().collect(),
        })
    }

    /// Sets the nodes that are blocked without immediate evacuation.
    pub fn set_blocked_nodes(&mut self, nodes: BTreeSet<NodeName>, now: Now) {
        let before = self.idle_blocked();
        for worker in self.workers.values_mut() {
            worker.is_node_blocked = worker
                .node
                .as_ref()
                .is_some_and(|node| nodes.contains(node));
        }
        self.blocked_nodes = nodes;
        self.report_idle_blocked(&before);
        self.request_missing(now);
    }

    pub(crate) fn idle_blocked(&self) -> BTreeSet<AllocationId> {
        let blocked = self.workers.iter().filter(|(_, it)| it.is_idle_blocked());
        blocked.map(|(id, _)| id.clone()).collect()
    }

    /// Records an event for each worker that has become idle and blocked since `before`. Returns
    /// true if there was any.
    pub(crate) fn report_idle_blocked(&mut self, before: &BTreeSet<AllocationId>) -> bool {
        let now = self.idle_blocked();
        let mut has_event = false;
        for id in now.difference(before) {
            has_event = true;
            let text =
                "the worker is idle on a blocked node and does not count; it may be given back";
            self.record_event(EventKind::Info, Some(id.clone()), text);
        }
        has_event
    }
}

#[cfg(test)]
mod tests {
    use crate::test_platform::{TestPlatform, id, ids};
    use crate::{Ending, EventKind, PlatformEvent, SizeRequest, State};

    fn block_nodes(platform: &mut TestPlatform, nodes: &[&str]) {
        let nodes = nodes.iter().map(|node| node.parse().unwrap()).collect();
        platform.pool.set_blocked_nodes(nodes, platform.now);
        platform.take_events();
    }

    fn report_idle(platform: &mut TestPlatform, workers: &[u64]) -> super::IdleReport {
        let (owner, now) = (platform.owner(), platform.now);
        let report = platform
            .pool
            .report_idle(owner, &ids(workers), now)
            .unwrap();
        platform.take_events();
        report
    }

    #[test]
    fn a_blocked_node_keeps_its_workers_and_only_busy_ones_count() {
        let mut platform = TestPlatform::running(3, 3);
        block_nodes(&mut platform, &["n1"]);
        assert_eq!(platform.counts(), (0, 0, 3), "no worker was reported idle");
        let report = report_idle(&mut platform, &[1, 9]);
        assert_eq!(
            (report.idle_blocked, report.requested_now),
            (vec![id(1)], 1)
        );
        assert_eq!(platform.counts(), (1, 0, 3));
        assert_eq!(
            report_idle(&mut platform, &[1, 9]).requested_now,
            0,
            "a repeated report requests no worker"
        );
        let events = platform
            .events
            .iter()
            .filter(|event| event.worker == Some(id(1)));
        assert_eq!(
            events.map(|event| event.kind).collect::<Vec<_>>(),
            [EventKind::Info]
        );
        // Worker 1 stays wanted until the owner gives it back (WP-4).
        assert_eq!(platform.pool.wanted_numbers().len(), 4);
        platform.remove(1).unwrap();
        platform.end(1, Ending::Intended);
        assert_eq!(
            platform.counts(),
            (1, 0, 2),
            "the end of worker 1 requests no second replacement"
        );
        assert_eq!(platform.pool.failed_so_far, 0);
    }

    #[test]
    fn a_worker_that_registers_on_a_blocked_node_is_idle() {
        let mut platform = TestPlatform::running(2, 1);
        platform.grant(2);
        block_nodes(&mut platform, &["n1"]);
        assert_eq!(platform.start(2), Ok(true), "the pool knows it");
        assert_eq!(
            platform.counts(),
            (1, 0, 2),
            "the idle worker does not count"
        );
        // The owner decides: a worker with new work is busy.
        report_idle(&mut platform, &[]);
        assert_eq!(platform.pool.counts().available(), 3);
        assert_eq!(platform.state(2), Some(State::Started));
    }

    #[test]
    fn a_new_leader_treats_workers_as_busy() {
        let mut platform = TestPlatform::running(2, 2);
        block_nodes(&mut platform, &["n1"]);
        platform.restart();
        platform.connect(2, &[1, 2]).unwrap();
        assert_eq!(platform.counts(), (0, 0, 2));
    }

    #[test]
    fn unblocking_a_node_releases_no_worker() {
        let mut platform = TestPlatform::running(2, 2);
        report_idle(&mut platform, &[1]);
        block_nodes(&mut platform, &["n1"]);
        assert_eq!(platform.counts(), (1, 0, 2));
        let number = platform.pool.requested.first().copied().unwrap();
        let node = "n2".parse().unwrap();
        platform.apply(PlatformEvent::Granted {
            id: id(3),
            number,
            node,
        });
        platform.start(3).unwrap();
        block_nodes(&mut platform, &[]);
        assert_eq!(
            platform.counts(),
            (0, 0, 3),
            "no worker is released, one more than the size"
        );
        assert_eq!(platform.pool.wanted_numbers().len(), 3);
    }

    #[test]
    fn an_uncounted_idle_worker_is_surplus_at_any_size() {
        let mut platform = TestPlatform::running(2, 2);
        report_idle(&mut platform, &[1]);
        block_nodes(&mut platform, &["n1"]);
        let request = SizeRequest {
            size: 2,
            release: true,
            unwanted: vec![id(1)],
            if_version: None,
        };
        assert_eq!(platform.resize(&request).unwrap().released, [id(1)]);
        assert_eq!(platform.counts(), (1, 0, 1));
    }
}
