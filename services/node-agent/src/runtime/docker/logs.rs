//! Both streams of a container, as they came, from the engine into files of limited size, where
//! they are sent on from like those of every other runtime.
//!
//! The engine puts an instant before each piece. How far the files go is kept beside them as that
//! instant, so an agent that comes later goes on behind the last piece, even when the engine has
//! turned its own files over meanwhile. Of what does not fit, the oldest goes (F36).
//!
//! While it turns its files over, an engine may give the last line twice in one stream. A whole
//! line with the instant, to the nanosecond, and the bytes of the one before is that line.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::Duration;

use bollard::container::LogOutput;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, Fault};
use super::folder::Folder;
use super::inspect::{Stage, instant};
use crate::backoff::Pause;
use crate::files;
use crate::log_segments::Segments;

/// Pieces taken together.
const AT_ONCE: usize = 1024;
/// A stream that says nothing for so long is asked for again: its engine may hang.
const SILENCE: Duration = Duration::from_mins(5);

/// Copies until the container is over and all was read.
pub async fn copy(engine: &Engine, id: &str, folder: &Folder, limit: u64) {
    let mut pause = Pause::default();
    let mut kept = match Kept::open(folder, limit) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(container = id, %error, "its output cannot be kept");
            return;
        }
    };
    let mut over = false;
    loop {
        match read_on(engine, id, &mut kept).await {
            // A stream also ends with its engine, and what was written between that end and the
            // container's own would be lost: only one that was opened afterwards has it all.
            Ok(true) if over => break,
            Ok(true) => {
                over = is_over(engine, id).await;
                if !over {
                    pause.wait().await;
                }
            }
            Ok(false) => pause.reset(),
            Err(_) if over && is_gone(engine, id).await => break,
            Err(error) => {
                if pause.is_new() {
                    tracing::warn!(container = id, error, "its output cannot be read");
                }
                pause.wait().await;
            }
        }
    }
    kept.finish();
}

async fn is_over(engine: &Engine, id: &str) -> bool {
    match engine.inspect(id).await {
        Ok(seen) => matches!(seen.stage, Stage::Over(_)),
        Err(fault) => matches!(fault, Fault::Missing(_)),
    }
}

async fn is_gone(engine: &Engine, id: &str) -> bool {
    matches!(engine.inspect(id).await, Err(Fault::Missing(_)))
}

/// True when all was read.
async fn read_on(engine: &Engine, id: &str, kept: &mut Kept<'_>) -> Result<bool, String> {
    let since = kept.since();
    kept.place.again = 0;
    let stream = engine.logs(id, since).await;
    let stream = stream.map_err(|fault| fault.message().to_owned())?;
    let mut stream = stream.ready_chunks(AT_ONCE);
    loop {
        let Ok(pieces) = tokio::time::timeout(SILENCE, stream.next()).await else {
            return Ok(false);
        };
        let Some(pieces) = pieces else {
            return Ok(true);
        };
        let mut broken = None;
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Ok(piece) => kept.place.take(&piece, &mut bytes),
                Err(error) => broken = Some(error.to_string()),
            }
        }
        kept.write(&bytes).map_err(|error| error.to_string())?;
        if let Some(broken) = broken {
            return Err(broken);
        }
    }
}

/// How far the file goes.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    bytes: u64,
    /// Instant of the last piece that was taken; all have the same number of digits.
    at: String,
    /// Pieces with that instant.
    count: u64,
    /// Hash of the last piece, when that was a whole line.
    #[serde(default)]
    line: Option<u64>,
    /// How many of those were met again in the present stream.
    #[serde(skip)]
    again: u64,
}

impl Place {
    /// Adds what of a piece is new.
    fn take(&mut self, piece: &LogOutput, bytes: &mut Vec<u8>) {
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
        let line = whole_line(&piece[space + 1..]);
        if at == self.at {
            self.again += 1;
            // What was dropped of a long line is not counted again, but its end is its end.
            let ends_it = line.is_some() && self.line.is_none();
            let seen = self.again <= self.count || (self.line.is_some() && self.line == line);
            if seen && !ends_it {
                return;
            }
        } else {
            at.clone_into(&mut self.at);
            self.again = 0;
            self.count = 0;
        }
        self.count += 1;
        self.again = self.count;
        self.line = line;
        bytes.extend_from_slice(&piece[space + 1..]);
    }
}

