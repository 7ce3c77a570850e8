//! Signals of a supervisor as descriptors that can be polled.
//!
//! Signals are caught, not blocked. The started program would inherit a blocked SIGTERM and could
//! not be stopped.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

pub struct Signals {
    /// Readable after SIGTERM or SIGCHLD.
    wake: UnixStream,
    /// Readable after SIGTERM.
    stop: UnixStream,
    /// Receiver of SIGINT and SIGHUP of the terminal, which are ignored.
    _ignored: UnixStream,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let (wake, wake_writer) = UnixStream::pair()?;
        let (stop, stop_writer) = UnixStream::pair()?;
        let (ignored, ignored_writer) = UnixStream::pair()?;
        // `stop` is registered before `wake`, so that it is readable when `wake` becomes readable.
        pipe::register(SIGTERM, stop_writer)?;
        pipe::register(SIGTERM, wake_writer.try_clone()?)?;
        pipe::register(SIGCHLD, wake_writer)?;
        pipe::register(SIGINT, ignored_writer.try_clone()?)?;
        pipe::register(SIGHUP, ignored_writer)?;
        wake.set_nonblocking(true)?;
        stop.set_nonblocking(true)?;
        Ok(Self {
            wake,
            stop,
            _ignored: ignored,
        })
    }

    /// Returns whether a stop was requested since the last call.
    pub fn stop_requested(&mut self) -> bool {
        read_available(&mut self.wake);
        read_available(&mut self.stop)
    }
}

/// Reads all that is available. Returns whether there was anything.
fn read_available(stream: &mut UnixStream) -> bool {
    let mut received = false;
    let mut buffer = [0; 64];
    while let Ok(1..) = stream.read(&mut buffer) {
        received = true;
    }
    received
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
