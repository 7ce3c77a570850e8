//! A simulated rm-scheduler with its three publications.

use hayward_rm_scheduler_api::evidence::{
    Attempt, CLEARINGS, ClearingEntry, FAILURES, FactEntry, MACHINES, MachineEntry, What,
};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_testkit::{Feed, neighbour};
use hayward_vocabulary::{AllocationId, ExitCause, NodeName, UserName, WorkId};

/// A publication does not answer until it has an entry.
pub struct Scheduler {
    pub url: String,
    pub machines: Feed,
    failures: Feed,
    clearings: Feed,
}

impl Scheduler {
    pub async fn start() -> Self {
        let feeds = [Feed::silent(), Feed::silent(), Feed::silent()];
        let [machines, failures, clearings] = feeds;
        let url = neighbour(&[
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

    /// Publishes ready nodes `n0` and so on, in one pool.
    pub fn has_machines(&self, count: usize) {
        let machine = |number| machine(&format!("n{number}"), true);
        self.has(&(0..count).map(machine).collect::<Vec<_>>());
    }

    pub fn has(&self, machines: &[(String, MachineEntry)]) {
        self.machines.put_all(machines);
        self.machines.answer(true);
    }

    /// Publishes these facts, each for its own attempt.
    pub fn report(&self, facts: &[(String, FactEntry)]) {
        self.failures.put_all(facts);
        self.failures.answer(true);
    }

    pub fn clears(&self, key: &str, entry: &ClearingEntry) {
        self.clearings.put(key, entry);
        self.clearings.answer(true);
    }
}

pub fn machine(name: &str, ready: bool) -> (String, MachineEntry) {
    let entry = MachineEntry {
        node: NodeName::new(name).unwrap(),
        pool: "default".into(),
        ready,
        quanta: 8,
    };
    (name.to_owned(), entry)
}

/// A launch that failed because of the node.
pub fn bad_launch(id: &str, node: &str) -> (String, FactEntry) {
    attempt(id, node, What::Failed, Some("runtime_down"))
}

pub fn worked(id: &str, node: &str) -> (String, FactEntry) {
    let (key, mut fact) = attempt(id, node, What::Worked, None);
    let attempt = fact.attempt.as_mut().unwrap();
    (attempt.cause, attempt.ran) = (ExitCause::Success, true);
    (key, fact)
}

pub fn attempt(id: &str, node: &str, what: What, code: Option<&str>) -> (String, FactEntry) {
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

/// An evacuation with these remaining allocations.
pub fn clearing(number: u64, total: u64, workers: &[&str]) -> ClearingEntry {
    let remaining = u64::try_from(workers.len()).unwrap();
    ClearingEntry {
        number,
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
