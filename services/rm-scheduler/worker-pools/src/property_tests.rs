//! Property tests: the guarantees of a worker pool hold in random histories of calls and events.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;
use proptest::prelude::*;

use crate::test_platform::{TestPlatform, id};
use crate::{
    Caller, Connect, Ending, EventKind, Final, Mode, PlatformEvent, Refusal, Rules, SizeRequest,
    State, Worker,
};

/// First number of the ids that are never granted.
const UNKNOWN_IDS: u64 = 900;

/// One call or event. A plain number is the index of a worker, see
/// [`ObservedPool::worker_or_unknown`].
#[derive(Debug, Clone)]
enum Step {
    ConnectOwner {
        is_new_owner: bool,
        omits_one_worker: bool,
    },
    DisconnectOwner,
    SetSize {
        size: u64,
        release: bool,
    },
    RegisterWorker(u64),
    RemoveWorker(u64),
    CheckSize,
    GrantWorker,
    VacateWorker(u64),
    /// Blocks or unblocks the node of all workers.
    BlockNode(bool),
    /// Reports one idle worker.
    ReportIdle(u64),
    EndWorker(u64, Ending),
    RestartScheduler,
    /// Milliseconds.
    AdvanceClock(u64),
    CallByFormerOwner(u64),
    StopPool,
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
            .prop_map(|(is_new_owner, omits_one_worker)| Step::ConnectOwner {
                is_new_owner, omits_one_worker,
            }),
        1 => Just(Step::DisconnectOwner),
        4 => (0..6_u64, any::<bool>()).prop_map(|(size, release)| Step::SetSize { size, release }),
        10 => (0..40_u64).prop_map(Step::RegisterWorker),
        4 => (0..40_u64).prop_map(Step::RemoveWorker),
        2 => Just(Step::CheckSize),
        14 => Just(Step::GrantWorker),
        2 => (0..40_u64).prop_map(Step::VacateWorker),
        2 => any::<bool>().prop_map(Step::BlockNode),
        3 => (0..40_u64).prop_map(Step::ReportIdle),
        6 => (0..40_u64, ending()).prop_map(|(worker, ending)| Step::EndWorker(worker, ending)),
        1 => Just(Step::RestartScheduler),
        3 => (1..400_000_u64).prop_map(Step::AdvanceClock),
        3 => (0..40_u64).prop_map(Step::CallByFormerOwner),
        1 => Just(Step::StopPool),
    ]
}

/// A pool with its platform, and the data to verify it.
struct ObservedPool {
    platform: TestPlatform,
    /// Number of grants so far.
    granted: u64,
    /// All workers ever reported by the owner.
    reported: BTreeSet<AllocationId>,
    /// Reported workers that ended without an order of the owner.
    ended_without_order: BTreeSet<AllocationId>,
    /// True after a step that may leave more workers than the size.
    may_exceed_size: bool,
}

impl ObservedPool {
    fn new(size: u64, max_failed: Option<i64>) -> Self {
        let platform = TestPlatform::new(Mode::Managed, size, max_failed, Rules::default());
        Self {
            platform,
            granted: 0,
            reported: BTreeSet::new(),
            ended_without_order: BTreeSet::new(),
            may_exceed_size: false,
        }
    }

    /// Returns the worker with this index, or an id that no worker has.
    fn worker_or_unknown(&self, index: u64) -> AllocationId {
        let count = self.platform.pool.workers.len();
        let index = usize::try_from(index).unwrap();
        let existing = self.platform.pool.workers.keys().nth(index);
        existing
            .cloned()
            .unwrap_or_else(|| id(UNKNOWN_IDS + (index - count.min(index)) as u64))
    }

