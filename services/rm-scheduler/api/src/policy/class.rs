//! A class: the rules work is served by.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is left out comes from the parent, and last from the defaults. After that a class
/// that is not abstract has to have a policy and a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Class {
    /// The class that has what this one leaves out, except `abstract` and `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// A template for others; no work is served by it.
    #[serde(rename = "abstract", skip_serializing_if = "is_false")]
    pub is_abstract: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SharePolicy>,
    /// The lower number is served first. 10 for `FAIR_SHARE`, 5 for `FIXED_SHARE`, 1 for `RESERVE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Divides amounts among fair-share classes of equal priority; 100 when nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// Its home. Fair-share work may also use the pools below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Serves work of its policy that names no class. At most one per policy.
    #[serde(skip_serializing_if = "is_false")]
    pub default: bool,
    /// Serves what may not be taken back and is sent to this fair-share class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug: Option<String>,
    /// Who may use it; empty means everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Place in the order of definition; classes without one come last, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// Of fair-share classes: in place of the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization_cap: Option<u64>,
    /// Of fair-share classes: in place of the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand_by_doubling: Option<bool>,
    /// Of fair-share classes: in place of the tunable `prediction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_prediction: Option<bool>,
    /// Of fair-share classes: in place of the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction_fudge_ms: Option<u64>,
    /// Seconds its work may wait for a first process before an alert tells somebody (T8); an hour
    /// when nothing is said. Nothing is decided by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_target_s: Option<u64>,
    /// Of reserve classes; historic, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<bool>,
    /// Of fixed-share classes; historic, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    /// Of reserve classes; historic, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_machines: Option<u64>,
    /// Historic, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SharePolicy {
    /// Any number of processes, in proportion to weight; what is over the due is taken back.
    FairShare,
    /// A fixed number of processes, never taken back.
    FixedShare,
    /// Whole machines, never taken back.
    Reserve,
}

impl SharePolicy {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::FairShare => "FAIR_SHARE",
            Self::FixedShare => "FIXED_SHARE",
            Self::Reserve => "RESERVE",
        }
    }
}
