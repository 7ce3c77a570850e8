//! Both streams of a container, as they came, from the engine into one file of limited size, where
//! they are sent on from like those of every other runtime.
//!
//! The engine puts an instant before each piece. How far the file goes is kept beside it as that
//! instant, so an agent that comes later goes on behind the last piece, even when the engine has
//! turned its own files over meanwhile. Past the limit nothing more is read (F36).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use bollard::container::LogOutput;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, Fault};
use super::folder::Folder;
use super::seen::{Stage, instant};
use crate::files;
use crate::pause::Pause;

/// Pieces taken together.
const AT_ONCE: usize = 1024;
/// A stream that says nothing for so long is asked for again: its engine may hang.
const SILENCE: Duration = Duration::from_mins(5);
const NOTE: &str = "\n[hayward: no room for more output, the rest is dropped]\n";

/// Copies until the container is over and all was read, or the file is full.
pub async fn copy(engine: &Engine, id: &str, folder: &Folder, limit: u64) {
    let mut pause = Pause::default();
    let mut kept = match Kept::open(folder, limit) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(container = id, %error, "its output cannot be kept");
            return;
        }
    };
    while !kept.full {
        match read_on(engine, id, &mut kept).await {
            Ok(true) if is_over(engine, id).await => return,
            Ok(true) => pause.wait().await,
            Ok(false) => pause.reset(),
            Err(error) => {
                if pause.is_new() {
                    tracing::warn!(container = id, error, "its output cannot be read");
                }
                pause.wait().await;
            }
        }
    }
}

/// A stream also ends with its engine, which may leave its containers running.
async fn is_over(engine: &Engine, id: &str) -> bool {
    match engine.inspect(id).await {
        Ok(seen) => matches!(seen.stage, Stage::Over(_)),
        Err(fault) => matches!(fault, Fault::Missing(_)),
    }
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
        if kept.full {
            return Ok(true);
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
        if at == self.at {
            self.again += 1;
            if self.again <= self.count {
                return;
            }
        } else {
            at.clone_into(&mut self.at);
            self.again = 0;
            self.count = 0;
        }
        self.count += 1;
        self.again = self.count;
        bytes.extend_from_slice(&piece[space + 1..]);
    }
}

struct Kept<'a> {
    folder: &'a Folder,
    file: File,
    place: Place,
    limit: u64,
    full: bool,
}

impl<'a> Kept<'a> {
    fn open(folder: &'a Folder, limit: u64) -> io::Result<Self> {
        let place: Place = files::read_json(&folder.place()).unwrap_or_default();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(folder.output())?;
        let full = place.bytes >= limit;
        if !full {
            // What was written and not noted is read again.
            file.set_len(place.bytes)?;
        }
        Ok(Self {
            folder,
            file,
            place,
            limit,
            full,
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
        let room = usize::try_from(self.limit - self.place.bytes).unwrap_or(usize::MAX);
        let fits = room.min(bytes.len());
        self.file.write_all(&bytes[..fits])?;
        self.place.bytes += fits as u64;
        self.full = fits < bytes.len();
        if self.full {
            self.file.write_all(NOTE.as_bytes())?;
            self.place.bytes = self.limit;
        }
        files::note(&self.folder.place(), &serde_json::to_vec(&self.place)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn f36_the_file_has_a_limit_and_says_when_it_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let mut kept = Kept::open(&folder, 10).unwrap();
        kept.write(b"12345678").unwrap();
        assert!(!kept.full);
        kept.write(b"90abc").unwrap();
        assert!(kept.full);
        let text = std::fs::read_to_string(folder.output()).unwrap();
        assert!(text.starts_with("1234567890\n[hayward: no room"), "{text}");
        assert!(Kept::open(&folder, 10).unwrap().full);
    }

    #[test]
    fn what_was_not_noted_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        let mut kept = Kept::open(&folder, 100).unwrap();
        kept.write(b"noted").unwrap();
        kept.file.write_all(b"torn").unwrap();
        let mut kept = Kept::open(&folder, 100).unwrap();
        kept.write(b" again").unwrap();
        assert_eq!(std::fs::read(folder.output()).unwrap(), b"noted again");
    }
}
