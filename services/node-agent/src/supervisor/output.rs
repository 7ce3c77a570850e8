//! Both streams of a container, as they came, within a limited room.
//!
//! The program is never held up: the pipe is always emptied, and of what does not fit the oldest
//! goes (F36).

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::log_segments::Segments;

pub struct Output {
    kept: Segments,
    reader: Option<PipeReader>,
    writer: Option<PipeWriter>,
}

impl Output {
    pub fn open(dir: &Path, limit_bytes: u64) -> io::Result<Self> {
        let kept = Segments::begin(dir, limit_bytes)?;
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (Some(reader), Some(writer));
        Ok(Self {
            kept,
            reader,
            writer,
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
            Ok(length) => self.kept.append(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.reader = None,
        }
    }

    /// Takes what is still in the pipe.
    pub fn finish(&mut self) {
        self.drain();
        self.kept.finish();
    }

    fn drain(&mut self) {
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
