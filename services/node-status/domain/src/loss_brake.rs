//! The brake of a pool keeps node-status from declaring many nodes lost at once. When many nodes of
//! a pool lose contact within minutes, the network or this service is the probable cause. The brake
//! then comes on, and no node of the pool becomes lost. The brake releases when enough nodes are
//! back, and the other nodes get a grace period. An operator overrides the brake for one node by
//! varying the node off (B1).

/// Milliseconds within which losses belong to one incident.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Minimum number of losses of an incident. Single nodes of small pools can still become lost.
pub const MIN_NODES: usize = 3;
/// Number of losses that are an incident in a pool of any size, such as the loss of a rack.
pub const ANY_POOL_NODES: usize = 10;
/// Fewer losses are an incident only if they are more than the pool size divided by this number.
const POOL_DIVISOR: usize = 4;

/// Brake of one pool: the time at which the brake came on, and the time of its last release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brake {
    since_ms: Option<u64>,
    released_ms: Option<u64>,
}

/// Input of the brake.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// Number of all nodes of the pool.
    pub size: usize,
    /// Times at which the silent nodes lost contact, in milliseconds.
    pub silent_since_ms: &'a [u64],
}

/// Returns whether this number of simultaneous losses is an incident.
pub fn is_incident(losses: usize, pool_size: usize) -> bool {
    losses >= MIN_NODES && (losses * POOL_DIVISOR > pool_size || losses >= ANY_POOL_NODES)
}

impl Brake {
    pub fn is_on(self) -> bool {
        self.since_ms.is_some()
    }

    /// Returns the time before which no node becomes lost after the brake released.
    pub fn not_lost_before_ms(self, grace_ms: u64) -> u64 {
        self.released_ms
            .map_or(0, |released_ms| released_ms.saturating_add(grace_ms))
    }

    /// Returns the state of the brake at `now_ms`.
    #[must_use]
    pub fn update(self, pool: Pool<'_>, now_ms: u64) -> Self {
        // While the brake is on, losses from shortly before it came on belong to the incident.
        let since_ms = self.since_ms.unwrap_or(now_ms);
        let window_start_ms = since_ms.saturating_sub(WINDOW_MS);
        let losses = pool
            .silent_since_ms
            .iter()
            .filter(|at_ms| **at_ms >= window_start_ms)
            .count();
        let is_on = is_incident(losses, pool.size);
        Self {
            since_ms: is_on.then_some(since_ms),
            released_ms: if self.is_on() && !is_on {
                Some(now_ms)
            } else {
                self.released_ms
            },
        }
    }
}

#[cfg(test)]
mod tests;