    fn apply(&mut self, step: &Step) {
        let now = self.platform.now;
        let owner = self.platform.owner();
        match step {
            Step::ConnectOwner {
                is_new_owner,
                omits_one_worker,
            } => self.connect(*is_new_owner, *omits_one_worker),
            Step::DisconnectOwner => drop(self.platform.pool.leave(self.platform.epoch)),
            Step::SetSize { size, release } => self.set_size(*size, *release),
            Step::RegisterWorker(index) => {
                let worker = self.worker_or_unknown(*index);
                let pool = &mut self.platform.pool;
                if pool.register_worker(owner, &worker, now).is_ok() {
                    self.reported.insert(worker);
                }
            }
            Step::RemoveWorker(index) => {
                let worker = self.worker_or_unknown(*index);
                drop(self.platform.pool.remove(owner, &worker, now));
            }
            Step::CheckSize => drop(self.platform.pool.check(owner, now)),
            Step::GrantWorker => self.grant(),
            Step::VacateWorker(index) => {
                let id = self.worker_or_unknown(*index);
                self.platform.apply(PlatformEvent::Leaving {
                    id,
                    text: "block".into(),
                });
            }
            Step::BlockNode(is_blocked) => {
                // Workers that count again may exceed the size.
                self.may_exceed_size |= self.platform.pool.counts().idle_blocked > 0;
                let nodes = is_blocked.then(|| "n1".parse().unwrap());
                let pool = &mut self.platform.pool;
                pool.set_blocked_nodes(nodes.into_iter().collect(), now);
            }
            Step::ReportIdle(index) => {
                let worker = self.worker_or_unknown(*index);
                self.may_exceed_size |= self.platform.pool.counts().idle_blocked > 0;
                let idle = BTreeSet::from([worker]);
                drop(self.platform.pool.report_idle(owner, &idle, now));
            }
            Step::EndWorker(index, ending) => self.end(*index, *ending),
            Step::RestartScheduler => {
                self.may_exceed_size |= self.platform.pool.counts().idle_blocked > 0;
                self.platform.restart();
            }
            Step::AdvanceClock(ms) => {
                self.may_exceed_size |= self.platform.pool.counts().idle_blocked > 0;
                self.platform.advance(*ms);
            }
            Step::CallByFormerOwner(index) => self.call_by_former_owner(*index),
            Step::StopPool => drop(self.platform.pool.stop(owner, Final::Killed, "", now)),
        }
        self.platform.take_events();
    }

    fn set_size(&mut self, size: u64, release: bool) {
        let request = SizeRequest {
            size,
            release,
            ..SizeRequest::default()
        };
        self.may_exceed_size |= size < self.platform.pool.designated;
        let (owner, now) = (self.platform.owner(), self.platform.now);
        drop(self.platform.pool.set_size(owner, &request, now));
    }

    fn connect(&mut self, is_new_owner: bool, omits_one_worker: bool) {
        // After a new epoch all workers count as busy until the owner reports idle ones.
        self.may_exceed_size |= self.platform.pool.counts().idle_blocked > 0;
        let epoch = self.platform.epoch + u64::from(is_new_owner);
        let known = self.platform.pool.workers.iter();
        let registered = known
            .filter(|(id, worker)| worker.state == State::Started || self.reported.contains(*id));
        let list: Vec<AllocationId> = registered.map(|(id, _)| id.clone()).collect();
        let workers: BTreeSet<_> = list
            .into_iter()
            .skip(usize::from(omits_one_worker))
            .collect();
        let request = Connect {
            epoch,
            workers: workers.clone(),
            ..Connect::default()
        };
        if let Ok(result) = self.platform.pool.connect(&request, self.platform.now) {
            (self.platform.epoch, self.platform.connection) = (epoch, result.connection);
            self.reported.extend(workers);
        }
    }

    fn grant(&mut self) {
        if !self.platform.pool.requested.is_empty() {
            self.granted += 1;
            self.platform.grant(self.granted + 100);
        }
    }

    fn end(&mut self, index: u64, ending: Ending) {
        let id = self.worker_or_unknown(index);
        let before = self.platform.pool.failed_so_far;
        if let Some(worker) = self.platform.pool.workers.get(&id)
            && worker.state != State::Foreign
            && worker.reported_by.is_some()
            && !worker.ordered
        {
            self.ended_without_order.insert(id.clone());
        }
        let text = "gone".into();
        self.platform
            .apply(PlatformEvent::Ended { id, ending, text });
        let after = self.platform.pool.failed_so_far;
        assert!(
            after - before <= 1,
            "one end counts at most once (WP-5): {before} → {after}"
        );
    }

