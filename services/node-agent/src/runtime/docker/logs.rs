//! Copies both output streams of a container from the engine into the log segments of the agent.
//!
//! The engine puts a timestamp in front of each piece of output. The last timestamp is stored next
//! to the segments. A later agent continues after that timestamp, even if the engine has rotated
//! its own files. The oldest output is dropped (F36).
//!
//! During a rotation the engine may send the last line twice in one stream. A complete line with
//! the same timestamp and bytes as the previous one is treated as a repetition.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::Duration;

use bollard::container::LogOutput;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::container_folder::ContainerFolder;
use super::engine::{Engine, Fault};
use super::inspect::{Stage, parse_timestamp};
use crate::atomic_files;
use crate::backoff::Backoff;
use crate::log_segments::Segments;

/// Maximum number of pieces written at once.
const MAX_BATCH: usize = 1024;
/// Time after which a silent stream is reopened, because the engine may hang.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(5);

/// Copies until the container has ended and all output was read.
pub async fn copy_output(engine: &Engine, id: &str, folder: &ContainerFolder, limit: u64) {
    let mut backoff = Backoff::default();
    let mut copy = match OutputCopy::open(folder, limit) {
        Ok(copy) => copy,
        Err(error) => {
            tracing::warn!(container = id, %error, "cannot store the output");
            return;
        }
    };
    let mut ended = false;
    loop {
        match read_stream(engine, id, &mut copy).await {
            // A stream also ends when the engine stops. Only a stream opened after the end of the
            // container is complete.
            Ok(true) if ended => break,
            Ok(true) => {
                ended = has_ended(engine, id).await;
                if !ended {
                    backoff.wait().await;
                }
            }
            Ok(false) => backoff.reset(),
            Err(_) if ended && is_removed(engine, id).await => break,
            Err(error) => {
                if backoff.is_first_failure() {
                    tracing::warn!(container = id, error, "cannot read the output");
                }
                backoff.wait().await;
            }
        }
    }
    copy.finish();
}

async fn has_ended(engine: &Engine, id: &str) -> bool {
    match engine.inspect(id).await {
        Ok(inspection) => matches!(inspection.stage, Stage::Ended(_)),
        Err(fault) => matches!(fault, Fault::Missing(_)),
    }
}

async fn is_removed(engine: &Engine, id: &str) -> bool {
    matches!(engine.inspect(id).await, Err(Fault::Missing(_)))
}

/// Reads one stream of output. Returns true at its end, and false if it stays silent for too long.
async fn read_stream(engine: &Engine, id: &str, copy: &mut OutputCopy<'_>) -> Result<bool, String> {
    let since = copy.since_second();
    copy.position.repeated = 0;
    let stream = engine.logs(id, since).await;
    let stream = stream.map_err(|fault| fault.message().to_owned())?;
    let mut stream = stream.ready_chunks(MAX_BATCH);
    loop {
        let Ok(pieces) = tokio::time::timeout(SILENCE_TIMEOUT, stream.next()).await else {
            return Ok(false);
        };
        let Some(pieces) = pieces else {
            return Ok(true);
        };
        let mut stream_error = None;
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Ok(piece) => copy.position.append_new(&piece, &mut bytes),
                Err(error) => stream_error = Some(error.to_string()),
            }
        }
        copy.write(&bytes).map_err(|error| error.to_string())?;
        if let Some(stream_error) = stream_error {
            return Err(stream_error);
        }
    }
}

/// Position up to which the output was copied.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CopyPosition {
    /// Number of copied bytes.
    bytes: u64,
    /// Timestamp of the last copied piece. All timestamps have the same number of digits.
    at: String,
    /// Number of pieces with that timestamp.
    count: u64,
    /// Hash of the last piece, if it was a complete line.
    #[serde(default)]
    line: Option<u64>,
    /// Number of pieces with that timestamp that the current stream has delivered again.
    #[serde(skip)]
    repeated: u64,
}

impl CopyPosition {
    /// Appends the new part of a piece to `bytes`.
    fn append_new(&mut self, piece: &LogOutput, bytes: &mut Vec<u8>) {
        let piece = piece.as_ref();
        let Some(space) = piece.iter().position(|byte| *byte == b' ') else {
            return;
        };
        let Ok(at) = std::str::from_utf8(&piece[..space]) else {
            return;
        };
        if at < self.at.as_str() {
            return;
        }
        let line = hash_complete_line(&piece[space + 1..]);
        if at == self.at {
            self.repeated += 1;
            // A part of a long line may have been dropped. The end of that line is still appended,
            // although it looks like a repetition.
            let ends_dropped_line = line.is_some() && self.line.is_none();
            let is_repetition =
                self.repeated <= self.count || (self.line.is_some() && self.line == line);
            if is_repetition && !ends_dropped_line {
                return;
            }
        } else {
            at.clone_into(&mut self.at);
            self.repeated = 0;
            self.count = 0;
        }
        self.count += 1;
        self.repeated = self.count;
        self.line = line;
        bytes.extend_from_slice(&piece[space + 1..]);
    }
}

/// Returns the hash of a complete line. Returns `None` for a part of one, because parts of a long
/// line may be equal.
fn hash_complete_line(bytes: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    bytes.ends_with(b"\n").then(|| hasher.finish())
}

