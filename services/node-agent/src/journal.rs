//! The agent's memory on disk: one line per record, its checksum first.
//!
//! Invariants: what [`Journal::append`] returned for with `sync` survives the machine; a tail that
//! a crash tore or zeroed is cut off, because nothing was done on the strength of it; a broken line
//! with whole ones behind it is damage, and whoever opened it is told so (F30). Opening compacts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hayward_node_agent_domain::{Past, Record};

use crate::files;

/// Where records go. Without a file nothing is kept: the machine behind it is pretended.
pub struct Journal(Option<File>);

/// What opening found.
pub struct Opened {
    pub journal: Journal,
    pub past: Past,
    /// Records are missing in the middle: absence of a record proves nothing.
    pub damaged: bool,
}

impl Journal {
    pub fn nowhere() -> Opened {
        Opened {
            journal: Self(None),
            past: Past::default(),
            damaged: false,
        }
    }

    /// Replays the journal of this directory and rewrites it without what is over.
    ///
    /// # Errors
    /// When it can be neither read nor written.
    pub fn open(dir: &Path) -> io::Result<Opened> {
        let path = dir.join("journal");
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (records, damaged) = read(&content);
        let past = Past::replay(records);
        if damaged {
            // What is left is rewritten below; a person may want to see what it was.
            files::replace(&dir.join("journal.damaged"), &content)?;
        }
        files::replace(&path, &lines(&past.compacted())?)?;
        let file = OpenOptions::new().append(true).mode(0o600).open(&path)?;
        Ok(Opened {
            journal: Self(Some(file)),
            past,
            damaged,
        })
    }

    /// Writes records in one piece; with `sync`, on disk when this returns.
    ///
    /// # Errors
    /// When the disk refuses: what was to be written must then be treated as not written.
    pub fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        let Some(file) = &mut self.0 else {
            return Ok(());
        };
        let length = file.metadata()?.len();
        let written = file.write_all(&lines(records)?);
        let done = if sync {
            written.and_then(|()| file.sync_data())
        } else {
            written
        };
        if done.is_err() {
            // Half a line would look like damage once another line follows it.
            file.set_len(length)?;
        }
        done
    }

    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

/// Where the position in the followed publication is kept (R9).
pub fn position_file(dir: &Path) -> PathBuf {
    dir.join("position")
}

fn lines(records: &[Record]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for record in records {
        let text = serde_json::to_vec(record)?;
        write!(lines, "{:016x} ", checksum(&text))?;
        lines.extend_from_slice(&text);
        lines.push(b'\n');
    }
    Ok(lines)
}

/// The whole records, and whether broken ones stand between them.
fn read(content: &[u8]) -> (Vec<Record>, bool) {
    let mut records = Vec::new();
    let (mut broken, mut damaged) = (false, false);
    for line in content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match whole(line) {
            Some(record) => {
                damaged |= broken;
                records.push(record);
            }
            None => broken = true,
        }
    }
    (records, damaged)
}

fn whole(line: &[u8]) -> Option<Record> {
    let (sum, text) = line.split_at_checked(17)?;
    let sum = u64::from_str_radix(std::str::from_utf8(&sum[..16]).ok()?, 16).ok()?;
    (sum == checksum(text)).then(|| serde_json::from_slice(text).ok())?
}

/// FNV-1a: it tells a torn line from a whole one, it does not stop a forger.
fn checksum(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayward_vocabulary::AllocationId;

    fn intent(number: u64) -> Record {
        Record::Intent {
            id: AllocationId::new(format!("alc_{number}")).unwrap(),
            incarnation: 1,
            epoch: 1,
            boot_id: "boot".into(),
        }
    }

    fn written(dir: &Path) -> Vec<u8> {
        let mut opened = Journal::open(dir).unwrap();
        opened
            .journal
            .append(&[intent(1), intent(2), intent(3)], true)
            .unwrap();
        fs::read(dir.join("journal")).unwrap()
    }

    #[test]
    fn f30_any_torn_or_zeroed_tail_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let content = written(dir.path());
        for length in 0..content.len() {
            for zeros in [0, 700] {
                let mut torn = content[..length].to_vec();
                torn.resize(length + zeros, 0);
                fs::write(dir.path().join("journal"), &torn).unwrap();
                let opened = Journal::open(dir.path()).unwrap();
                assert!(!opened.damaged);
                // The line break is the only byte a record can do without.
                let whole = content[..length]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                let told = opened.past.stories.len();
                assert!(
                    told == whole || (zeros == 0 && told == whole + 1),
                    "{length} {zeros}"
                );
            }
        }
    }

    #[test]
    fn f30_a_hole_in_the_middle_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = written(dir.path());
        content[30] ^= 1;
        fs::write(dir.path().join("journal"), &content).unwrap();
        let opened = Journal::open(dir.path()).unwrap();
        assert!(opened.damaged);
        assert_eq!(opened.past.stories.len(), 2);
        assert!(!Journal::open(dir.path()).unwrap().damaged);
    }
}
