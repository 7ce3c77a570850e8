//! Forecast for exclusive work on a silent node: the time at which the work has ended, and the time
//! at which a successor may start. Each answered heartbeat grants a lease, in which exclusive work
//! may run. The node counts the lease from the time at which it sent the heartbeat. The lease
//! therefore never ends later than forecast (W7).

use crate::health::{Limits, lost_at};

/// Conditions that delay the loss of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossDelay {
    /// True if the brake of the pool is on (B1).
    pub brake_on: bool,
    /// The node cannot become lost before this time (B2).
    pub not_lost_before_ms: u64,
    /// True if the node is already lost.
    pub lost: bool,
}

/// Forecast if no other heartbeat arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseForecast {
    /// Time from which no exclusive work runs on the node.
    pub ends_ms: u64,
    /// Time from which the node is lost and a successor may start. `None` while the brake is on.
    pub lost_at_ms: Option<u64>,
}

/// Returns the forecast for a node that is silent since `since_ms`.
pub fn forecast(
    since_ms: u64,
    lease_ms: u64,
    limits: Limits,
    loss_delay: LossDelay,
) -> LeaseForecast {
    let at = lost_at(since_ms, limits, loss_delay.not_lost_before_ms);
    LeaseForecast {
        ends_ms: since_ms.saturating_add(lease_ms),
        lost_at_ms: if loss_delay.lost {
            Some(since_ms)
        } else {
            (!loss_delay.brake_on).then_some(at)
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::{Health, NodeFacts, judge};

    const LIMITS: Limits = Limits {
        suspect_ms: 15_000,
        lost_ms: 60_000,
    };

    proptest! {
        /// A silent node becomes lost exactly at the forecast instant, and after its lease (W7).
        #[test]
        fn a_node_becomes_lost_exactly_when_forecast(
            since in 0..100_000_u64, not_lost_before_ms in 0..300_000_u64, brake_on: bool,
        ) {
            let loss_delay = LossDelay { brake_on, not_lost_before_ms, lost: false };
            let forecast = forecast(since, 45_000, LIMITS, loss_delay);
            let health = |now| {
                let facts = NodeFacts {
                    before: Health::Suspect,
                    watch_began_ms: 0,
                    last_heartbeat_ms: Some(since),
                    quiesced: None,
                    duplicate_agents: false,
                    brake_on,
                    not_lost_before_ms,
                    flaps: 0,
                    limits: LIMITS,
                };
                judge(&facts, now).health
            };
            match forecast.lost_at_ms {
                None => prop_assert_eq!(health(since + 10_000_000), Health::Suspect),
                Some(at) => {
                    prop_assert!(forecast.ends_ms < at);
                    prop_assert_eq!(health(at - 1), if at - 1 < since + 15_000 {
                        Health::Healthy
                    } else {
                        Health::Suspect
                    });
                    prop_assert_eq!(health(at), Health::Lost);
                }
            }
        }
    }
}