struct OutputCopy<'a> {
    folder: &'a ContainerFolder,
    segments: Segments,
    position: CopyPosition,
}

impl<'a> OutputCopy<'a> {
    fn open(folder: &'a ContainerFolder, limit: u64) -> io::Result<Self> {
        let mut position: CopyPosition =
            atomic_files::read_json(&folder.position_file()).unwrap_or_default();
        // Output after the last stored position is read again.
        let segments = Segments::resume(folder.dir(), limit, position.bytes)?;
        position.bytes = segments.end();
        Ok(Self {
            folder,
            segments,
            position,
        })
    }

    /// Returns the second of the last piece, because the engine uses whole seconds.
    fn since_second(&self) -> i32 {
        let seconds = parse_timestamp(&self.position.at).map_or(0, |at| at.unix_ms() / 1000);
        i32::try_from(seconds).unwrap_or(0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.segments.append(bytes);
        self.store_position()
    }

    fn store_position(&mut self) -> io::Result<()> {
        self.position.bytes = self.segments.end();
        atomic_files::replace_unsynced(
            &self.folder.position_file(),
            &serde_json::to_vec(&self.position)?,
        )
    }

    /// Appends a note on lost bytes.
    fn finish(&mut self) {
        self.segments.finish();
        // If the position cannot be stored, a later agent reads some output again.
        let _ = self.store_position();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_segments;

    fn piece(text: &str) -> LogOutput {
        LogOutput::StdOut {
            message: text.to_owned().into_bytes().into(),
        }
    }

    /// Opens a stream with these pieces, each with a timestamp and a text. Returns the copied text.
    fn read(position: &mut CopyPosition, pieces: &[&str]) -> String {
        position.repeated = 0;
        let mut bytes = Vec::new();
        for text in pieces {
            position.append_new(&piece(text), &mut bytes);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_stream_reopened_at_any_point_gives_each_piece_once() {
        // Each piece is a timestamp of one digit, a space and a text of one letter.
        let pieces = ["1 a", "1 b", "2 c", "3 d", "3 e", "3 f", "4 g"];
        let last_index = pieces.len() - 1;
        for first_end in 0..=pieces.len() {
            for start in 0..=first_end {
                // The reopened stream starts with all pieces of one timestamp.
                let timestamp = &pieces[start.min(last_index)][..1];
                let start = pieces
                    .iter()
                    .position(|piece| piece.starts_with(timestamp))
                    .unwrap();
                let mut position = CopyPosition::default();
                let first_part = read(&mut position, &pieces[..first_end]);
                let second_part = read(&mut position, &pieces[start..]);
                assert_eq!(
                    format!("{first_part}{second_part}"),
                    "abcdefg",
                    "{first_end}"
                );
            }
        }
    }

    #[test]
    fn a_line_repeated_by_the_engine_is_copied_once() {
        let mut position = CopyPosition::default();
        let first = ["1 xx", "1 xx", "1 \n", "2 end\n", "2 end\n"];
        assert_eq!(read(&mut position, &first), "xxxx\nend\n");
        assert_eq!(
            read(&mut position, &["2 end\n", "2 end\n", "2 more\n"]),
            "more\n"
        );
    }

    #[test]
    fn the_end_of_a_line_is_copied_after_its_parts_were_dropped() {
        let mut position = CopyPosition::default();
        assert_eq!(read(&mut position, &["1 x", "1 x", "1 x"]), "xxx");
        let reopened = ["1 x", "1 \n", "2 end\n"];
        assert_eq!(read(&mut position, &reopened), "\nend\n");
        assert_eq!(read(&mut position, &reopened[1..]), "");
    }

    fn read_stored(folder: &ContainerFolder) -> (u64, String) {
        let (offset, bytes) = log_segments::read(folder.dir(), 0, 1000, 1000).unwrap();
        (offset, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_newest_output_remains_across_agents() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ContainerFolder::new(dir.path().to_owned());
        let mut copy = OutputCopy::open(&folder, 10).unwrap();
        copy.write(b"12345678").unwrap();
        copy.write(b"90abc").unwrap();
        assert_eq!(read_stored(&folder), (5, "67890".to_owned()));
        assert_eq!(
            log_segments::read(folder.dir(), 10, 9, 9).unwrap().1,
            b"abc"
        );
        let mut copy = OutputCopy::open(&folder, 10).unwrap();
        copy.write(b"defgh").unwrap();
        assert_eq!(read_stored(&folder), (10, "abcde".to_owned()));
        assert_eq!(
            log_segments::read(folder.dir(), 15, 9, 9).unwrap().1,
            b"fgh"
        );
    }

    #[test]
    fn output_after_the_stored_position_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ContainerFolder::new(dir.path().to_owned());
        let mut copy = OutputCopy::open(&folder, 100).unwrap();
        copy.write(b"stored").unwrap();
        copy.segments.append(b"torn");
        let mut copy = OutputCopy::open(&folder, 100).unwrap();
        copy.write(b" again").unwrap();
        assert_eq!(read_stored(&folder), (0, "stored again".to_owned()));
    }
}
