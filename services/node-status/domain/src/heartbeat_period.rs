//! How often an agent speaks. A small fleet is heard each second; of a large one each node less
//! often, so that listening costs the same at a hundred nodes and at ten thousand.

/// What all agents together may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Milliseconds between two heartbeats of an agent of a small fleet.
    pub least_ms: u64,
    /// Heartbeats of the whole fleet in a second that a longer period keeps to.
    pub per_second: u64,
    /// Milliseconds of silence after which a node is suspect.
    pub suspect_ms: u64,
}

impl Rhythm {
    /// Milliseconds between two heartbeats of each of so many nodes. Never more than a third of the
    /// silence that makes a node suspect, so two heartbeats may be lost, unless the setting itself
    /// is more: how soon a loss is seen does not depend on how many nodes there are.
    pub fn period_ms(&self, nodes: usize) -> u64 {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        let spread_ms = nodes.saturating_mul(1_000) / self.per_second.max(1);
        self.least_ms.max(spread_ms.min(self.suspect_ms / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        least_ms: 1_000,
        per_second: 1_000,
        suspect_ms: 15_000,
    };

    #[test]
    fn a_small_fleet_is_heard_each_second() {
        assert_eq!(RHYTHM.period_ms(0), 1_000);
        assert_eq!(RHYTHM.period_ms(1_000), 1_000);
    }

    #[test]
    fn a_large_one_shares_what_there_is() {
        assert_eq!(RHYTHM.period_ms(2_500), 2_500);
        assert_eq!(RHYTHM.period_ms(5_000), 5_000);
    }

    #[test]
    fn two_may_be_lost_before_a_node_is_suspect() {
        assert_eq!(RHYTHM.period_ms(100_000), 5_000);
        assert_eq!(RHYTHM.period_ms(usize::MAX), 5_000);
    }

    #[test]
    fn a_setting_above_that_is_kept() {
        let slow = Rhythm {
            least_ms: 7_000,
            ..RHYTHM
        };
        assert_eq!(slow.period_ms(10), 7_000);
        assert_eq!(slow.period_ms(100_000), 7_000);
    }
}
