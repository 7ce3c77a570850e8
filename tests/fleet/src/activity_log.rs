//! A program that writes the current time to a file as long as it runs, so that a test sees when
//! each allocation ran. The time counts from the boot, and all nodes of a test share this clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hayward_vocabulary::AllocationId;

/// The file that the program writes. Each line is an allocation and a time.
pub struct ActivityLog(PathBuf);

/// Hundredths of a second since the boot.
pub type Centiseconds = u64;

/// Time during which an allocation ran.
#[derive(Debug)]
pub struct Interval {
    pub allocation: AllocationId,
    /// First recorded time.
    pub first: Centiseconds,
    /// Last recorded time.
    pub last: Centiseconds,
}

impl ActivityLog {
    pub fn new(dir: &Path, name: &str) -> Self {
        let file = dir.join(format!("{name}.activity"));
        std::fs::write(&file, "").expect("a file");
        // The program may run under another account.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&file, permissions).expect("open to all");
        Self(file)
    }

    /// Returns a command that records its time every 20 ms and never ends by itself.
    pub fn command(&self) -> Vec<String> {
        vec!["sh".into(), "-c".into(), self.script()]
    }

    /// Returns the same command, but it ignores SIGTERM.
    pub fn command_ignoring_sigterm(&self) -> Vec<String> {
        let script = format!("trap '' TERM; {}", self.script());
        vec!["sh".into(), "-c".into(), script]
    }

    fn script(&self) -> String {
        format!(
            "while :; do read up rest < /proc/uptime; \
             echo $HAYWARD_ALLOCATION $up >> {}; sleep 0.02; done",
            self.0.display()
        )
    }

    /// Returns the interval of each allocation, in the order of their first times.
    pub fn intervals(&self) -> Vec<Interval> {
        let text = std::fs::read_to_string(&self.0).expect("an activity log");
        let mut intervals: BTreeMap<&str, Interval> = BTreeMap::new();
        // The last line may be incomplete.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let Some((id, up)) = line.trim_end().split_once(' ') else {
                continue;
            };
            let time: Centiseconds = up.replace('.', "").parse().expect("a time");
            let interval = intervals.entry(id).or_insert_with(|| Interval {
                allocation: AllocationId::new(id).expect("an id"),
                first: time,
                last: time,
            });
            interval.last = interval.last.max(time);
        }
        let mut intervals: Vec<Interval> = intervals.into_values().collect();
        intervals.sort_by_key(|interval| interval.first);
        intervals
    }

    /// Returns the last recorded time of an allocation, or `None` if it never ran.
    pub fn last_activity(&self, allocation: &AllocationId) -> Option<Centiseconds> {
        let intervals = self.intervals();
        let interval = intervals.iter().find(|it| it.allocation == *allocation);
        interval.map(|it| it.last)
    }

    /// Asserts that each allocation began after the previous one had ended (I4).
    pub fn assert_no_overlap(&self) {
        for pair in self.intervals().windows(2) {
            assert!(pair[0].last < pair[1].first, "two ran at once: {pair:?}");
        }
    }
}
