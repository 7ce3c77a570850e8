//! W1–W8 over random lives of a pool.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;
use proptest::prelude::*;

use crate::test_platform::{Trial, id};
use crate::{
    Connect, Ending, Final, Kind, Mode, Refusal, Rules, Speaker, State, Told, Wish, Worker,
};

#[derive(Debug, Clone)]
enum Step {
    Connect { epoch_up: bool, leave_out: bool },
    Leave,
    Size { size: u64, release: bool },
    Started(u64),
    Remove(u64),
    Check,
    Grant,
    Leaving(u64),
    Mark(bool),
    Idle(u64),
    End(u64, Ending),
    Restart,
    Pass(u64),
    Old(u64),
    Stop,
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Died),
        1 => Just(Ending::Refused),
        1 => Just(Ending::Intended),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), any::<bool>())
            .prop_map(|(epoch_up, leave_out)| Step::Connect { epoch_up, leave_out }),
        1 => Just(Step::Leave),
        4 => (0..6_u64, any::<bool>()).prop_map(|(size, release)| Step::Size { size, release }),
        10 => (0..40_u64).prop_map(Step::Started),
        4 => (0..40_u64).prop_map(Step::Remove),
        2 => Just(Step::Check),
        14 => Just(Step::Grant),
        2 => (0..40_u64).prop_map(Step::Leaving),
        2 => any::<bool>().prop_map(Step::Mark),
        3 => (0..40_u64).prop_map(Step::Idle),
        6 => (0..40_u64, ending()).prop_map(|(worker, ending)| Step::End(worker, ending)),
        1 => Just(Step::Restart),
        3 => (1..400_000_u64).prop_map(Step::Pass),
        3 => (0..40_u64).prop_map(Step::Old),
        1 => Just(Step::Stop),
    ]
}

/// The world around a pool, and what it has to hold its word on.
struct Watched {
    trial: Trial,
    granted: u64,
    /// What the owner ever reported.
    reported: BTreeSet<AllocationId>,
    /// Those that ended without an order of the owner, after they were reported.
    unordered: BTreeSet<AllocationId>,
    lowered: bool,
}

impl Watched {
    fn new(size: u64, max_failed: Option<i64>) -> Self {
        let trial = Trial::with(Mode::Managed, size, max_failed, Rules::default());
        Self {
            trial,
            granted: 0,
            reported: BTreeSet::new(),
            unordered: BTreeSet::new(),
            lowered: false,
        }
    }

    /// One of the workers there are, or a stranger.
    fn pick(&self, at: u64) -> AllocationId {
        let there = self.trial.pool.workers.len();
        let at = usize::try_from(at).unwrap();
        let picked = self.trial.pool.workers.keys().nth(at);
        picked
            .cloned()
            .unwrap_or_else(|| id(900 + (at - there.min(at)) as u64))
    }

    fn take(&mut self, step: &Step) {
        let now = self.trial.now;
        let owner = self.trial.owner();
        match step {
            Step::Connect {
                epoch_up,
                leave_out,
            } => self.connect(*epoch_up, *leave_out),
            Step::Leave => drop(self.trial.pool.leave(self.trial.epoch)),
            Step::Size { size, release } => {
                let wish = Wish {
                    size: *size,
                    release: *release,
                    ..Wish::default()
                };
                self.lowered |= *size < self.trial.pool.designated;
                drop(self.trial.pool.set_size(owner, &wish, now));
            }
            Step::Started(at) => {
                let worker = self.pick(*at);
                if self.trial.pool.started(owner, &worker, now).is_ok() {
                    self.reported.insert(worker);
                }
            }
            Step::Remove(at) => {
                let worker = self.pick(*at);
                drop(self.trial.pool.remove(owner, &worker, now));
            }
            Step::Check => drop(self.trial.pool.check(owner, now)),
            Step::Grant => self.grant(),
            Step::Leaving(at) => {
                let id = self.pick(*at);
                self.trial.told(Told::Leaving {
                    id,
                    text: "block".into(),
                });
            }
            Step::Mark(on) => {
                // What is counted again may be more than the size.
                self.lowered |= self.trial.pool.counts().idle_blocked > 0;
                let nodes = on.then(|| "n1".parse().unwrap());
                let pool = &mut self.trial.pool;
                pool.nodes_are_marked(nodes.into_iter().collect(), now);
            }
            Step::Idle(at) => {
                let worker = self.pick(*at);
                self.lowered |= self.trial.pool.counts().idle_blocked > 0;
                let idle = BTreeSet::from([worker]);
                drop(self.trial.pool.report_idle(owner, &idle, now));
            }
            Step::End(at, ending) => self.end(*at, *ending),
            Step::Restart => {
                self.lowered |= self.trial.pool.counts().idle_blocked > 0;
                self.trial.restart();
            }
            Step::Pass(ms) => {
                self.lowered |= self.trial.pool.counts().idle_blocked > 0;
                self.trial.pass(*ms);
            }
            Step::Old(at) => self.call_of_the_past(*at),
            Step::Stop => drop(self.trial.pool.stop(owner, (Final::Killed, ""), now)),
        }
        self.trial.hear();
    }

