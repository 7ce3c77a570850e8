//! The agent's memory on disk: one line per record, its checksum first.
//!
//! Invariants: what [`Journal::append`] returned for with `sync` survives the machine; a tail that
//! a crash tore or zeroed is cut off, because nothing was done on the strength of it; a broken line
//! with whole ones behind it is damage, and whoever opened it is told so (F30), as of a journal
//! that is not there or was written under another boot. It is rewritten without what is over when
//! it is opened and whenever that is most of it (I25).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use hayward_node_agent_domain::{Doubt, Past, Record, journal};

use crate::fault_points::{self, Point};
use crate::files::{self, checksum};
use crate::follow::Position;

/// Bytes of records that are over before they are worth a rewriting.
const OVER: u64 = 1 << 20;

/// Where records go. Without a file nothing is kept: the machine behind it is pretended.
pub struct Journal(Option<Kept>);

struct Kept {
    path: PathBuf,
    file: File,
    /// What its records tell.
    past: Past,
    length: u64,
    /// Bytes when it was rewritten last.
    fresh: u64,
}

/// What opening found.
pub struct Opened {
    pub journal: Journal,
    pub past: Past,
    /// Why absence of a record proves nothing, if it does not.
    pub doubt: Option<Doubt>,
}

impl Opened {
    /// The newest position that anything was done on the word of.
    pub fn obeyed(&self) -> Option<Position> {
        Position::parse(self.past.seen.as_deref()?)
    }
}

impl Journal {
    pub fn nowhere() -> Opened {
        Opened {
            journal: Self(None),
            past: Past::default(),
            doubt: None,
        }
    }

    /// Replays the journal of this directory and rewrites it without what is over.
    ///
    /// # Errors
    /// When it can be neither read nor written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<Opened> {
        let path = dir.join("journal");
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (records, damaged) = read(&content);
        let mut past = Past::replay(records);
        let doubt = journal::doubt(&past, damaged, boot_id);
        past.boot_id = Some(boot_id.to_owned());
        if damaged {
            // What is left is rewritten below; a person may want to see what it was.
            files::replace(&dir.join("journal.damaged"), &content)?;
        }
        let kept = Kept::begin(path, past.clone())?;
        Ok(Opened {
            journal: Self(Some(kept)),
            past,
            doubt,
        })
    }

    /// Writes records in one piece; with `sync`, on disk when this returns.
    ///
    /// # Errors
    /// When the disk refuses: what was to be written must then be treated as not written.
    pub fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        let Some(kept) = &mut self.0 else {
            return Ok(());
        };
        kept.append(records, sync)?;
        if kept.length > kept.fresh * 2 + OVER {
            // A disk without room for it has the longer one still.
            if let Err(error) = kept.rewrite() {
                tracing::warn!(%error, "the journal cannot be rewritten and grows");
            }
        }
        Ok(())
    }

    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

impl Kept {
    fn begin(path: PathBuf, past: Past) -> io::Result<Self> {
        let content = lines(&past.compacted())?;
        let file = files::replace_open(&path, &content)?;
        let length = content.len() as u64;
        Ok(Self {
            path,
            file,
            past,
            length,
            fresh: length,
        })
    }

    fn rewrite(&mut self) -> io::Result<()> {
        *self = Self::begin(self.path.clone(), self.past.clone())?;
        Ok(())
    }

    fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let content = lines(records)?;
        fault_points::pass(Point::JournalBefore);
        let written = self.file.write_all(&content);
        fault_points::pass(Point::JournalWritten);
        let done = if sync {
            written.and_then(|()| self.file.sync_data())
        } else {
            written
        };
        if done.is_err() {
            // Half a line would look like damage once another line follows it.
            self.file.set_len(self.length)?;
            return done;
        }
        self.length += content.len() as u64;
        for record in records {
            self.past.tell(record.clone());
        }
        fault_points::pass(Point::JournalAfter);
        Ok(())
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
        let mut opened = Journal::open(dir, "boot").unwrap();
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
                let opened = Journal::open(dir.path(), "boot").unwrap();
                // The line break is the only byte a record can do without.
                let whole = content[..length]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                // The first line says that there is a journal at all.
                let told = opened.past.stories.len() + usize::from(opened.doubt.is_none());
                assert_ne!(opened.doubt, Some(Doubt::Damaged));
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
        // The second line: the first of the intents.
        let second = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        content[second + 30] ^= 1;
        fs::write(dir.path().join("journal"), &content).unwrap();
        let opened = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!(opened.doubt, Some(Doubt::Damaged));
        assert_eq!(opened.past.stories.len(), 2);
        assert!(Journal::open(dir.path(), "boot").unwrap().doubt.is_none());
    }

    #[test]
    fn i3_a_new_a_zeroed_and_another_boots_journal_are_doubted() {
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
    fn i25_a_journal_stays_as_short_as_what_it_tells() {
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
        assert!(longest > OVER && longest < OVER * 2, "{longest}");
        let past = Journal::open(dir.path(), "boot").unwrap().past;
        assert_eq!((past.stories.len(), past.seen), (0, Some(cursor)));
    }
}
