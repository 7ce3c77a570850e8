//! The limits, settings and heartbeats that the ledger and the HTTP handlers share.

use hayward_node_status_domain::Limits;
use hayward_node_status_domain::heartbeat_period::HeartbeatPeriod;

use crate::config::Guards;
use crate::heartbeats::Heartbeats;

pub struct Context {
    pub heartbeats: Heartbeats,
    pub limits: Limits,
    pub guards: Guards,
    pub heartbeat_period: HeartbeatPeriod,
    /// Lease that each answered heartbeat grants, in milliseconds (I4).
    pub lease_ms: u64,
}

impl Context {
    /// Returns the milliseconds between two heartbeats of a node, for the current size of the
    /// fleet.
    pub fn period_ms(&self) -> u64 {
        self.heartbeat_period.period_ms(self.heartbeats.count())
    }
}
