//! A program that writes marks all the time. A mark is a time of the machine clock, which all nodes
//! of a test share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hayward_vocabulary::AllocationId;

pub struct Marks(PathBuf);

/// A time in hundredths of a second since the boot.
pub type Mark = u64;

impl Marks {
    pub fn new(dir: &Path, name: &str) -> Self {
        let file = dir.join(format!("{name}.marks"));
        std::fs::write(&file, "").expect("a file");
        // The program may run under another account.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&file, open).expect("open to all");
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

    /// Returns a command that ignores the request to end.
    pub fn stubborn(&self) -> Vec<String> {
        let mut command = self.command();
        command[2].insert_str(0, "trap '' TERM; ");
        command
    }

    /// Returns the first and last mark of each allocation, in the order of the first.
    pub fn lives(&self) -> Vec<(AllocationId, Mark, Mark)> {
        let text = std::fs::read_to_string(&self.0).expect("marks");
        let mut lives: BTreeMap<&str, (Mark, Mark)> = BTreeMap::new();
        // The last line may be incomplete.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let Some((id, up)) = line.trim_end().split_once(' ') else {
                continue;
            };
            let at: Mark = up.replace('.', "").parse().expect("a time");
            let life = lives.entry(id).or_insert((at, at));
            life.1 = life.1.max(at);
        }
        let id = |id: &str| AllocationId::new(id).expect("an id");
        let mut lives: Vec<_> = lives
            .into_iter()
            .map(|(allocation, (first, last))| (id(allocation), first, last))
            .collect();
        lives.sort_by_key(|(_, first, _)| *first);
        lives
    }

    pub fn last_of(&self, allocation: &AllocationId) -> Option<Mark> {
        let lives = self.lives();
        let life = lives.iter().find(|(id, ..)| id == allocation);
        life.map(|(_, _, last)| *last)
    }

    /// Asserts that each allocation began after the previous one had ended (I4).
    pub fn never_two(&self) {
        for pair in self.lives().windows(2) {
            assert!(pair[0].2 < pair[1].1, "two at once: {pair:?}");
        }
    }
}
