//! A fake rm-scheduler with its three publications.

use hayward_rm_scheduler_api::node_publications::{
    Attempt, CLEARINGS, ClearingEntry, FAILURES, FactEntry, FactKind, MACHINES, MachineEntry,
};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_testkit::{Feed, start_neighbour};
use hayward_vocabulary::{AllocationId, ExitCause, NodeName, UserName, WorkId};

/// A fake rm-scheduler. Each of its publications does not respond until it has an entry.
pub struct FakeScheduler {
    pub url: String,
    pub machines: Feed,
    failures: Feed,
    clearings: Feed,
}

impl FakeScheduler {
    pub async fn start() -> Self {
        let feeds = [
            Feed::unresponsive(),
            Feed::unresponsive(),
            Feed::unresponsive(),
        ];
        let [machines, failures, clearings] = feeds;
        let url = start_neighbour(&[
            (MACHINES, &machines),
            (FAILURES, &failures),
            (CLEARINGS, &clearings),
        ])
        .await;
        Self {
            url,
            machines,
            failures,
            clearings,
        }
    }

    /// Publishes the ready nodes `n0`, `n1` and so on in one pool.
    pub fn publish_ready_nodes(&self, count: usize) {
        let node = |number| node_entry(&format!("n{number}"), true);
        self.publish_nodes(&(0..count).map(node).collect::<Vec<_>>());
    }

    pub fn publish_nodes(&self, nodes: &[(String, MachineEntry)]) {
        self.machines.put_all(nodes);
        self.machines.set_responding(true);
    }

    pub fn publish_facts(&self, facts: &[(String, FactEntry)]) {
        self.failures.put_all(facts);
        self.failures.set_responding(true);
    }

    pub fn publish_evacuation(&self, key: &str, entry: &ClearingEntry) {
        self.clearings.put(key, entry);
        self.clearings.set_responding(true);
    }
}

/// Creates the entry of a node.
pub fn node_entry(name: &str, ready: bool) -> (String, MachineEntry) {
    let entry = MachineEntry {
        node: NodeName::new(name).unwrap(),
        pool: "default".into(),
        ready,
        quanta: 8,
    };
    (name.to_owned(), entry)
}

/// Creates the fact of a launch that failed because of the node.
pub fn failed_launch(id: &str, node: &str) -> (String, FactEntry) {
    attempt_fact(id, node, FactKind::Failed, Some("runtime_down"))
}

/// Creates the fact of a successful attempt.
pub fn succeeded_attempt(id: &str, node: &str) -> (String, FactEntry) {
    let (key, mut fact) = attempt_fact(id, node, FactKind::Worked, None);
    let attempt = fact.attempt.as_mut().unwrap();
    attempt.cause = ExitCause::Success;
    attempt.ran = true;
    (key, fact)
}

/// Creates a fact about an attempt on a node.
pub fn attempt_fact(
    id: &str,
    node: &str,
    what: FactKind,
    code: Option<&str>,
) -> (String, FactEntry) {
    let fact = FactEntry {
        node: NodeName::new(node).unwrap(),
        what,
        at: SystemClock.now(),
        attempt: Some(Attempt {
            allocation: AllocationId::new(id).unwrap(),
            work: WorkId::new(format!("job_{id}")).unwrap(),
            user: UserName::new("ann").unwrap(),
            cause: ExitCause::LaunchFailed,
            cause_code: code.map(str::to_owned),
            message: None,
            ran: false,
            held_ms: 1_500,
        }),
    };
    (id.to_owned(), fact)
}

/// Creates the progress of the evacuation that belongs to the item with this `removal_no`. The
/// workers are the remaining allocations.
pub fn evacuation_progress(removal_no: u64, total: u64, workers: &[&str]) -> ClearingEntry {
    let remaining = u64::try_from(workers.len()).unwrap();
    ClearingEntry {
        number: removal_no,
        revision: 77,
        since: SystemClock.now(),
        total,
        moved: total - remaining,
        failed: 0,
        remaining,
        blockers: Vec::new(),
        workers: workers
            .iter()
            .map(|id| AllocationId::new(*id).unwrap())
            .collect(),
    }
}
