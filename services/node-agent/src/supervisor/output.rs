//! Both streams of a container, as they came, in one file of limited size.
//!
//! The program is never held up: past the limit the pipe is still emptied, and what comes out of it
//! is counted and dropped (F36).

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub struct Output {
    file: File,
    reader: Option<PipeReader>,
    writer: Option<PipeWriter>,
    room: u64,
    dropped: u64,
}

impl Output {
    pub fn open(dir: &Path, limit_bytes: u64) -> io::Result<Self> {
        let path = dir.join(super::OUTPUT);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (Some(reader), Some(writer));
        Ok(Self {
            file,
            reader,
            writer,
            room: limit_bytes,
            dropped: 0,
        })
    }

    /// The ends for the program. Ours is closed with them, so that the last writer ends the stream.
    pub fn ends(&mut self) -> io::Result<(PipeWriter, PipeWriter)> {
        let writer = self
            .writer
            .take()
            .ok_or_else(|| io::Error::other("given away before"))?;
        Ok((writer.try_clone()?, writer))
    }

    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.as_fd())
    }

    /// Moves what is there. To be called when there is something, or it waits.
    pub fn take(&mut self) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        let mut buffer = [0; 16 * 1024];
        match reader.read(&mut buffer) {
            Ok(0) => self.reader = None,
            Ok(length) => self.keep(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.reader = None,
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let fits = usize::try_from(self.room)
            .unwrap_or(usize::MAX)
            .min(piece.len());
        // A full disk ends the keeping, not the program (F29).
        let kept = if self.file.write_all(&piece[..fits]).is_ok() {
            fits
        } else {
            0
        };
        self.room -= fits as u64;
        if kept < piece.len() && self.dropped == 0 {
            let note = "\n[hayward: no room for more output, the rest is dropped]\n";
            let _ = self.file.write_all(note.as_bytes());
        }
        self.dropped += (piece.len() - kept) as u64;
    }

    /// Takes what is still in the pipe.
    pub fn finish(&mut self) {
        let now = Timespec::default();
        while let Some(pipe) = self.pipe() {
            let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
            match poll(&mut fds, Some(&now)) {
                Ok(1..) => self.take(),
                _ => return,
            }
        }
    }
}
