//! Ends the processes that a run left: daemons outside its process group, which became children of
//! the launcher.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::process_identity;

/// Pause between two kills. A killed process may have forked before.
const PAUSE: Duration = Duration::from_millis(2);
/// Processes that do not end within this time delay the slot no longer. The next run tries again.
const LIMIT: Duration = Duration::from_secs(2);

/// Treatment of the other children of this process after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    Ended,
    /// The process has other children too.
    #[cfg(test)]
    Untouched,
}

impl Remaining {
    pub fn end(self) {
        if self == Self::Ended {
            end_children();
        }
    }
}

fn end_children() {
    let started_at = Instant::now();
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) if started_at.elapsed() > LIMIT => return,
            Ok(WaitStatus::StillAlive) => {
                for child in process_identity::children() {
                    let _ = kill(
                        Pid::from_raw(i32::try_from(child).unwrap_or(i32::MAX)),
                        Signal::SIGKILL,
                    );
                }
                thread::sleep(PAUSE);
            }
            _ => {}
        }
    }
}
