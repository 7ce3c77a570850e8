//! The journal of the agent. A line is the checksum of a record as 16 hex digits, a space, and the
//! record as JSON.
//!
//! Invariants:
//! - Records appended with `sync` survive a crash of the node.
//! - A torn or zeroed tail is cut off, because no action followed from it.
//! - Damage, which is a broken line before an intact one, is reported as a [`Doubt`].
//! - A missing journal or one of another boot is reported as a [`Doubt`] too (F30).
//! - The journal is compacted when it is opened and when most of it is obsolete.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use hayward_node_agent_domain::{Doubt, JournalState, Record, journal_recovery};

use crate::atomic_files;
use crate::checksum::checksum;
use crate::desired_set::Position;
use crate::fault_points::{self, Point};

/// Number of bytes by which a journal must exceed twice its compacted length to be compacted again.
const MAX_OBSOLETE_BYTES: u64 = 1 << 20;
/// Number of hex digits of the checksum at the start of a line.
const HASH_DIGITS: usize = 16;

/// The journal of an agent. It is `None` on a simulated node, which has no file.
pub struct Journal(Option<JournalFile>);

struct JournalFile {
    path: PathBuf,
    file: File,
    /// State after all records of the journal.
    state: JournalState,
    /// Length of the file, in bytes.
    length: u64,
    /// Length of the file after the last compaction, in bytes.
    compacted_length: u64,
}

/// An opened journal.
pub struct OpenedJournal {
    pub journal: Journal,
    pub state: JournalState,
    /// Why containers without a record may have been started before. `None` if that is impossible.
    pub doubt: Option<Doubt>,
}

impl OpenedJournal {
    /// Returns the newest position that was acted on.
    pub fn last_applied(&self) -> Option<Position> {
        Position::parse(self.state.cursor.as_deref()?)
    }
}

impl Journal {
    pub fn in_memory() -> OpenedJournal {
        OpenedJournal {
            journal: Self(None),
            state: JournalState::default(),
            doubt: None,
        }
    }

    /// Replays and compacts the journal of this directory.
    ///
    /// # Errors
    /// If the journal can be neither read nor written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<OpenedJournal> {
        let path = dir.join("journal");
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (records, damaged) = decode(&content);
        let mut state = JournalState::replay(records);
        let doubt = journal_recovery::journal_doubt(&state, damaged, boot_id);
        state.boot_id = Some(boot_id.to_owned());
        if damaged {
            // Keeps a copy for diagnosis, because the journal is rewritten below.
            atomic_files::replace(&dir.join("journal.damaged"), &content)?;
        }
        let journal_file = JournalFile::create(path, state.clone())?;
        Ok(OpenedJournal {
            journal: Self(Some(journal_file)),
            state,
            doubt,
        })
    }

    /// Writes records with one write. With `sync`, they are on disk on return.
    ///
    /// # Errors
    /// If the disk fails. The records then count as not written.
    pub fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        let Some(journal_file) = &mut self.0 else {
            return Ok(());
        };
        journal_file.append(records, sync)?;
        if journal_file.length > journal_file.compacted_length * 2 + MAX_OBSOLETE_BYTES {
            // If there is no space for a rewrite, the longer journal stays valid.
            if let Err(error) = journal_file.rewrite() {
                tracing::warn!(%error, "the journal cannot be rewritten and grows");
            }
        }
        Ok(())
    }

    pub fn is_persistent(&self) -> bool {
        self.0.is_some()
    }
}

impl JournalFile {
    fn create(path: PathBuf, state: JournalState) -> io::Result<Self> {
        let content = encode(&state.to_compact_records())?;
        let file = atomic_files::replace_open(&path, &content)?;
        let length = content.len() as u64;
        Ok(Self {
            path,
            file,
            state,
            length,
            compacted_length: length,
        })
    }

    fn rewrite(&mut self) -> io::Result<()> {
        *self = Self::create(self.path.clone(), self.state.clone())?;
        Ok(())
    }

    fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let content = encode(records)?;
        fault_points::pass(Point::JournalBefore);
        let written = self.file.write_all(&content);
        fault_points::pass(Point::JournalWritten);
        let result = if sync {
            written.and_then(|()| self.file.sync_data())
        } else {
            written
        };
        if result.is_err() {
            // A partial line before another line would count as damage.
            self.file.set_len(self.length)?;
            return result;
        }
        self.length += content.len() as u64;
        for record in records {
            self.state.apply(record.clone());
        }
        fault_points::pass(Point::JournalAfter);
        Ok(())
    }
}

