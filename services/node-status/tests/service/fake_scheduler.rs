//! A fake rm-scheduler. It publishes the progress of drains, and the pools of nodes by policy.

use hayward_rm_scheduler_api::node_publications::{
    Blocker, BlockerReason, CLEARINGS, ClearingEntry, MACHINES, MachineEntry,
};
use hayward_testkit::{Feed, start_neighbour};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};

pub struct FakeScheduler {
    pub url: String,
    clearings: Feed,
    machines: Feed,
}

impl FakeScheduler {
    pub async fn start() -> Self {
        let (clearings, machines) = (Feed::default(), Feed::default());
        let url = start_neighbour(&[(CLEARINGS, &clearings), (MACHINES, &machines)]).await;
        Self {
            url,
            clearings,
            machines,
        }
    }

    /// Publishes the progress of drain `number` of a node.
    pub fn publish_progress(
        &self,
        node: &str,
        number: u64,
        remaining: u64,
        blockers: Vec<Blocker>,
    ) {
        let entry = ClearingEntry {
            number,
            revision: 1,
            since: Timestamp::from_unix_ms(1),
            total: 3,
            moved: 3 - remaining.min(3),
            failed: 0,
            remaining,
            blockers,
            workers: Vec::new(),
        };
        self.clearings.put(&format!("drain/{node}"), &entry);
    }

    pub fn withdraw_progress(&self, node: &str) {
        self.clearings.remove(&format!("drain/{node}"));
    }

    /// Publishes the pool of a node by policy.
    pub fn publish_pool(&self, node: &str, pool: &str) {
        let entry = MachineEntry {
            node: NodeName::new(node).unwrap(),
            pool: pool.to_owned(),
            ready: true,
            quanta: 1,
        };
        self.machines.put(node, &entry);
    }
}

/// Creates a blocker of a drain: a reservation that stays on its node.
pub fn reservation(work: &str, user: &str) -> Blocker {
    Blocker {
        allocation: AllocationId::new(format!("alc_{work}")).unwrap(),
        work: WorkId::new(work).unwrap(),
        user: UserName::new(user).unwrap(),
        why: BlockerReason::Reservation,
        detail: "a reservation does not move".into(),
    }
}
