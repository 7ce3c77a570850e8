//! Rules and scenarios of processors. The test acts as the scheduler: it places, ends and vacates
//! processes. The usual service has host affinity and 8 counted retries. The nodes are h0, h1, ….

mod failover;
mod outcomes;
mod requests;
mod retries;
mod rollout;

use hayward_vocabulary::{AllocationId, Exit, ExitCause, NodeName};

use super::*;

const TIMEOUTS: Timeouts = Timeouts {
    request_ms: 5_000,
    stop_ms: 600_000,
};

fn host(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn allocation_id(name: &str) -> AllocationId {
    AllocationId::new(name).unwrap()
}

fn time(ms: u64) -> Now {
    Now {
        wall_ms: 1_000_000 + i64::try_from(ms).unwrap(),
        monotonic_ms: ms,
    }
}

fn retries(count: i32) -> Retries {
    Retries {
        count,
        window_ms: 300_000,
        last_delay_ms: 360_000,
        fail_service: true,
    }
}

fn settings(instances: u32, standbys: u32) -> ProcessorSettings {
    ProcessorSettings {
        instances,
        standbys,
        host_affinity: true,
        retries: Some(retries(8)),
    }
}

/// A service whose scheduler is the test.
struct ServiceTest {
    processors: Processors,
    now_ms: u64,
    allocations: u32,
}

fn placement(occupant: &Occupant) -> Placement<'_> {
    Placement {
        allocation: &occupant.allocation,
        host: &occupant.host,
    }
}

impl ServiceTest {
    fn new(settings: ProcessorSettings) -> Self {
        let mut processors = Processors::new(settings);
        processors.open_missing_requests(time(0));
        Self {
            processors,
            now_ms: 0,
            allocations: 0,
        }
    }

    /// Creates a service whose processors all run, slot N on node hN.
    fn running(settings: ProcessorSettings) -> Self {
        let mut service_test = Self::new(settings);
        for slot in 0..service_test.processors.settings().count() {
            service_test.run(slot, &format!("h{slot}"));
        }
        assert!(service_test.processors.is_healthy());
        service_test
    }

    /// Places a new process on a node. It runs at once.
    fn run(&mut self, slot: usize, on: &str) {
        self.allocations += 1;
        let occupant = Occupant {
            allocation: allocation_id(&format!("alc_{}", self.allocations)),
            host: host(on),
            running: true,
            up_since_ms: Some(time(self.now_ms).wall_ms),
            stale: false,
        };
        self.processors.set_occupant(slot, Some(occupant), 1);
        self.advance(0);
    }

    /// Lets time pass.
    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.processors.tick(TIMEOUTS, time(self.now_ms));
    }

    fn occupant(&self, slot: usize) -> Occupant {
        self.processors
            .get(slot)
            .unwrap()
            .occupant()
            .unwrap()
            .clone()
    }

    /// Ends the process of a slot, which was not vacated.
    fn end_process(&mut self, slot: usize, outcome: ProcessOutcome) {
        let occupant = self.occupant(slot);
        self.processors.set_occupant(slot, None, 0);
        let lost = placement(&occupant);
        self.processors
            .on_ended(slot, lost, outcome, time(self.now_ms));
        self.advance(0);
    }

    /// Vacates the process, which has not ended.
    fn vacate(&mut self, slot: usize) {
        let occupant = self.occupant(slot);
        self.processors.set_occupant(slot, None, 1);
        let lost = placement(&occupant);
        self.processors.on_vacating(slot, lost, time(self.now_ms));
        self.advance(0);
    }

    /// Loses the process with its node.
    fn lose_node(&mut self, slot: usize) {
        let occupant = self.occupant(slot);
        self.processors.close_host(&occupant.host);
        self.processors.set_occupant(slot, None, 0);
        let lost = placement(&occupant);
        self.processors.on_vacating(slot, lost, time(self.now_ms));
    }

    /// Ends the vacated process of a slot.
    fn end_vacated(&mut self, slot: usize) {
        self.processors.set_occupant(slot, None, 0);
        self.advance(0);
    }

    /// Returns the requested node, `any` for any node, or `nothing` if no process is requested.
    fn requested_host(&self, slot: usize) -> String {
        let demand = self.processors.demand(slot, self.now_ms);
        match demand.host {
            _ if !demand.wanted => "nothing".to_owned(),
            Some(host) => host.to_string(),
            None => "any".to_owned(),
        }
    }

    fn state(&self, slot: usize) -> State {
        self.processors.get(slot).unwrap().state()
    }
}
