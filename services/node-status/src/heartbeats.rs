//! Who was heard when: the only thing heartbeats change as a rule, so it is kept in memory, is
//! written by the handlers themselves, and never goes through the committer.
//!
//! A pulse is *calm* while the last committed word about its node still holds: then a heartbeat
//! that says the same needs no decision. The ledger sets and clears that; a term begins with none
//! calm.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hayward_node_status_api::Metrics;
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::{Next, lease::Mercy};
use hayward_vocabulary::{NodeName, Size};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

/// The heartbeats of all nodes.
pub struct Pulses {
    started: Instant,
    /// Keyed anew in each process, so that nobody can choose inventories that collide.
    hasher: RandomState,
    nodes: RwLock<FxHashMap<NodeName, Arc<Pulse>>>,
    term_began_ms: AtomicU64,
}

/// The heartbeat of one node.
#[derive(Default)]
pub struct Pulse {
    /// When it was last heard, plus one; zero while it was not heard in this term.
    heard: AtomicU64,
    /// Of what the node said of itself when that was last decided on.
    digest: AtomicU64,
    calm: AtomicBool,
    schedulable: AtomicBool,
    metrics: Mutex<Metrics>,
    /// Of the agent.
    version: Mutex<Arc<str>>,
    shown: Mutex<Shown>,
}

/// What is shown with a node beside its entry: it may change without being news.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    pub next: Option<Next>,
    pub flaps: u64,
    pub rivals: Vec<String>,
    /// What it says it has, where it is held to less.
    pub claimed: Option<Size>,
    pub drain_state: Option<DrainState>,
    pub mercy: Mercy,
    /// The pool of the policy, where its agent names another.
    pub counted_in: Option<String>,
}

impl Default for Pulses {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            hasher: RandomState::new(),
            nodes: RwLock::default(),
            term_began_ms: AtomicU64::new(0),
        }
    }
}

impl Pulses {
    /// Milliseconds on the clock that all pulses share.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn digest(&self, parts: &[&[u8]]) -> u64 {
        self.hasher.hash_one(parts)
    }

    pub fn get(&self, node: &str) -> Option<Arc<Pulse>> {
        self.nodes.read().get(node).cloned()
    }

    /// A term begins: everybody is listened for anew.
    pub fn begin(&self, nodes: impl Iterator<Item = (NodeName, Arc<Pulse>)>) -> u64 {
        let now_ms = self.now_ms();
        *self.nodes.write() = nodes.collect();
        self.term_began_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    /// How many nodes are listened for.
    pub fn count(&self) -> usize {
        self.nodes.read().len()
    }

    pub fn insert(&self, node: NodeName, pulse: Arc<Pulse>) {
        self.nodes.write().insert(node, pulse);
    }

    pub fn remove(&self, node: &NodeName) {
        self.nodes.write().remove(node);
    }

    /// How long a node has been silent; since the term began where it was not heard in it.
    pub fn silence_ms(&self, pulse: &Pulse) -> u64 {
        let since = pulse
            .heard_ms()
            .unwrap_or(self.term_began_ms.load(Ordering::Relaxed));
        self.now_ms().saturating_sub(since)
    }
}

impl Pulses {
    /// The same by itself: what is tried on it shows nowhere (A10).
    pub fn copy(&self) -> Self {
        let nodes = self.nodes.read();
        let copies = nodes.iter();
        let copies = copies.map(|(node, pulse)| (node.clone(), Arc::new(pulse.copy())));
        Self {
            started: self.started,
            hasher: self.hasher.clone(),
            nodes: RwLock::new(copies.collect()),
            term_began_ms: AtomicU64::new(self.term_began_ms.load(Ordering::Relaxed)),
        }
    }
}

impl Pulse {
    fn copy(&self) -> Self {
        Self {
            heard: AtomicU64::new(self.heard.load(Ordering::Relaxed)),
            digest: AtomicU64::new(self.digest.load(Ordering::Relaxed)),
            calm: AtomicBool::new(self.calm.load(Ordering::Relaxed)),
            schedulable: AtomicBool::new(self.schedulable.load(Ordering::Relaxed)),
            metrics: Mutex::new(self.metrics()),
            version: Mutex::new(self.version()),
            shown: Mutex::new(self.shown()),
        }
    }

    pub fn touch(&self, now_ms: u64) {
        self.heard
            .fetch_max(now_ms.saturating_add(1), Ordering::Relaxed);
    }

    pub fn heard_ms(&self) -> Option<u64> {
        self.heard.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn metrics(&self) -> Metrics {
        self.metrics.lock().clone()
    }

    pub fn version(&self) -> Arc<str> {
        self.version.lock().clone()
    }

    pub fn runs(&self, version: &str) {
        *self.version.lock() = version.into();
    }

    pub fn shown(&self) -> Shown {
        self.shown.lock().clone()
    }

    pub fn show(&self, shown: Shown) {
        *self.shown.lock() = shown;
    }

    pub fn feels(&self, metrics: Metrics) {
        *self.metrics.lock() = metrics;
    }

    /// Whether saying this again is no news. If it is not, the answer is whether the node takes
    /// work as far as operators are concerned.
    pub fn knows(&self, digest: u64) -> Option<bool> {
        let calm = self.calm.load(Ordering::Acquire);
        (calm && self.digest.load(Ordering::Relaxed) == digest)
            .then(|| self.schedulable.load(Ordering::Relaxed))
    }

    /// The ledger decided on what this digest stands for.
    pub fn decided(&self, digest: u64) {
        self.digest.store(digest, Ordering::Relaxed);
    }

    pub fn settle(&self, calm: bool, schedulable: bool) {
        self.schedulable.store(schedulable, Ordering::Relaxed);
        self.calm.store(calm, Ordering::Release);
    }
}
