//! One enrolment of an agent, and the limits of what its node may claim.

use hayward_vocabulary::{NodeName, Size, Timestamp};

/// Principal and idempotency key of the request.
pub type EnrolmentKey = (String, String);

/// Limits of the claims of a node (S15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Maximum resources. Zero means unlimited.
    pub max_size: Size,
    /// Pool that the node must name. `None` allows any pool.
    pub pool: Option<String>,
}

impl ClaimLimits {
    /// Returns the limits, or `None` if there are none.
    pub fn new(max_size: Option<Size>, pool: Option<String>) -> Option<Self> {
        let is_limited = max_size.is_some() || pool.is_some();
        is_limited.then(|| Self {
            max_size: max_size.unwrap_or_default(),
            pool,
        })
    }

    /// Returns whether the node may name this pool.
    pub fn admits(&self, pool: &str) -> bool {
        self.pool.as_ref().is_none_or(|required| required == pool)
    }
}

/// A request for an enrolment, with the digest of the secret that the handler created.
#[derive(Debug, Clone)]
pub struct NewEnrolment {
    pub principal: String,
    pub key: String,
    pub request_digest: [u8; 32],
    pub node: NodeName,
    pub claim_limits: Option<ClaimLimits>,
    pub secret_digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    pub request_digest: Vec<u8>,
    pub node: NodeName,
    pub claim_limits: Option<ClaimLimits>,
    pub secret_digest: Vec<u8>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub used: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_limit_compares_the_whole_name() {
        let gpu = ClaimLimits::new(None, Some("gpu".into())).unwrap();
        assert!(gpu.admits("gpu") && !gpu.admits("gpu2") && !gpu.admits("default"));
        let any = ClaimLimits::new(Some(Size::memory(1)), None).unwrap();
        assert!(any.admits("gpu") && ClaimLimits::new(None, None).is_none());
    }
}
