//! Stores the output of a container in files (segments) of bounded total size. The oldest output is
//! dropped (F36).
//!
//! The first file is `output`, the next ones are `output.<offset of the first byte>`. Offsets count
//! all bytes ever written, so a late reader detects a gap. There are at most two files, each of
//! half the limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the first file, and prefix of the names of the others.
const NAME: &str = "output";

/// The segments of a container, opened by their only writer.
pub struct Segments {
    dir: PathBuf,
    file: File,
    /// Offset of the first byte of `file`.
    start: u64,
    /// Length of `file`, in bytes.
    length: u64,
    /// Path of the previous segment. `None` if there is only one.
    previous: Option<PathBuf>,
    /// Maximum length of one segment.
    max_bytes: u64,
    /// Number of bytes that could not be written.
    pub lost_bytes: u64,
}

impl Segments {
    /// Creates the first segment, which must not exist.
    pub fn create(dir: &Path, limit_bytes: u64) -> io::Result<Self> {
        let file = create(&dir.join(NAME))?;
        Ok(Self::new(dir, limit_bytes, file, 0, 0))
    }

    /// Continues at the offset recorded by a previous writer, and truncates what follows it.
    pub fn resume(dir: &Path, limit_bytes: u64, end: u64) -> io::Result<Self> {
        let (stored, obsolete): (Vec<_>, Vec<_>) = list_segments(dir)?
            .into_iter()
            .partition(|(start, _)| *start <= end);
        for (start, _) in obsolete {
            fs::remove_file(segment_path(dir, start))?;
        }
        let mut stored = stored.into_iter().rev();
        let Some((start, length)) = stored.next() else {
            let file = create(&segment_path(dir, end))?;
            return Ok(Self::new(dir, limit_bytes, file, end, 0));
        };
        let file = OpenOptions::new()
            .append(true)
            .open(segment_path(dir, start))?;
        let length = length.min(end - start);
        file.set_len(length)?;
        let mut segments = Self::new(dir, limit_bytes, file, start, length);
        segments.previous = stored.next().map(|(start, _)| segment_path(dir, start));
        for (start, _) in stored {
            fs::remove_file(segment_path(dir, start))?;
        }
        Ok(segments)
    }

    fn new(dir: &Path, limit_bytes: u64, file: File, start: u64, length: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            file,
            start,
            length,
            previous: None,
            max_bytes: (limit_bytes / 2).max(1),
            lost_bytes: 0,
        }
    }

    /// Returns the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Appends bytes and drops older ones. If the disk fails, the bytes are lost and the program
    /// continues (F29).
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.length >= self.max_bytes && self.rotate().is_err() {
                break;
            }
            let available = usize::try_from(self.max_bytes - self.length).unwrap_or(usize::MAX);
            let count = available.min(bytes.len());
            match self.file.write(&bytes[..count]) {
                Ok(written @ 1..) => {
                    self.length += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The disk is full, so the older segment is deleted once.
                Ok(_) | Err(_) if self.drop_previous() => {}
                Ok(_) | Err(_) => break,
            }
        }
        self.lost_bytes += bytes.len() as u64;
    }

    /// Appends a note on lost bytes, if possible.
    pub fn finish(&mut self) {
        if self.lost_bytes > 0 {
            let note = format!(
                "\n[hayward: the disk did not take {} bytes here]\n",
                self.lost_bytes
            );
            self.lost_bytes = 0;
            self.append(note.as_bytes());
        }
    }

    /// Begins a new segment. The full segment becomes the previous one.
    fn rotate(&mut self) -> io::Result<()> {
        let current = segment_path(&self.dir, self.start);
        let start = self.start + self.length;
        let file = create(&segment_path(&self.dir, start))?;
        self.drop_previous();
        self.previous = Some(current);
        (self.file, self.start, self.length) = (file, start, 0);
        Ok(())
    }

    /// Deletes the previous segment. Returns false if there is none.
    fn drop_previous(&mut self) -> bool {
        self.previous
            .take()
            .is_some_and(|previous| fs::remove_file(previous).is_ok())
    }
}

/// Creates a file that only the writer can read. Never follows a link (S19).
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn segment_path(dir: &Path, start: u64) -> PathBuf {
    match start {
        0 => dir.join(NAME),
        start => dir.join(format!("{NAME}.{start}")),
    }
}

