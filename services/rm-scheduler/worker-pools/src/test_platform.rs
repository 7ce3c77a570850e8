//! Test fixture: a worker pool, a platform that grants workers on demand, and a clock.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::{
    Caller, Connect, ConnectResult, Counts, Ending, EventKind, Mode, Now, OwnerEvent,
    PlatformEvent, Pool, Refusal, ResizeResult, Rules, SizeRequest, State,
};

pub fn id(number: u64) -> AllocationId {
    format!("w{number}").parse().unwrap()
}

pub fn ids(numbers: &[u64]) -> BTreeSet<AllocationId> {
    numbers.iter().copied().map(id).collect()
}

/// A worker pool with its owner, its platform and a clock.
pub struct TestPlatform {
    pub pool: Pool,
    pub now: Now,
    /// Epoch and connection of the current owner.
    pub epoch: u64,
    pub connection: u64,
    /// All events so far.
    pub events: Vec<OwnerEvent>,
}

impl TestPlatform {
    pub fn with_size(size: u64) -> Self {
        Self::new(Mode::Managed, size, None, Rules::default())
    }

    pub fn new(mode: Mode, size: u64, max_failed: Option<i64>, rules: Rules) -> Self {
        Self {
            pool: Pool::new(mode, size, max_failed, rules),
            now: Now {
                monotonic_ms: 1_000,
                unix_ms: 1_800_000_000_000,
            },
            epoch: 1,
            connection: 0,
            events: Vec::new(),
        }
    }

    /// Creates a connected pool of this size with the started workers `w1`, `w2` and so on.
    pub fn running(size: u64, started: u64) -> Self {
        let mut platform = Self::with_size(size);
        platform.connect(1, &[]).unwrap();
        for number in 1..=started {
            platform.grant(number);
            platform.start(number).unwrap();
        }
        platform
    }

    pub fn owner(&self) -> Caller {
        Caller::Owner {
            epoch: self.epoch,
            connection: self.connection,
        }
    }

    pub fn connect(&mut self, epoch: u64, workers: &[u64]) -> Result<ConnectResult, Refusal> {
        let request = Connect {
            epoch,
            address: "http://owner".into(),
            workers: ids(workers),
            connection: None,
        };
        let result = self.pool.connect(&request, self.now)?;
        (self.epoch, self.connection) = (epoch, result.connection);
        self.take_events();
        Ok(result)
    }

    pub fn set_size(&mut self, size: u64) -> Result<ResizeResult, Refusal> {
        self.resize(&SizeRequest {
            size,
            ..SizeRequest::default()
        })
    }

    pub fn resize(&mut self, request: &SizeRequest) -> Result<ResizeResult, Refusal> {
        self.pool.set_size(self.owner(), request, self.now)
    }

    /// Reports a worker as the owner does. Returns true if the pool knows the worker.
    pub fn start(&mut self, worker: u64) -> Result<bool, Refusal> {
        let known = self
            .pool
            .register_worker(self.owner(), &id(worker), self.now);
        self.take_events();
        known
    }

    pub fn remove(&mut self, worker: u64) -> Result<(), Refusal> {
        self.pool.remove(self.owner(), &id(worker), self.now)
    }

    /// Grants worker `w<worker>` for the oldest request. Without a request the grant is surplus.
    pub fn grant(&mut self, worker: u64) {
        let number = self.pool.requested.first().copied().unwrap_or(worker);
        self.apply(PlatformEvent::Granted {
            id: id(worker),
            number,
            node: NodeName::new("n1").unwrap(),
        });
    }

    /// Ends a worker with this cause.
    pub fn end(&mut self, worker: u64, ending: Ending) {
        self.apply(PlatformEvent::Ended {
            id: id(worker),
            ending,
            text: "it ended".into(),
        });
    }

    pub fn apply(&mut self, event: PlatformEvent) {
        self.pool.apply_events([event], self.now);
        self.take_events();
    }

    /// Advances the clock and runs all due ticks. The owner stays in contact.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.monotonic_ms + ms;
        while self.now.monotonic_ms < end {
            if self.pool.is_bound() {
                self.pool.owner.last_call_ms = self.now.monotonic_ms;
            }
            let next = self.pool.next_tick_ms().unwrap_or(end);
            let tick_ms = next.clamp(self.now.monotonic_ms + 1, end);
            let step = tick_ms - self.now.monotonic_ms;
            self.now.monotonic_ms = tick_ms;
            self.now.unix_ms += i64::try_from(step).unwrap();
            if self.pool.is_bound() {
                self.pool.owner.last_call_ms = tick_ms;
            }
            self.pool.tick(self.now);
        }
        self.take_events();
    }

    /// Restarts the scheduler. All allocated workers survive.
    pub fn restart(&mut self) {
        let is_own = |state| matches!(state, State::Launching | State::Started | State::Returning);
        let own = self
            .pool
            .workers
            .iter()
            .filter(|(_, worker)| is_own(worker.state));
        let own = own.map(|(id, _)| id.clone()).collect();
        self.pool.recover(&own, self.now);
        self.take_events();
    }

    /// Numbers of requested, launching and started workers.
    pub fn counts(&self) -> (u64, u64, u64) {
        let Counts {
            requested,
            launching,
            started,
            ..
        } = self.pool.counts();
        (requested, launching, started)
    }

    pub fn state(&self, worker: u64) -> Option<State> {
        self.pool
            .workers
            .get(&id(worker))
            .map(|worker| worker.state)
    }

    /// Workers reported as removed, in order.
    pub fn removed(&self) -> Vec<AllocationId> {
        let removed = self
            .events
            .iter()
            .filter(|event| event.kind == EventKind::ResourceRemoved);
        removed.filter_map(|event| event.worker.clone()).collect()
    }

    pub fn take_events(&mut self) {
        self.events.extend(self.pool.take_events());
    }
}
