//! Stores both output streams of a container, in order and within a limit.
//!
//! The program never blocks: all output is read from the pipe, and the oldest is dropped (F36).

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::log_segments::Segments;

pub struct Output {
    segments: Segments,
    reader: Option<PipeReader>,
    writer: Option<PipeWriter>,
}

impl Output {
    pub fn open(dir: &Path, limit_bytes: u64) -> io::Result<Self> {
        let segments = Segments::create(dir, limit_bytes)?;
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (Some(reader), Some(writer));
        Ok(Self {
            segments,
            reader,
            writer,
        })
    }

    /// Returns the write ends for stdout and stderr. The supervisor keeps none, so the stream ends
    /// with its last writer.
    pub fn take_writers(&mut self) -> io::Result<(PipeWriter, PipeWriter)> {
        let writer = self
            .writer
            .take()
            .ok_or_else(|| io::Error::other("the write ends were already taken"))?;
        Ok((writer.try_clone()?, writer))
    }

    /// Returns the read end, or `None` after the end of the stream.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.as_fd())
    }

    /// Reads available output. Blocks if there is none.
    pub fn read(&mut self) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        let mut buffer = [0; 16 * 1024];
        match reader.read(&mut buffer) {
            Ok(0) => self.reader = None,
            Ok(length) => self.segments.append(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.reader = None,
        }
    }

    /// Reads the rest of the pipe.
    pub fn finish(&mut self) {
        self.read_available();
        self.segments.finish();
    }

    fn read_available(&mut self) {
        let now = Timespec::default();
        while let Some(pipe) = self.pipe() {
            let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
            match poll(&mut fds, Some(&now)) {
                Ok(1..) => self.read(),
                _ => return,
            }
        }
    }
}
