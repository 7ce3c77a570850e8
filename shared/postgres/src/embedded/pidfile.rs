//! What a running server writes about itself into `postmaster.pid`.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server process and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Postmaster {
    pub(super) pid: Pid,
    pub(super) ready: bool,
}

impl Postmaster {
    /// The server that claims this data directory, if its process exists.
    pub(super) fn find(data: &Path) -> Option<Self> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let found = Self::parse(&text)?;
        kill(found.pid, None).ok().map(|()| found)
    }

    /// Line 1 is the process, line 8 its state. The file grows line by line during the start, so
    /// a missing state means "not yet".
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid: i32 = lines.next()?.trim().parse().ok()?;
        // Zero and below would name groups of processes.
        let pid = (pid > 0).then(|| Pid::from_raw(pid))?;
        let ready = lines.nth(6).is_some_and(|state| state.trim() == "ready");
        Some(Self { pid, ready })
    }

    pub(super) fn signal(self, signal: Signal) {
        // A process that is gone already is what the signal was for.
        let _ = kill(self.pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::Postmaster;

    #[test]
    fn a_half_written_file_is_not_ready() {
        let text = "4711\n/data\n1700000000\n5432\n/run\n\n  5432001   3\nready   \n";
        let found = Postmaster::parse(text).unwrap();
        assert_eq!((found.pid.as_raw(), found.ready), (4711, true));
        let text = text.replace("ready   ", "stopping");
        assert!(!Postmaster::parse(&text).unwrap().ready);
        assert!(!Postmaster::parse("4711\n/data\n").unwrap().ready);
        assert_eq!(Postmaster::parse("-1\n"), None);
        assert_eq!(Postmaster::parse(""), None);
    }
}
