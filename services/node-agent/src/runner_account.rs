//! The account of task runners (TC-27).

use nix::unistd::geteuid;

/// Last number of the range for accounts of users, which no user gets.
const RUNNER_UID: u32 = 1_900_065_535;

/// Returns the user and group id of task runners. They hold credentials, so they share no account
/// with the programs of users. `None` is the account of the agent, which is not root then.
pub fn runner_uid() -> Option<u32> {
    geteuid().is_root().then_some(RUNNER_UID)
}
