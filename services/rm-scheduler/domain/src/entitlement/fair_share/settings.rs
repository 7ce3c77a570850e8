//! Settings of the entitlement computation of a FAIR_SHARE group, and the limit of its repetitions.

use crate::input::settings::DivisionSettings;

/// Maximum number of repetitions of a group. In the last repetition, all work is limited to its
/// cap.
pub(super) const MAX_REPETITIONS: usize = 8;

/// Settings for the entitlement computation of a group.
///
/// Growth caps depend on the holdings of work. Entitlements under growth caps could pass a
/// remainder back and forth for ever. They are therefore computed without growth caps first. Then
/// only work whose entitlement exceeds its cap is limited to the cap, until none exceeds it.
/// Entitlements below all caps do not depend on holdings, so they are stable.
pub(super) struct FairShareSettings {
    /// True if entitlements are computed without growth caps first.
    pub steady: bool,
    pub division: DivisionSettings,
}

impl FairShareSettings {
    /// Returns true if all work is limited to its cap after this many repetitions.
    pub fn caps_all_work(repetitions: usize) -> bool {
        repetitions + 1 == MAX_REPETITIONS
    }
}
