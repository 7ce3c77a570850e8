//! A pool in a world for tests: a platform that grants when told to, and a clock.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::{
    Connect, Connected, Counts, Ending, Kind, Mode, News, Now, Pool, Refusal, Resized, Rules,
    Speaker, State, Told, Wish,
};

pub fn id(number: u64) -> AllocationId {
    format!("w{number}").parse().unwrap()
}

pub fn ids(numbers: &[u64]) -> BTreeSet<AllocationId> {
    numbers.iter().copied().map(id).collect()
}

pub struct Trial {
    pub pool: Pool,
    pub now: Now,
    pub epoch: u64,
    pub connection: u64,
    /// Everything told so far.
    pub news: Vec<News>,
}

impl Trial {
    pub fn of(size: u64) -> Self {
        Self::with(Mode::Managed, size, None, Rules::default())
    }

    pub fn with(mode: Mode, size: u64, max_failed: Option<i64>, rules: Rules) -> Self {
        Self {
            pool: Pool::new(mode, size, max_failed, rules),
            now: Now {
                monotonic_ms: 1_000,
                unix_ms: 1_800_000_000_000,
            },
            epoch: 1,
            connection: 0,
            news: Vec::new(),
        }
    }

    /// Connected, with this many workers started: `w1` …
    pub fn running(size: u64, started: u64) -> Self {
        let mut trial = Self::of(size);
        trial.connect(1, &[]).unwrap();
        for number in 1..=started {
            trial.grant(number);
            trial.start(number).unwrap();
        }
        trial
    }

    pub fn owner(&self) -> Speaker {
        Speaker::Owner {
            epoch: self.epoch,
            connection: self.connection,
        }
    }

    pub fn connect(&mut self, epoch: u64, workers: &[u64]) -> Result<Connected, Refusal> {
        let asked = Connect {
            epoch,
            address: "http://owner".into(),
            workers: ids(workers),
            connection: None,
        };
        let answer = self.pool.connect(&asked, self.now)?;
        (self.epoch, self.connection) = (epoch, answer.connection);
        self.hear();
        Ok(answer)
    }

    pub fn size(&mut self, size: u64) -> Result<Resized, Refusal> {
        self.resize(&Wish {
            size,
            ..Wish::default()
        })
    }

    pub fn resize(&mut self, wish: &Wish) -> Result<Resized, Refusal> {
        self.pool.set_size(self.owner(), wish, self.now)
    }

    pub fn start(&mut self, worker: u64) -> Result<bool, Refusal> {
        let known = self.pool.started(self.owner(), &id(worker), self.now);
        self.hear();
        known
    }

    pub fn remove(&mut self, worker: u64) -> Result<(), Refusal> {
        self.pool.remove(self.owner(), &id(worker), self.now)
    }

    /// Grants the oldest request, or one more than were asked for, to worker `w<worker>`.
    pub fn grant(&mut self, worker: u64) {
        let number = self.pool.requested.first().copied().unwrap_or(worker);
        self.told(Told::Granted {
            id: id(worker),
            number,
            node: NodeName::new("n1").unwrap(),
        });
    }

    pub fn end(&mut self, worker: u64, ending: Ending) {
        self.told(Told::Ended {
            id: id(worker),
            ending,
            text: "it ended".into(),
        });
    }

    pub fn told(&mut self, told: Told) {
        self.pool.told([told], self.now);
        self.hear();
    }

    /// Lets time pass, ticking as often as the pool asks for; the owner stays in touch.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.monotonic_ms + ms;
        while self.now.monotonic_ms < end {
            if self.pool.bound() {
                self.pool.owner.heard_ms = self.now.monotonic_ms;
            }
            let next = self.pool.next_tick_ms().unwrap_or(end);
            let to = next.clamp(self.now.monotonic_ms + 1, end);
            let step = to - self.now.monotonic_ms;
            self.now.monotonic_ms = to;
            self.now.unix_ms += i64::try_from(step).unwrap();
            if self.pool.bound() {
                self.pool.owner.heard_ms = to;
            }
            self.pool.tick(self.now);
        }
        self.hear();
    }

    pub fn restart(&mut self) {
        let ours = |state| matches!(state, State::Launching | State::Started | State::Returning);
        let held = self
            .pool
            .workers
            .iter()
            .filter(|(_, worker)| ours(worker.state));
        let held = held.map(|(id, _)| id.clone()).collect();
        self.pool.restarted(&held, self.now);
        self.hear();
    }

    /// Requested, launching, started.
    pub fn numbers(&self) -> (u64, u64, u64) {
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

    /// Workers that were told as removed, in order.
    pub fn removed(&self) -> Vec<AllocationId> {
        let removed = self
            .news
            .iter()
            .filter(|news| news.kind == Kind::ResourceRemoved);
        removed.filter_map(|news| news.worker.clone()).collect()
    }

    pub fn hear(&mut self) {
        self.news.extend(self.pool.take_news());
    }
}
