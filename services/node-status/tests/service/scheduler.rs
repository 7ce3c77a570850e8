//! A simulated rm-scheduler: progress of drains, and pools of the policy.

use hayward_rm_scheduler_api::evidence::{
    Blocker, BlockerReason, CLEARINGS, ClearingEntry, MACHINES, MachineEntry,
};
use hayward_testkit::{Feed, neighbour};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};

pub struct Scheduler {
    pub url: String,
    clearings: Feed,
    machines: Feed,
}

impl Scheduler {
    pub async fn start() -> Self {
        let (clearings, machines) = (Feed::default(), Feed::default());
        let url = neighbour(&[(CLEARINGS, &clearings), (MACHINES, &machines)]).await;
        Self {
            url,
            clearings,
            machines,
        }
    }

    /// Publishes the progress of drain `number` of a node.
    pub fn report(&self, node: &str, number: u64, remaining: u64, blockers: Vec<Blocker>) {
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

    pub fn withdraws(&self, node: &str) {
        self.clearings.remove(&format!("drain/{node}"));
    }

    /// Publishes the policy pool of a node.
    pub fn places(&self, node: &str, pool: &str) {
        let entry = MachineEntry {
            node: NodeName::new(node).unwrap(),
            pool: pool.to_owned(),
            ready: true,
            quanta: 1,
        };
        self.machines.put(node, &entry);
    }
}

pub fn reserved(work: &str, user: &str) -> Blocker {
    Blocker {
        allocation: AllocationId::new(format!("alc_{work}")).unwrap(),
        work: WorkId::new(work).unwrap(),
        user: UserName::new(user).unwrap(),
        why: BlockerReason::Reservation,
        detail: "is never taken away".into(),
    }
}
