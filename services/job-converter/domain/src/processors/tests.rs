//! Rules and scenarios of processors. The test acts as the scheduler.

mod endings;
mod failover;
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

fn id(name: &str) -> AllocationId {
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

fn terms(instances: u32, standbys: u32) -> Terms {
    Terms {
        instances,
        standbys,
        host_affinity: true,
        retries: Some(retries(8)),
    }
}

/// A service whose scheduler is the test.
struct ServiceTest {
    all: Processors,
    now: u64,
    allocations: u32,
}

fn placement(occupant: &Occupant) -> Placement<'_> {
    Placement {
        allocation: &occupant.allocation,
        host: &occupant.host,
    }
}

impl ServiceTest {
    fn new(terms: Terms) -> Self {
        let mut all = Processors::new(terms);
        all.begin(time(0));
        Self {
            all,
            now: 0,
            allocations: 0,
        }
    }

    /// Creates a service whose processors all run, slot N on node hN.
    fn running(terms: Terms) -> Self {
        let mut service_test = Self::new(terms);
        for slot in 0..service_test.all.terms().count() {
            service_test.run(slot, &format!("h{slot}"));
        }
        assert!(service_test.all.is_healthy());
        service_test
    }

    fn run(&mut self, slot: usize, on: &str) {
        self.allocations += 1;
        let occupant = Occupant {
            allocation: id(&format!("alc_{}", self.allocations)),
            host: host(on),
            running: true,
            up_since_ms: Some(time(self.now).wall_ms),
            stale: false,
        };
        self.all.set_occupant(slot, Some(occupant), 1);
        self.advance(0);
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
        self.all.tick(TIMEOUTS, time(self.now));
    }

    fn occupant(&self, slot: usize) -> Occupant {
        self.all.get(slot).unwrap().occupant().unwrap().clone()
    }

    fn end_process(&mut self, slot: usize, ending: Ending) {
        let occupant = self.occupant(slot);
        self.all.set_occupant(slot, None, 0);
        let lost = placement(&occupant);
        self.all.on_ended(slot, lost, ending, time(self.now));
        self.advance(0);
    }

    /// Vacates the process, which has not ended.
    fn vacate(&mut self, slot: usize) {
        let occupant = self.occupant(slot);
        self.all.set_occupant(slot, None, 1);
        let lost = placement(&occupant);
        self.all.on_vacating(slot, lost, time(self.now));
        self.advance(0);
    }

    /// Loses the process with its node.
    fn lose_node(&mut self, slot: usize) {
        let occupant = self.occupant(slot);
        self.all.close_host(&occupant.host);
        self.all.set_occupant(slot, None, 0);
        let lost = placement(&occupant);
        self.all.on_vacating(slot, lost, time(self.now));
    }

    fn end_vacated(&mut self, slot: usize) {
        self.all.set_occupant(slot, None, 0);
        self.advance(0);
    }

    /// Returns the requested node, `any`, or `-` for none.
    fn requested_host(&self, slot: usize) -> String {
        let ask = self.all.ask(slot, self.now);
        match ask.host {
            _ if !ask.wanted => "nothing".to_owned(),
            Some(host) => host.to_string(),
            None => "any".to_owned(),
        }
    }

    fn state(&self, slot: usize) -> State {
        self.all.get(slot).unwrap().state()
    }
}
