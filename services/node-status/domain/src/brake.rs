//! B1: when many nodes of a pool fall silent within minutes, the network or ourselves are a
//! likelier cause than the machines, and giving them all up would stop work that still runs. The
//! brake then holds until enough of them are heard again; an operator who knows better varies a
//! node off. When it comes off, the others are likely to be on their way: they are spared a while.

/// Nodes that fell silent this recently belong to one incident.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Fewer than this are never an incident, so the smallest pools still lose single nodes.
pub const LEAST_NODES: usize = 3;
/// So many are one however large the pool is: a rack, a switch.
pub const MOST_NODES: usize = 10;
/// The part of a pool that must be silent: one in this many, and more.
const ONE_IN: usize = 4;

/// Since when the brake of a pool is on, and when it last came off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brake {
    since_ms: Option<u64>,
    released_ms: Option<u64>,
}

/// What the brake of a pool looks at.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// All nodes of the pool.
    pub size: usize,
    /// When each node that is silent now fell silent.
    pub silent_since_ms: &'a [u64],
}

/// Whether so many of a pool that fall silent together are an incident.
pub fn incident(together: usize, size: usize) -> bool {
    together >= LEAST_NODES && (together * ONE_IN > size || together >= MOST_NODES)
}

impl Brake {
    pub fn is_on(self) -> bool {
        self.since_ms.is_some()
    }

    /// Until when nobody is given up after the brake came off.
    pub fn spares_until_ms(self, grace_ms: u64) -> u64 {
        self.released_ms
            .map_or(0, |released| released.saturating_add(grace_ms))
    }

    /// The brake at `now_ms`, given how it was.
    #[must_use]
    pub fn judged(self, pool: Pool<'_>, now_ms: u64) -> Self {
        // While it holds, the incident is what fell silent since shortly before it came on.
        let since = self.since_ms.unwrap_or(now_ms);
        let from = since.saturating_sub(WINDOW_MS);
        let together = pool
            .silent_since_ms
            .iter()
            .filter(|at| **at >= from)
            .count();
        let on = incident(together, pool.size);
        Self {
            since_ms: on.then_some(since),
            released_ms: if self.is_on() && !on {
                Some(now_ms)
            } else {
                self.released_ms
            },
        }
    }
}

#[cfg(test)]
mod tests;
