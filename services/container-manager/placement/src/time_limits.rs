//! Time limits of placement actions, from the settings of container-manager.

#[derive(Debug, Clone, Copy)]
pub struct TimeLimits {
    /// Milliseconds that a request for an allocation may wait, unless it has its own limit.
    pub request_timeout_ms: u64,
    /// Milliseconds after which a stop counts as failed.
    pub stop_timeout_ms: u64,
}
