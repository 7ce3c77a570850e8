//! The children of a supervisor: the program, launchers, and processes that lost their parent.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

use crate::process_identity;

/// Pause between two kills of the processes of a lost launcher, and the longest time for them.
const END_PAUSE: Duration = Duration::from_millis(2);
const END_LIMIT: Duration = Duration::from_secs(2);

pub fn to_pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Returns whether the program has ended, without reaping it. Reaps and returns the other children
/// that have ended.
pub fn reap_others(leader: Pid) -> (bool, Vec<Pid>) {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut others = Vec::new();
    loop {
        match waitid(Id::All, peek).map(|status| status.pid()) {
            Ok(Some(pid)) if pid == leader => return (true, others),
            Ok(Some(other)) => {
                let _ = waitpid(other, Some(WaitPidFlag::WNOHANG));
                others.push(other);
            }
            Ok(None) | Err(_) => return (false, others),
        }
    }
}

/// Kills and reaps children until only those remain that are excepted. Processes that cannot be
/// killed are left after a while.
pub fn end_children_except(is_excepted: impl Fn(Pid) -> bool) {
    let started_at = Instant::now();
    loop {
        let children = process_identity::children().into_iter().map(to_pid);
        let others: Vec<Pid> = children.filter(|child| !is_excepted(*child)).collect();
        if others.is_empty() || started_at.elapsed() > END_LIMIT {
            return;
        }
        for other in others {
            let _ = kill(other, Signal::SIGKILL);
            let _ = waitpid(other, Some(WaitPidFlag::WNOHANG));
        }
        std::thread::sleep(END_PAUSE);
    }
}

/// Kills all children. Their process ids cannot be reused before they are waited for.
pub fn kill_children() {
    for child in process_identity::children() {
        let _ = kill(to_pid(child), Signal::SIGKILL);
    }
}