/// None for a part of a line: of one long line, parts may well be alike.
fn whole_line(bytes: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    bytes.ends_with(b"\n").then(|| hasher.finish())
}

struct Kept<'a> {
    folder: &'a Folder,
    segments: Segments,
    place: Place,
}

impl<'a> Kept<'a> {
    fn open(folder: &'a Folder, limit: u64) -> io::Result<Self> {
        let mut place: Place = files::read_json(&folder.place()).unwrap_or_default();
        // What was written and not noted is read again.
        let segments = Segments::resume(folder.dir(), limit, place.bytes)?;
        place.bytes = segments.end();
        Ok(Self {
            folder,
            segments,
            place,
        })
    }

    /// The second of the last piece, for the engine, which counts in whole ones.
    fn since(&self) -> i32 {
        let at = instant(&self.place.at).map_or(0, |at| at.unix_ms() / 1000);
        i32::try_from(at).unwrap_or(0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.segments.append(bytes);
        self.note()
    }

    fn note(&mut self) -> io::Result<()> {
        self.place.bytes = self.segments.end();
        files::note(&self.folder.place(), &serde_json::to_vec(&self.place)?)
    }

    /// Says how much no disk took.
    fn finish(&mut self) {
        self.segments.finish();
        // Unnoted, the next agent reads a little of it again.
        let _ = self.note();
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

    fn read(place: &mut Place, pieces: &[&str]) -> String {
        place.again = 0;
        let mut bytes = Vec::new();
        for text in pieces {
            place.take(&piece(text), &mut bytes);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_stream_read_again_from_any_point_gives_each_piece_once() {
        let all = ["1 a", "1 b", "2 c", "3 d", "3 e", "3 f", "4 g"];
        for first in 0..=all.len() {
            for from in 0..=first {
                // The engine's answer begins with a whole instant.
                let from = all
                    .iter()
                    .position(|piece| piece[..1] == all[from.min(6)][..1]);
                let mut place = Place::default();
                let begun = read(&mut place, &all[..first]);
                let rest = read(&mut place, &all[from.unwrap()..]);
                assert_eq!(format!("{begun}{rest}"), "abcdefg", "{first}");
            }
        }
    }

    #[test]
    fn a_line_that_the_engine_repeats_is_taken_once() {
        let mut place = Place::default();
        let first = ["1 xx", "1 xx", "1 \n", "2 end\n", "2 end\n"];
        assert_eq!(read(&mut place, &first), "xxxx\nend\n");
        assert_eq!(
            read(&mut place, &["2 end\n", "2 end\n", "2 more\n"]),
            "more\n"
        );
    }

    #[test]
    fn the_end_of_a_line_is_taken_though_its_parts_were_dropped_meanwhile() {
        let mut place = Place::default();
        assert_eq!(read(&mut place, &["1 x", "1 x", "1 x"]), "xxx");
        let again = ["1 x", "1 \n", "2 end\n"];
        assert_eq!(read(&mut place, &again), "\nend\n");
        assert_eq!(read(&mut place, &again[1..]), "");
    }

    fn text(folder: &Folder) -> (u64, String) {
        let (offset, bytes) = log_segments::read(folder.dir(), 0, 1000, 1000).unwrap();
        (offset, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn f36_of_a_flood_the_newest_is_kept_also_by_a_later_agent() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let mut kept = Kept::open(&folder, 10).unwrap();
        kept.write(b"12345678").unwrap();
        kept.write(b"90abc").unwrap();
        assert_eq!(text(&folder), (5, "67890".to_owned()));
        assert_eq!(
            log_segments::read(folder.dir(), 10, 9, 9).unwrap().1,
            b"abc"
        );
        let mut kept = Kept::open(&folder, 10).unwrap();
        kept.write(b"defgh").unwrap();
        assert_eq!(text(&folder), (10, "abcde".to_owned()));
        assert_eq!(
            log_segments::read(folder.dir(), 15, 9, 9).unwrap().1,
            b"fgh"
        );
    }

    #[test]
    fn what_was_not_noted_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let mut kept = Kept::open(&folder, 100).unwrap();
        kept.write(b"noted").unwrap();
        kept.segments.append(b"torn");
        let mut kept = Kept::open(&folder, 100).unwrap();
        kept.write(b" again").unwrap();
        assert_eq!(text(&folder), (0, "noted again".to_owned()));
    }
}
