//! The current time. This crate has no clock, so the caller provides each instant.

/// An instant on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time for all timeouts; it restarts with the process.
    pub monotonic_ms: u64,
    /// Wall time for the window of failures, which outlives the process.
    pub unix_ms: i64,
}
