//! Classes of the policy. A class has the rules by which its work is served: policy, priority,
//! weight and pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Absent values come from the parent, and last from the defaults. A class that is not abstract
/// then needs a policy and a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Class {
    /// The class that provides absent values, except `abstract` and `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// A template for other classes, which serves no work.
    #[serde(rename = "abstract", skip_serializing_if = "is_false")]
    pub is_abstract: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SharePolicy>,
    /// Lower numbers are served first. 10 for `FAIR_SHARE`, 5 for `FIXED_SHARE`, 1 for `RESERVE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Divides amounts among fair-share classes of equal priority. Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// The pool of the class. Fair-share work may also use its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Serves work of its policy that names no class. At most one for each policy.
    #[serde(skip_serializing_if = "is_false")]
    pub default: bool,
    /// The class for non-preemptable work that names this fair-share class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug: Option<String>,
    /// Users that may use it; empty means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Position in the order of definition. Classes without one come last, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// `FAIR_SHARE` classes only. Replaces the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization_cap: Option<u64>,
    /// `FAIR_SHARE` classes only. Replaces the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand_by_doubling: Option<bool>,
    /// `FAIR_SHARE` classes only. Replaces the tunable `prediction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_prediction: Option<bool>,
    /// `FAIR_SHARE` classes only. Replaces the tunable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction_fudge_ms: Option<u64>,
    /// Seconds its work may wait for a first process before an alert. Default: an hour. It has no
    /// effect on plans (T8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_target_s: Option<u64>,
    /// `RESERVE` classes only. Accepted for compatibility; ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<bool>,
    /// `FIXED_SHARE` classes only. Accepted for compatibility; ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    /// `RESERVE` classes only. Accepted for compatibility; ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_machines: Option<u64>,
    /// Accepted for compatibility; ignored.
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
    /// Any number of processes, in proportion to weight. Processes beyond the entitlement are
    /// preemptable.
    FairShare,
    /// A fixed number of processes, never preempted.
    FixedShare,
    /// Whole nodes, never preempted.
    Reserve,
}

impl SharePolicy {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FairShare => "FAIR_SHARE",
            Self::FixedShare => "FIXED_SHARE",
            Self::Reserve => "RESERVE",
        }
    }
}
