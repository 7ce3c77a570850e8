//! B1: when many nodes of a pool fall silent within minutes, the network or ourselves are a
//! likelier cause than the machines, and giving them all up would stop work that still runs. The
//! brake then holds until enough of them are heard again; an operator who knows better varies a
//! node off.

/// Nodes that fell silent this recently belong to one incident.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Fewer than this are never an incident, so the smallest pools still lose single nodes.
pub const LEAST_NODES: usize = 3;
/// The part of a pool that must be silent: one in this many, and more.
const ONE_IN: usize = 4;

/// Since when the brake of a pool is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brake(Option<u64>);

/// What the brake of a pool looks at.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// All nodes of the pool.
    pub size: usize,
    /// When each node that is silent now fell silent.
    pub silent_since_ms: &'a [u64],
}

impl Brake {
    pub fn is_on(self) -> bool {
        self.0.is_some()
    }

    /// The brake at `now_ms`, given how it was.
    #[must_use]
    pub fn judged(self, pool: Pool<'_>, now_ms: u64) -> Self {
        // While it holds, the incident is what fell silent since shortly before it came on.
        let since = self.0.unwrap_or(now_ms);
        let from = since.saturating_sub(WINDOW_MS);
        let together = pool
            .silent_since_ms
            .iter()
            .filter(|at| **at >= from)
            .count();
        let incident = together >= LEAST_NODES && together * ONE_IN > pool.size;
        Self(incident.then_some(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(brake: Brake, size: usize, silent: &[u64], now: u64) -> Brake {
        brake.judged(
            Pool {
                size,
                silent_since_ms: silent,
            },
            now,
        )
    }

    #[test]
    fn comes_on_for_many_at_once_and_not_for_few() {
        let off = Brake::default();
        // (pool, silent) -> on
        let table = [
            (3, 1, false),
            (3, 2, false),
            (3, 3, true),
            (11, 3, true),
            (12, 3, false),
            (12, 4, true),
            (1000, 250, false),
            (1000, 251, true),
        ];
        for (size, silent, on) in table {
            let brake = judged(off, size, &vec![1_000_000; silent], 1_000_001);
            assert_eq!(brake.is_on(), on, "{silent} of {size}");
        }
    }

    #[test]
    fn nodes_lost_long_ago_are_no_incident() {
        let silent = [0, 0, 0, 1_000_000];
        assert!(!judged(Brake::default(), 10, &silent, 1_000_000).is_on());
    }

    #[test]
    fn holds_however_long_until_nodes_come_back() {
        let silent = [1_000_000, 1_000_000, 1_000_000];
        let on = judged(Brake::default(), 4, &silent, 1_000_000);
        let later = judged(on, 4, &silent, 1_000_000 + 10 * WINDOW_MS);
        assert_eq!(later, on);
        assert!(!judged(later, 4, &silent[..2], 1_000_000 + 10 * WINDOW_MS).is_on());
    }
}
