//! Brake against mass loss. When many nodes of a pool lose contact within minutes, the network or
//! this service is the likelier cause, so no node of the pool becomes lost. The brake releases when
//! enough nodes are back; the others then get a further grace. An operator can override it by
//! varying a node off (B1).

/// Losses within this time, in milliseconds, belong to one incident.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Smallest incident. Small pools therefore still lose single nodes.
pub const MIN_NODES: usize = 3;
/// This many losses are an incident in a pool of any size, such as the loss of a rack.
pub const ALWAYS_NODES: usize = 10;
/// More than one node in this many must be silent.
const ONE_IN: usize = 4;

/// Brake of one pool: when it came on, and when it last released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brake {
    since_ms: Option<u64>,
    released_ms: Option<u64>,
}

/// Input of the brake.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// All nodes of the pool.
    pub size: usize,
    /// When each silent node lost contact, in milliseconds.
    pub silent_since_ms: &'a [u64],
}

/// True when this many simultaneous losses are an incident.
pub fn incident(together: usize, size: usize) -> bool {
    together >= MIN_NODES && (together * ONE_IN > size || together >= ALWAYS_NODES)
}

impl Brake {
    pub fn is_on(self) -> bool {
        self.since_ms.is_some()
    }

    /// Instant before which no node becomes lost after the brake released.
    pub fn not_lost_before_ms(self, grace_ms: u64) -> u64 {
        self.released_ms
            .map_or(0, |released| released.saturating_add(grace_ms))
    }

    /// The new state of the brake at `now_ms`.
    #[must_use]
    pub fn judged(self, pool: Pool<'_>, now_ms: u64) -> Self {
        // While the brake is on, the incident includes losses from shortly before it came on.
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
