//! Settings of a count, and the limit of its recounts.

use crate::input::settings::DivisionSettings;

/// Most recounts of a group. In the last one, all work is held to its cap.
pub(super) const RECOUNTS: usize = 8;

/// Settings for the count of a group.
///
/// Growth caps depend on the holdings of work. Counting under them alone could pass a remainder
/// back and forth for ever. Work is therefore counted without growth caps first. Then only work
/// whose count exceeds its cap is held to the cap, until no count exceeds. Counts below all caps do
/// not depend on holdings, so they are stable.
pub(super) struct CountPass {
    pub steady: bool,
    pub division: DivisionSettings,
}

impl CountPass {
    /// Returns true if all work is held to its cap after this many recounts.
    pub fn holds_all(recounts: usize) -> bool {
        recounts + 1 == RECOUNTS
    }
}