fn encode(records: &[Record]) -> io::Result<Vec<u8>> {
    let mut encoded = Vec::new();
    for record in records {
        let text = serde_json::to_vec(record)?;
        write!(encoded, "{:016x} ", checksum(&text))?;
        encoded.extend_from_slice(&text);
        encoded.push(b'\n');
    }
    Ok(encoded)
}

/// Returns the intact records, and whether a broken line comes before one of them.
fn decode(content: &[u8]) -> (Vec<Record>, bool) {
    let mut records = Vec::new();
    let (mut has_broken_line, mut is_damaged) = (false, false);
    for line in content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match decode_line(line) {
            Some(record) => {
                is_damaged |= has_broken_line;
                records.push(record);
            }
            None => has_broken_line = true,
        }
    }
    (records, is_damaged)
}

fn decode_line(line: &[u8]) -> Option<Record> {
    let (prefix, text) = line.split_at_checked(HASH_DIGITS + 1)?;
    let digits = std::str::from_utf8(&prefix[..HASH_DIGITS]).ok()?;
    let hash = u64::from_str_radix(digits, 16).ok()?;
    (hash == checksum(text)).then(|| serde_json::from_slice(text).ok())?
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

    fn write_journal(dir: &Path) -> Vec<u8> {
        let mut opened = Journal::open(dir, "boot").unwrap();
        opened
            .journal
            .append(&[intent(1), intent(2), intent(3)], true)
            .unwrap();
        fs::read(dir.join("journal")).unwrap()
    }

    #[test]
    fn a_torn_or_zeroed_tail_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let content = write_journal(dir.path());
        for length in 0..content.len() {
            for zeros in [0, 700] {
                let mut torn = content[..length].to_vec();
                torn.resize(length + zeros, 0);
                fs::write(dir.path().join("journal"), &torn).unwrap();
                let opened = Journal::open(dir.path(), "boot").unwrap();
                // A record is intact even without its line break.
                let complete_lines = content[..length]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                // The first line records the boot and not a container.
                let known = opened.state.containers.len() + usize::from(opened.doubt.is_none());
                assert_ne!(opened.doubt, Some(Doubt::Damaged));
                assert!(
                    known == complete_lines || (zeros == 0 && known == complete_lines + 1),
                    "{length} {zeros}"
                );
            }
        }
    }

    #[test]
    fn a_broken_line_in_the_middle_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = write_journal(dir.path());
        // The second line is the first of the intents.
        let second_line = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        // A changed byte after the checksum breaks the line.
        content[second_line + 30] ^= 1;
        fs::write(dir.path().join("journal"), &content).unwrap();
        let opened = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!(opened.doubt, Some(Doubt::Damaged));
        assert_eq!(opened.state.containers.len(), 2);
        assert!(Journal::open(dir.path(), "boot").unwrap().doubt.is_none());
    }

    #[test]
    fn a_new_zeroed_or_other_boot_journal_reports_a_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let doubt = |boot: &str| Journal::open(dir.path(), boot).unwrap().doubt;
        assert_eq!(doubt("boot"), Some(Doubt::Lost));
        assert_eq!(doubt("boot"), None);
        assert_eq!(doubt("later"), Some(Doubt::Restarted));
        assert_eq!(doubt("later"), None);
        fs::write(dir.path().join("journal"), [0; 500]).unwrap();
        assert_eq!(doubt("later"), Some(Doubt::Lost));
    }

    #[test]
    fn a_journal_is_compacted() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = Journal::open(dir.path(), "boot").unwrap();
        let cursor = "0190b5a0c5f47c5e8f3c000000000001-9".to_owned();
        let mut longest = 0;
        for number in 0..20_000 {
            let forgotten = Record::Forgotten {
                id: AllocationId::new(format!("alc_{number}")).unwrap(),
            };
            let records = [
                intent(number),
                forgotten,
                Record::Seen {
                    cursor: cursor.clone(),
                },
            ];
            opened.journal.append(&records, false).unwrap();
            longest = longest.max(fs::metadata(dir.path().join("journal")).unwrap().len());
        }
        assert!(
            longest > MAX_OBSOLETE_BYTES && longest < MAX_OBSOLETE_BYTES * 2,
            "{longest}"
        );
        let state = Journal::open(dir.path(), "boot").unwrap().state;
        assert_eq!((state.containers.len(), state.cursor), (0, Some(cursor)));
    }
}
