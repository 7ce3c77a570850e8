//! Parser of `postmaster.pid`, the file in which a running server records its process and state.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server process and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Postmaster {
    pub(super) pid: Pid,
    pub(super) is_ready: bool,
}

impl Postmaster {
    /// Returns the server that owns this data directory, if its process exists.
    pub(super) fn find(data: &Path) -> Option<Self> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let found = Self::parse(&text)?;
        kill(found.pid, None).ok().map(|()| found)
    }

    /// Parses the file. Line 1 is the process id, line 8 the state. The file grows line by line
    /// during the start, so a missing state means that the server is not ready.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid: i32 = lines.next()?.trim().parse().ok()?;
        // Zero and negative numbers would be process groups.
        let pid = (pid > 0).then(|| Pid::from_raw(pid))?;
        let is_ready = lines.nth(6).is_some_and(|state| state.trim() == "ready");
        Some(Self { pid, is_ready })
    }

    pub(super) fn signal(self, signal: Signal) {
        // If the process no longer exists, the signal is not needed.
        let _ = kill(self.pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::Postmaster;

    #[test]
    fn a_partly_written_file_means_not_ready() {
        let text = "4711\n/data\n1700000000\n5432\n/run\n\n  5432001   3\nready   \n";
        let found = Postmaster::parse(text).unwrap();
        assert_eq!((found.pid.as_raw(), found.is_ready), (4711, true));
        let text = text.replace("ready   ", "stopping");
        assert!(!Postmaster::parse(&text).unwrap().is_ready);
        assert!(!Postmaster::parse("4711\n/data\n").unwrap().is_ready);
        assert_eq!(Postmaster::parse("-1\n"), None);
        assert_eq!(Postmaster::parse(""), None);
    }
}