/// Returns the existing segments as the offset of the first byte and the length.
fn list_segments(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut segments: Vec<(u64, u64)> = fs::read_dir(dir)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let suffix = name.to_str()?.strip_prefix(NAME)?;
            let start = match suffix.strip_prefix('.') {
                Some(start) => start.parse().ok()?,
                None if suffix.is_empty() => 0,
                None => return None,
            };
            Some((start, entry.metadata().ok()?.len()))
        })
        .collect();
    segments.sort_unstable();
    Ok(segments)
}

/// Reads up to `max_bytes` from `offset` on, among the last `backlog` stored bytes. Returns them
/// with their offset, or `None` if there are none.
pub fn read(dir: &Path, offset: u64, max_bytes: u64, backlog: u64) -> Option<(u64, Vec<u8>)> {
    let segments = list_segments(dir).ok()?;
    let (start, length) = *segments.last()?;
    let offset = offset.max((start + length).saturating_sub(backlog));
    let (start, length) = *segments
        .iter()
        .find(|(start, length)| offset < start + length)?;
    let offset = offset.max(start);
    let count = max_bytes.min(start + length - offset);
    let mut bytes = vec![0; usize::try_from(count).ok()?];
    let file = File::open(segment_path(dir, start)).ok()?;
    let read = file.read_at(&mut bytes, offset - start).ok()?;
    bytes.truncate(read);
    (read > 0).then_some((offset, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all stored output from `offset` on in small pieces. Returns it with its offset.
    fn read_all(dir: &Path, mut offset: u64) -> (u64, String) {
        let mut text = Vec::new();
        let mut first_start = None;
        while let Some((start, bytes)) = read(dir, offset, 7, u64::MAX) {
            assert!(
                first_start.is_none() || start == offset,
                "no gap once it has begun"
            );
            first_start.get_or_insert(start);
            offset = start + bytes.len() as u64;
            text.extend(bytes);
        }
        (
            first_start.unwrap_or(offset),
            String::from_utf8(text).unwrap(),
        )
    }

    #[test]
    fn the_newest_output_remains_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::create(dir.path(), 20).unwrap();
        let mut written = String::new();
        for number in 0..100 {
            let line = format!("{number:03}\n");
            segments.append(line.as_bytes());
            written.push_str(&line);
            let (start, stored) = read_all(dir.path(), 0);
            assert_eq!(stored, written[usize::try_from(start).unwrap()..]);
            assert!(stored.len() <= 20 && (stored.len() > 10 || written.len() <= 10));
            assert!(fs::read_dir(dir.path()).unwrap().count() <= 2);
        }
        let (start, stored) = read_all(dir.path(), 395);
        assert_eq!((start, stored.as_str()), (395, "\n099\n"));
        assert_eq!(
            read(dir.path(), 400, 7, 100),
            None,
            "nothing is stored from there on"
        );
        assert_eq!(
            read(dir.path(), 0, 7, 3).unwrap().0,
            397,
            "only the last bytes are read"
        );
    }

    #[test]
    fn a_later_writer_continues_at_any_recorded_offset() {
        for end in 0..=60 {
            let dir = tempfile::tempdir().unwrap();
            let mut segments = Segments::create(dir.path(), 20).unwrap();
            let mut recorded = None;
            let mut written = String::new();
            for number in 0..20 {
                if recorded.is_none() && segments.end() >= end {
                    recorded = Some(segments.end());
                }
                // The writer stops a little after the recorded offset.
                if recorded.is_none_or(|recorded| segments.end() < recorded + 7) {
                    let line = format!("{number:02}\n");
                    segments.append(line.as_bytes());
                    written.push_str(&line);
                }
            }
            // All written output may be shorter than this offset.
            let Some(recorded) = recorded else { continue };
            written.truncate(usize::try_from(recorded).unwrap());
            let mut segments = Segments::resume(dir.path(), 20, recorded).unwrap();
            for number in 50..90 {
                let line = format!("{number:02}\n");
                segments.append(line.as_bytes());
                written.push_str(&line);
                let (start, stored) = read_all(dir.path(), 0);
                assert_eq!(stored, written[usize::try_from(start).unwrap()..], "{end}");
                assert!(stored.len() <= 20);
                assert!(fs::read_dir(dir.path()).unwrap().count() <= 2);
            }
        }
    }

    #[test]
    fn the_end_of_a_piece_above_the_limit_remains() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::create(dir.path(), 8).unwrap();
        segments.append(b"abcdefghijklmnopq");
        assert_eq!(read_all(dir.path(), 0), (12, "mnopq".to_owned()));
        assert!(Segments::create(dir.path(), 8).is_err() || segments.start > 0);
    }
}
