//! Settings of the parts of a fleet.

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Agent {
    pub runtime: &'static str,
    pub memory_bytes: u64,
    /// Replaces the program that supervises containers. A missing one breaks the node: its
    /// heartbeats are good, and every launch fails with `runtime_down`.
    pub helper: Option<&'static str>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            runtime: "process",
            memory_bytes: 4 << 30,
            helper: None,
        }
    }
}

/// Times until something is noticed, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Lease of a writer. Short, so that a killed leader is replaced soon.
    pub lease: u64,
    pub heartbeat: u64,
    pub suspect: u64,
    pub lost: u64,
    /// A process that has run for so long shows that its node works.
    pub worked: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lease: 1_000,
            heartbeat: 300,
            suspect: 1_500,
            lost: 4_000,
            worked: 1_000,
        }
    }
}

impl Pace {
    /// For tests in which no node may be declared lost, however busy this machine is.
    pub fn patient() -> Self {
        Self {
            suspect: 20_000,
            lost: 60_000,
            ..Self::default()
        }
    }

    /// For more processes and agents than this machine serves at the usual pace.
    pub fn slow() -> Self {
        Self {
            lease: 5_000,
            heartbeat: 2_000,
            suspect: 15_000,
            lost: 60_000,
            ..Self::default()
        }
    }
}
