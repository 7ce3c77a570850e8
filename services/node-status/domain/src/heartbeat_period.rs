//! Heartbeat period of an agent. In a large fleet each agent reports less often, so that the total
//! rate stays bounded.

/// Limits of the heartbeat rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatPeriod {
    /// Minimum milliseconds between two heartbeats of an agent.
    pub min_ms: u64,
    /// Target rate of the whole fleet, in heartbeats per second.
    pub per_second: u64,
    /// Milliseconds of silence after which a node is suspect.
    pub suspect_ms: u64,
}

impl HeartbeatPeriod {
    /// Returns the milliseconds between two heartbeats of each node. The period is at most a third
    /// of `suspect_ms`, so that two heartbeats may be lost, unless `min_ms` is longer.
    pub fn period_ms(&self, nodes: usize) -> u64 {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        let spread_ms = nodes.saturating_mul(1_000) / self.per_second.max(1);
        self.min_ms.max(spread_ms.min(self.suspect_ms / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: HeartbeatPeriod = HeartbeatPeriod {
        min_ms: 1_000,
        per_second: 1_000,
        suspect_ms: 15_000,
    };

    #[test]
    fn a_small_fleet_uses_the_minimum_period() {
        assert_eq!(PERIOD.period_ms(0), 1_000);
        assert_eq!(PERIOD.period_ms(1_000), 1_000);
    }

    #[test]
    fn the_period_grows_with_a_large_fleet() {
        assert_eq!(PERIOD.period_ms(2_500), 2_500);
        assert_eq!(PERIOD.period_ms(5_000), 5_000);
    }

    #[test]
    fn two_heartbeats_may_be_lost_before_a_node_is_suspect() {
        assert_eq!(PERIOD.period_ms(100_000), 5_000);
        assert_eq!(PERIOD.period_ms(usize::MAX), 5_000);
    }

    #[test]
    fn a_minimum_period_above_a_third_of_suspect_ms_is_used() {
        let slow = HeartbeatPeriod {
            min_ms: 7_000,
            ..PERIOD
        };
        assert_eq!(slow.period_ms(10), 7_000);
        assert_eq!(slow.period_ms(100_000), 7_000);
    }
}
