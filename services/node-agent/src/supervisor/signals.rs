//! The signals of a supervisor, as something that can be waited for.
//!
//! They are caught and not blocked: what is blocked stays blocked in the program that is started,
//! which would then never hear that it should end. What is caught is not inherited.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

pub struct Signals {
    wake: UnixStream,
    end: UnixStream,
    /// Where the terminal's signals go, which are meant for others.
    _unheard: UnixStream,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        let (end, ended) = UnixStream::pair()?;
        let (unheard, ignored) = UnixStream::pair()?;
        // The order matters: whoever is woken finds the request to end already there.
        pipe::register(SIGTERM, ended)?;
        pipe::register(SIGTERM, woken.try_clone()?)?;
        pipe::register(SIGCHLD, woken)?;
        pipe::register(SIGINT, ignored.try_clone()?)?;
        pipe::register(SIGHUP, ignored)?;
        wake.set_nonblocking(true)?;
        end.set_nonblocking(true)?;
        Ok(Self {
            wake,
            end,
            _unheard: unheard,
        })
    }

    /// Whether the request to end came since it was asked last.
    pub fn asked_to_end(&mut self) -> bool {
        drain(&mut self.wake);
        drain(&mut self.end)
    }
}

fn drain(stream: &mut UnixStream) -> bool {
    let mut heard = false;
    let mut buffer = [0; 64];
    while let Ok(1..) = stream.read(&mut buffer) {
        heard = true;
    }
    heard
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
