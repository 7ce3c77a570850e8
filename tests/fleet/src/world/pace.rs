//! How the parts of a fleet are set.

/// How an agent is run.
#[derive(Debug, Clone)]
pub struct Agent {
    pub runtime: &'static str,
    pub memory_bytes: u64,
    /// Instead of the program that supervises containers. One that is not there breaks the
    /// machine: it heartbeats well, and every launch fails for `runtime_down`.
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

/// How soon things are noticed, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// A writer's lease: short, so that a killed leader is followed soon.
    pub lease: u64,
    pub heartbeat: u64,
    pub suspect: u64,
    pub lost: u64,
    /// Running so long shows that a machine works.
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
    /// For stories in which no node is to be given up, however busy this machine is.
    pub fn patient() -> Self {
        Self {
            suspect: 20_000,
            lost: 60_000,
            ..Self::default()
        }
    }

    /// For more processes and agents than this machine serves at the pace of the others.
    pub fn crowded() -> Self {
        Self {
            lease: 5_000,
            heartbeat: 2_000,
            suspect: 15_000,
            lost: 60_000,
            ..Self::default()
        }
    }
}
