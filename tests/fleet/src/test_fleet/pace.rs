//! Settings of the parts of a fleet.

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Agent {
    pub runtime: &'static str,
    pub memory_bytes: u64,
    /// Replacement for the program that supervises containers. `None` uses the real one. A missing
    /// program breaks the node: its heartbeats are good, but every launch fails with
    /// `runtime_down`.
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

/// Times after which a fleet reacts, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Lease of a writer. It is short, so that a killed leader is replaced soon.
    pub lease: u64,
    pub heartbeat: u64,
    pub suspect: u64,
    pub lost: u64,
    /// Run time after which a process shows that its node works.
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
    /// Returns a pace at which no node is declared lost, however busy this machine is.
    pub fn patient() -> Self {
        Self {
            suspect: 20_000,
            lost: 60_000,
            ..Self::default()
        }
    }

    /// Returns a pace for more processes and agents than this machine can run at the usual pace.
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
