//! How a group is counted.

use crate::input::settings::DivisionSettings;

/// Recounts before the last, for which all work is held to its cap.
pub(super) const RECOUNTS: usize = 8;

/// How a group is counted.
///
/// Growth caps move with what work holds, so counting under them alone could hand a remainder back
/// and forth for ever. Therefore everyone is first counted as if growth were free, and only work
/// whose count exceeds its cap is held to it, until nobody exceeds. Where no cap binds, counts do
/// not depend on what is held, and so they stand still.
pub(super) struct CountPass {
    pub steady: bool,
    pub division: DivisionSettings,
}

impl CountPass {
    /// Is all work held to its cap after so many recounts?
    pub fn holds_all(recounts: usize) -> bool {
        recounts + 1 == RECOUNTS
    }
}
