//! A program that records all the time that it runs, so that a test sees when each allocation ran.
//! It writes the time since the boot, which all nodes of a test share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hayward_vocabulary::AllocationId;

pub struct ActivityLog(PathBuf);

/// Hundredths of a second since the boot.
pub type Centiseconds = u64;

impl ActivityLog {
    pub fn new(dir: &Path, name: &str) -> Self {
        let file = dir.join(format!("{name}.activity"));
        std::fs::write(&file, "").expect("a file");
        // The program may run under another account.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&file, permissions).expect("open to all");
        Self(file)
    }

    pub fn command(&self) -> Vec<String> {
        let script = format!(
            "while :; do read up rest < /proc/uptime; \
             echo $HAYWARD_ALLOCATION $up >> {}; sleep 0.02; done",
            self.0.display()
        );
        vec!["sh".into(), "-c".into(), script]
    }

    /// Returns a command that ignores SIGTERM.
    pub fn command_ignoring_sigterm(&self) -> Vec<String> {
        let mut command = self.command();
        command[2].insert_str(0, "trap '' TERM; ");
        command
    }

    /// Returns the first and last recorded time of each allocation, in the order of the first.
    pub fn intervals(&self) -> Vec<(AllocationId, Centiseconds, Centiseconds)> {
        let text = std::fs::read_to_string(&self.0).expect("an activity log");
        let mut intervals: BTreeMap<&str, (Centiseconds, Centiseconds)> = BTreeMap::new();
        // The last line may be incomplete.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let Some((id, up)) = line.trim_end().split_once(' ') else {
                continue;
            };
            let time: Centiseconds = up.replace('.', "").parse().expect("a time");
            let interval = intervals.entry(id).or_insert((time, time));
            interval.1 = interval.1.max(time);
        }
        let parse_id = |id: &str| AllocationId::new(id).expect("an id");
        let mut intervals: Vec<_> = intervals
            .into_iter()
            .map(|(allocation, (first, last))| (parse_id(allocation), first, last))
            .collect();
        intervals.sort_by_key(|(_, first, _)| *first);
        intervals
    }

    pub fn last_activity(&self, allocation: &AllocationId) -> Option<Centiseconds> {
        let intervals = self.intervals();
        let interval = intervals.iter().find(|(id, ..)| id == allocation);
        interval.map(|(_, _, last)| *last)
    }

    /// Asserts that each allocation began after the previous one had ended (I4).
    pub fn assert_no_overlap(&self) {
        for pair in self.intervals().windows(2) {
            assert!(pair[0].2 < pair[1].1, "two at once: {pair:?}");
        }
    }
}