    fn connect(&mut self, epoch_up: bool, leave_out: bool) {
        // Of who is idle an owner of a new epoch has to tell anew: until then they count again.
        self.lowered |= self.trial.pool.counts().idle_blocked > 0;
        let epoch = self.trial.epoch + u64::from(epoch_up);
        let known = self.trial.pool.workers.iter();
        let registered = known
            .filter(|(id, worker)| worker.state == State::Started || self.reported.contains(*id));
        let list: Vec<AllocationId> = registered.map(|(id, _)| id.clone()).collect();
        let workers: BTreeSet<_> = list.into_iter().skip(usize::from(leave_out)).collect();
        let asked = Connect {
            epoch,
            workers: workers.clone(),
            ..Connect::default()
        };
        if let Ok(answer) = self.trial.pool.connect(&asked, self.trial.now) {
            (self.trial.epoch, self.trial.connection) = (epoch, answer.connection);
            self.reported.extend(workers);
        }
    }

    fn grant(&mut self) {
        if !self.trial.pool.requested.is_empty() {
            self.granted += 1;
            self.trial.grant(self.granted + 100);
        }
    }

    fn end(&mut self, at: u64, ending: Ending) {
        let id = self.pick(at);
        let before = self.trial.pool.failed_so_far;
        if let Some(worker) = self.trial.pool.workers.get(&id)
            && worker.state != State::Foreign
            && worker.reported_by.is_some()
            && !worker.ordered
        {
            self.unordered.insert(id.clone());
        }
        let text = "gone".into();
        self.trial.told(Told::Ended { id, ending, text });
        let after = self.trial.pool.failed_so_far;
        assert!(after - before <= 1, "W5: {before} → {after}");
    }

    /// W7: whatever an owner of the past asks changes nothing.
    fn call_of_the_past(&mut self, at: u64) {
        let Some(epoch) = self.trial.epoch.checked_sub(1) else {
            return;
        };
        if self.trial.pool.owner.epoch != self.trial.epoch {
            return;
        }
        let (worker, now) = (self.pick(at), self.trial.now);
        let from = Speaker::Owner {
            epoch,
            connection: self.trial.connection,
        };
        let before = self.trial.pool.clone();
        let pool = &mut self.trial.pool;
        let wish = Wish {
            size: at,
            release: true,
            ..Wish::default()
        };
        let refusals = [
            pool.set_size(from, &wish, now).err(),
            pool.started(from, &worker, now).err(),
            pool.remove(from, &worker, now).err(),
            pool.check(from, now).err(),
            pool.report_idle(from, &BTreeSet::from([id(1)]), now).err(),
            pool.leave(epoch).err(),
        ];
        let fenced = |refusal: &Option<Refusal>| {
            matches!(refusal, Some(Refusal::StaleEpoch { .. } | Refusal::Stopped))
        };
        assert!(refusals.iter().all(fenced), "W7: {refusals:?}");
        assert_eq!(*pool, before, "W7");
    }

    fn holds_its_word(&self) {
        let pool = &self.trial.pool;
        let counts = pool.counts();
        if !self.lowered {
            let available = counts.available();
            assert!(
                available <= pool.designated,
                "W1: {available} of {}",
                pool.designated
            );
        }
        let in_one_state = |worker: &&Worker| worker.state == State::Started;
        for (id, worker) in &pool.workers {
            if worker.state == State::Started {
                assert!(self.reported.contains(id), "W3: {id}");
                assert!(worker.reported_by.is_some(), "W3: {id}");
            }
        }
        let started = pool.workers.values().filter(in_one_state).count() as u64;
        assert_eq!(started, counts.started, "W2");
        let held = pool.workers.values().filter_map(|worker| worker.number);
        let asked: BTreeSet<u64> = held.collect();
        assert!(
            asked.is_disjoint(&pool.requested),
            "W2: granted and still asked for"
        );
        if pool.stopped.is_some() {
            assert!(pool.requested.is_empty() && pool.wants().is_empty(), "W6");
        }
        let mut told: BTreeMap<AllocationId, u64> = BTreeMap::new();
        for news in self
            .trial
            .news
            .iter()
            .filter(|it| it.kind == Kind::ResourceRemoved)
        {
            *told.entry(news.worker.clone().unwrap()).or_default() += 1;
        }
        let once: BTreeMap<_, _> = self.unordered.iter().map(|id| (id.clone(), 1)).collect();
        assert_eq!(told, once, "W8");
        let numbers: Vec<u64> = self.trial.news.iter().map(|news| news.seq).collect();
        assert!(
            numbers.iter().copied().eq(1..=pool.event_seq),
            "{numbers:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn w1_to_w8_hold_through_any_life(
        size in 0..6_u64,
        max_failed in prop_oneof![Just(None), Just(Some(-1)), Just(Some(2))],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut watched = Watched::new(size, max_failed);
        for step in &steps {
            watched.take(step);
            watched.holds_its_word();
        }
    }

    #[test]
    fn w4_the_check_and_other_sizes_release_nobody(
        size in 1..6_u64,
        steps in prop::collection::vec(step(), 1..80),
        wished in 0..6_u64,
    ) {
        let mut watched = Watched::new(size, Some(-1));
        for step in &steps {
            watched.take(step);
        }
        let (pool, now) = (&mut watched.trial.pool, watched.trial.now);
        let before = pool.workers.clone();
        let wish = Wish { size: wished, ..Wish::default() };
        drop(pool.check(Speaker::Operator, now));
        drop(pool.set_size(Speaker::Operator, &wish, now));
        drop(pool.check(Speaker::Operator, now));
        prop_assert_eq!(&pool.workers, &before);
    }
}
