//! Settings of a test fleet: agents, and the times after which it reacts.

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Agent {
    pub runtime: &'static str,
    pub memory_bytes: u64,
    /// Replacement for the program that supervises containers. `None` uses the real one. A missing
    /// program breaks the node: its heartbeats are good, but every launch fails with
    /// `runtime_down`.
    pub supervisor: Option<&'static str>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            runtime: "process",
            memory_bytes: 4 << 30,
            supervisor: None,
        }
    }
}

/// Times after which a fleet reacts, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Lease of a writer. It is short, so that a killed leader is replaced soon.
    pub lease_ms: u64,
    pub heartbeat_ms: u64,
    pub suspect_ms: u64,
    pub lost_ms: u64,
    /// Run time after which a process shows that its node works.
    pub worked_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_ms: 1_000,
            heartbeat_ms: 300,
            suspect_ms: 1_500,
            lost_ms: 4_000,
            worked_ms: 1_000,
        }
    }
}

impl Timing {
    /// Returns times at which no node is declared lost, however busy this machine is.
    pub fn without_node_loss() -> Self {
        Self {
            suspect_ms: 20_000,
            lost_ms: 60_000,
            ..Self::default()
        }
    }

    /// Returns times for more processes and agents than this machine can run at the usual times.
    pub fn for_many_nodes() -> Self {
        Self {
            lease_ms: 5_000,
            heartbeat_ms: 2_000,
            suspect_ms: 15_000,
            lost_ms: 60_000,
            ..Self::default()
        }
    }
}
