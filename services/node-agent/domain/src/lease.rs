//! How long leased tasks may run (I4).
//!
//! The lender counts the lease from when it answered, the holder from when it *asked*: whatever the
//! answer took on its way, the holder is the first to stop. It stops a margin earlier still.

/// A lease by the holder's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// When the request left that was answered last.
    asked_ms: u64,
    lease_ms: u64,
}

impl Lease {
    pub fn new(asked_ms: u64, lease_ms: u64) -> Self {
        Self { asked_ms, lease_ms }
    }

    /// Time kept free to end what runs: a tenth, at most five seconds.
    pub fn margin_ms(self) -> u64 {
        (self.lease_ms / 10).min(5_000)
    }

    /// From here on it should be renewed: two more tries fit before the end.
    pub fn renew_at_ms(self) -> u64 {
        self.asked_ms.saturating_add(self.lease_ms / 3)
    }

    /// From here on nothing may run under it.
    pub fn stop_at_ms(self) -> u64 {
        self.asked_ms
            .saturating_add(self.lease_ms - self.margin_ms())
    }

    pub fn holds(self, now_ms: u64) -> bool {
        now_ms < self.stop_at_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_holder_renews_first_and_stops_before_the_lender_lets_go(
            asked in 0..u64::from(u32::MAX), lease_ms in 30..10_000_000_u64, took in 0..1_000_u64,
        ) {
            let lease = Lease::new(asked, lease_ms);
            let lender_ends = asked + took + lease_ms;
            prop_assert!(lease.renew_at_ms() < lease.stop_at_ms());
            prop_assert!(lease.stop_at_ms() < lender_ends);
            prop_assert!(!lease.holds(lender_ends));
        }
    }
}