    /// A call of a former owner changes nothing (WP-7).
    fn call_by_former_owner(&mut self, index: u64) {
        let Some(epoch) = self.platform.epoch.checked_sub(1) else {
            return;
        };
        if self.platform.pool.owner.epoch != self.platform.epoch {
            return;
        }
        let (worker, now) = (self.worker_or_unknown(index), self.platform.now);
        let from = Caller::Owner {
            epoch,
            connection: self.platform.connection,
        };
        let before = self.platform.pool.clone();
        let pool = &mut self.platform.pool;
        let request = SizeRequest {
            size: index,
            release: true,
            ..SizeRequest::default()
        };
        let refusals = [
            pool.set_size(from, &request, now).err(),
            pool.register_worker(from, &worker, now).err(),
            pool.remove(from, &worker, now).err(),
            pool.check(from, now).err(),
            pool.report_idle(from, &BTreeSet::from([id(1)]), now).err(),
            pool.leave(epoch).err(),
        ];
        let is_fenced = |refusal: &Option<Refusal>| {
            matches!(refusal, Some(Refusal::StaleEpoch { .. } | Refusal::Stopped))
        };
        assert!(
            refusals.iter().all(is_fenced),
            "calls of a former owner are fenced off (WP-7): {refusals:?}"
        );
        assert_eq!(*pool, before, "a refused call changes the pool (WP-7)");
    }

    fn check_rules(&self) {
        let pool = &self.platform.pool;
        let counts = pool.counts();
        if !self.may_exceed_size {
            let available = counts.available();
            assert!(
                available <= pool.designated,
                "more workers than the size (WP-1): {available} of {}",
                pool.designated
            );
        }
        let is_started = |worker: &&Worker| worker.state == State::Started;
        for (id, worker) in &pool.workers {
            if worker.state == State::Started {
                assert!(
                    self.reported.contains(id),
                    "a started worker was never reported (WP-3): {id}"
                );
                assert!(
                    worker.reported_by.is_some(),
                    "a started worker was never reported (WP-3): {id}"
                );
            }
        }
        let started = pool.workers.values().filter(is_started).count() as u64;
        assert_eq!(started, counts.started, "count of started workers (WP-2)");
        let numbers = pool.workers.values().filter_map(|worker| worker.number);
        let granted: BTreeSet<u64> = numbers.collect();
        assert!(
            granted.is_disjoint(&pool.requested),
            "a worker is granted and still requested (WP-2)"
        );
        if pool.stopped.is_some() {
            assert!(
                pool.requested.is_empty() && pool.wanted_numbers().is_empty(),
                "a stopped pool wants no worker (WP-6)"
            );
        }
        let mut removals: BTreeMap<AllocationId, u64> = BTreeMap::new();
        for event in self
            .platform
            .events
            .iter()
            .filter(|it| it.kind == EventKind::ResourceRemoved)
        {
            *removals.entry(event.worker.clone().unwrap()).or_default() += 1;
        }
        let once: BTreeMap<_, _> = self
            .ended_without_order
            .iter()
            .map(|id| (id.clone(), 1))
            .collect();
        assert_eq!(removals, once, "one event per end without an order (WP-8)");
        let numbers: Vec<u64> = self.platform.events.iter().map(|event| event.seq).collect();
        assert!(
            numbers.iter().copied().eq(1..=pool.event_seq),
            "{numbers:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn all_rules_hold_in_every_history(
        size in 0..6_u64,
        max_failed in prop_oneof![Just(None), Just(Some(-1)), Just(Some(2))],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut observed = ObservedPool::new(size, max_failed);
        for step in &steps {
            observed.apply(step);
            observed.check_rules();
        }
    }

    #[test]
    fn neither_checks_nor_sizes_release_a_worker(
        size in 1..6_u64,
        steps in prop::collection::vec(step(), 1..80),
        new_size in 0..6_u64,
    ) {
        let mut observed = ObservedPool::new(size, Some(-1));
        for step in &steps {
            observed.apply(step);
        }
        let (pool, now) = (&mut observed.platform.pool, observed.platform.now);
        let before = pool.workers.clone();
        let request = SizeRequest { size: new_size, ..SizeRequest::default() };
        drop(pool.check(Caller::Operator, now));
        drop(pool.set_size(Caller::Operator, &request, now));
        drop(pool.check(Caller::Operator, now));
        prop_assert_eq!(&pool.workers, &before);
    }
}
