//! Last heartbeat and metrics of each node. Most heartbeats change only these, so handlers update
//! them in memory without the committer.
//!
//! A judgement is the health of a node that the ledger has derived and committed. A flag shows
//! whether the judgement holds. While it does, a heartbeat with the same content needs no command.
//! The ledger sets and clears the flag. At the start of a term no judgement holds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hayward_node_status_api::Metrics;
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_domain::{Next, lease_forecast::LossDelay};
use hayward_vocabulary::{NodeName, Size};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

/// State of the heartbeats of all nodes.
pub struct Heartbeats {
    started: Instant,
    /// Hasher with a random key, so that no agent can construct colliding inventories.
    hasher: RandomState,
    nodes: RwLock<FxHashMap<NodeName, Arc<HeartbeatState>>>,
    term_began_ms: AtomicU64,
}

/// State of the heartbeats of one node.
#[derive(Default)]
pub struct HeartbeatState {
    /// Time of the last heartbeat in milliseconds, plus one. Zero means no heartbeat in this term.
    last_heartbeat_plus_one: AtomicU64,
    /// Digest of the heartbeat on which the last judgement is based.
    digest: AtomicU64,
    /// True while the last judgement still applies.
    judgement_holds: AtomicBool,
    schedulable: AtomicBool,
    metrics: Mutex<Metrics>,
    /// Version of the agent.
    version: Mutex<Arc<str>>,
    details: Mutex<NodeDetails>,
}

/// Details that a read of a node returns. Changes of details are not published.
#[derive(Debug, Clone, Default)]
pub struct NodeDetails {
    pub next: Option<Next>,
    pub flaps: u64,
    pub rivals: Vec<String>,
    /// Claimed resources, if they exceed the limit.
    pub claimed: Option<Size>,
    pub drain_state: Option<DrainState>,
    pub loss_delay: LossDelay,
    /// Node pool by policy, if the agent names another one.
    pub counted_in: Option<String>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            hasher: RandomState::new(),
            nodes: RwLock::default(),
            term_began_ms: AtomicU64::new(0),
        }
    }
}

impl Heartbeats {
    /// Returns the time of the monotonic clock of all heartbeats, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the digest of the content of a heartbeat.
    pub fn digest(&self, parts: &[&[u8]]) -> u64 {
        self.hasher.hash_one(parts)
    }

    pub fn get(&self, node: &str) -> Option<Arc<HeartbeatState>> {
        self.nodes.read().get(node).cloned()
    }

    /// Starts a term with these nodes, and returns the current time. Earlier heartbeats do not
    /// count.
    pub fn begin_term(&self, nodes: impl Iterator<Item = (NodeName, Arc<HeartbeatState>)>) -> u64 {
        let now_ms = self.now_ms();
        *self.nodes.write() = nodes.collect();
        self.term_began_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.read().len()
    }

    pub fn insert(&self, node: NodeName, heartbeat: Arc<HeartbeatState>) {
        self.nodes.write().insert(node, heartbeat);
    }

    pub fn remove(&self, node: &NodeName) {
        self.nodes.write().remove(node);
    }

    /// Returns the milliseconds since the last heartbeat, or since the term began.
    pub fn silence_ms(&self, heartbeat: &HeartbeatState) -> u64 {
        let since_ms = heartbeat
            .last_heartbeat_ms()
            .unwrap_or(self.term_began_ms.load(Ordering::Relaxed));
        self.now_ms().saturating_sub(since_ms)
    }

    /// Returns a detached copy for a dry run.
    pub fn copy(&self) -> Self {
        let nodes = self.nodes.read();
        let copies = nodes.iter();
        let copies = copies.map(|(node, heartbeat)| (node.clone(), Arc::new(heartbeat.copy())));
        Self {
            started: self.started,
            hasher: self.hasher.clone(),
            nodes: RwLock::new(copies.collect()),
            term_began_ms: AtomicU64::new(self.term_began_ms.load(Ordering::Relaxed)),
        }
    }
}

impl HeartbeatState {
    fn copy(&self) -> Self {
        Self {
            last_heartbeat_plus_one: AtomicU64::new(
                self.last_heartbeat_plus_one.load(Ordering::Relaxed),
            ),
            digest: AtomicU64::new(self.digest.load(Ordering::Relaxed)),
            judgement_holds: AtomicBool::new(self.judgement_holds.load(Ordering::Relaxed)),
            schedulable: AtomicBool::new(self.schedulable.load(Ordering::Relaxed)),
            metrics: Mutex::new(self.metrics()),
            version: Mutex::new(self.version()),
            details: Mutex::new(self.details()),
        }
    }

    pub fn record(&self, now_ms: u64) {
        self.last_heartbeat_plus_one
            .fetch_max(now_ms.saturating_add(1), Ordering::Relaxed);
    }

    pub fn last_heartbeat_ms(&self) -> Option<u64> {
        self.last_heartbeat_plus_one
            .load(Ordering::Relaxed)
            .checked_sub(1)
    }

    pub fn metrics(&self) -> Metrics {
        self.metrics.lock().clone()
    }

    pub fn version(&self) -> Arc<str> {
        self.version.lock().clone()
    }

    pub fn set_version(&self, version: &str) {
        *self.version.lock() = version.into();
    }

    pub fn details(&self) -> NodeDetails {
        self.details.lock().clone()
    }

    pub fn set_details(&self, details: NodeDetails) {
        *self.details.lock() = details;
    }

    pub fn set_metrics(&self, metrics: Metrics) {
        *self.metrics.lock() = metrics;
    }

    /// Returns whether the node is varied on, if a heartbeat with this digest needs no new
    /// judgement. Returns `None` if it needs one.
    pub fn schedulable_if_unchanged(&self, digest: u64) -> Option<bool> {
        let holds = self.judgement_holds.load(Ordering::Acquire);
        (holds && self.digest.load(Ordering::Relaxed) == digest)
            .then(|| self.schedulable.load(Ordering::Relaxed))
    }

    /// Sets the digest of the heartbeat on which the last judgement is based.
    pub fn set_digest(&self, digest: u64) {
        self.digest.store(digest, Ordering::Relaxed);
    }

    /// Sets whether the last judgement still applies, and whether the node is varied on.
    pub fn set_judgement(&self, holds: bool, schedulable: bool) {
        self.schedulable.store(schedulable, Ordering::Relaxed);
        self.judgement_holds.store(holds, Ordering::Release);
    }
}
