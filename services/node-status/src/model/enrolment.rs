//! One enrolment, and what it lets a node claim.

use hayward_vocabulary::{NodeName, Size, Timestamp};

/// Who asked, and the key they asked with.
pub type EnrolmentKey = (String, String);

/// What a node may claim (S14, S15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// What is zero in it is not limited.
    pub most: Size,
    /// Absent: any.
    pub pool: Option<String>,
}

impl Bounds {
    /// None where nothing is bounded.
    pub fn of(most: Option<Size>, pool: Option<String>) -> Option<Self> {
        let bounded = most.is_some() || pool.is_some();
        bounded.then(|| Self {
            most: most.unwrap_or_default(),
            pool,
        })
    }

    /// Whether the node may say that it is in this pool: exactly this name (S5).
    pub fn admits(&self, pool: &str) -> bool {
        self.pool.as_ref().is_none_or(|own| own == pool)
    }
}

/// A request for an enrolment, with the digest of a secret its caller made up.
#[derive(Debug, Clone)]
pub struct Asked {
    pub principal: String,
    pub key: String,
    pub request_digest: [u8; 32],
    pub node: NodeName,
    pub bounds: Option<Bounds>,
    pub secret_digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    pub request_digest: Vec<u8>,
    pub node: NodeName,
    pub bounds: Option<Bounds>,
    pub secret_digest: Vec<u8>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub used: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s14_a_pool_is_bound_by_its_whole_name() {
        let gpu = Bounds::of(None, Some("gpu".into())).unwrap();
        assert!(gpu.admits("gpu") && !gpu.admits("gpu2") && !gpu.admits("default"));
        let any = Bounds::of(Some(Size::memory(1)), None).unwrap();
        assert!(any.admits("gpu") && Bounds::of(None, None).is_none());
    }
}
