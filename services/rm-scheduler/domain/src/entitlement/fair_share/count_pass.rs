//! Settings of a count, and when it ends.

use crate::input::settings::DivisionSettings;

/// Recounts before the last one, which holds all work to its cap.
pub(super) const RECOUNTS: usize = 8;

/// How a group is counted.
///
/// Growth caps depend on what work holds, so counting under them alone could pass a remainder back
/// and forth for ever. Work is therefore counted without growth caps first. Only work whose count
/// exceeds its cap is held to it, until none exceeds. Counts below all caps do not depend on
/// holdings, so they are stable.
pub(super) struct CountPass {
    pub steady: bool,
    pub division: DivisionSettings,
}

impl CountPass {
    /// True if all work is held to its cap after so many recounts.
    pub fn holds_all(recounts: usize) -> bool {
        recounts + 1 == RECOUNTS
    }
}
