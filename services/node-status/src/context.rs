//! State shared by the ledger and the handlers.

use hayward_node_status_domain::Limits;
use hayward_node_status_domain::heartbeat_period::Rhythm;

use crate::config::Guards;
use crate::heartbeats::Pulses;

/// What readers, handlers and the ledger share.
pub struct Context {
    pub pulses: Pulses,
    pub limits: Limits,
    pub guards: Guards,
    pub rhythm: Rhythm,
    /// What each answered heartbeat gives the agent (I4).
    pub lease_ms: u64,
}

impl Context {
    /// Milliseconds between two heartbeats of a node, as large as the fleet is now.
    pub fn period_ms(&self) -> u64 {
        self.rhythm.period_ms(self.pulses.count())
    }
}
