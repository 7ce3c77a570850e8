//! Messages between a task runner and a launcher, over a stream socket. Each message is a frame:
//! its length in four bytes, and JSON.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use hayward_job_converter_api::tasks::{LeasedTask, RunTerms, TaskReport};
use hayward_node_agent_domain::StopRequest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::run_plan::LauncherContext;

/// Maximum length of a frame in bytes. Terms with a script and all variables are far smaller.
const MAX_FRAME: usize = 64 << 20;
const LENGTH_BYTES: usize = 4;
const BUFFER_BYTES: usize = 16 << 10;

/// A message for a launcher.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToLauncher {
    /// The first message. The supervisor sends it.
    Setup(Box<LauncherContext>),
    /// Terms of all later runs.
    Terms(Box<RunTerms>),
    Run(Box<RunOrder>),
    /// Stops the run with this number. It has no effect on another run.
    Stop {
        run: u64,
        request: StopRequest,
    },
    /// Sends a signal to the run with this number.
    Signal {
        run: u64,
        signal: i32,
    },
}

/// An order to run a task.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOrder {
    pub task: LeasedTask,
    /// Number of the run among those of the process, from 1.
    pub number: u64,
}

/// A message of a launcher.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromLauncher {
    /// The first message. The launcher can run tasks.
    Ready,
    Ended(Box<TaskReport>),
}

/// Writes one frame.
pub fn send<M: Serialize>(mut stream: &UnixStream, message: &M) -> io::Result<()> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - LENGTH_BYTES).map_err(io::Error::other)?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// Receives frames.
pub struct Receiver<M> {
    stream: UnixStream,
    buffer: Vec<u8>,
    received: VecDeque<M>,
    is_closed: bool,
    message: PhantomData<M>,
}

impl<M: DeserializeOwned> Receiver<M> {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            received: VecDeque::new(),
            is_closed: false,
            message: PhantomData,
        }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns whether the other side has closed the socket.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Waits for the next message. Returns `None` when the other side has closed the socket.
    pub fn wait(&mut self) -> io::Result<Option<M>> {
        while self.received.is_empty() && !self.is_closed {
            self.read()?;
        }
        Ok(self.received.pop_front())
    }

    /// Removes and returns the received messages that match. The others stay in order.
    pub fn take_matching(&mut self, matches: impl Fn(&M) -> bool) -> Vec<M> {
        let all = std::mem::take(&mut self.received);
        let (matching, rest): (Vec<M>, Vec<M>) = all.into_iter().partition(matches);
        self.received.extend(rest);
        matching
    }

    /// Reads what is available. Blocks if there is nothing.
    pub fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; BUFFER_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.is_closed = true,
            Ok(length) => self.buffer.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.is_closed = true,
            Err(error) => return Err(error),
        }
        while let Some(message) = self.take_frame()? {
            self.received.push_back(message);
        }
        Ok(())
    }

    fn take_frame(&mut self) -> io::Result<Option<M>> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
        if length > MAX_FRAME {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(frame)?;
        self.buffer.drain(..LENGTH_BYTES + length);
        Ok(Some(message))
    }
}

impl<M> AsFd for Receiver<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use hayward_node_agent_domain::StopReason;

    use super::*;

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (near, far) = UnixStream::pair().unwrap();
        let terms = |name: &str| {
            let terms = serde_json::json!({
                "job": "job_1", "name": name, "user": "ada", "command": [], "warn_signal": "USR1",
                "stop_signal": "TERM", "stop_grace_ms": 1,
            });
            ToLauncher::Terms(serde_json::from_value(terms).unwrap())
        };
        // The frame is longer than one read.
        let long = "x".repeat(3 * BUFFER_BYTES);
        let writer = std::thread::spawn(move || {
            send(&near, &terms(&long)).unwrap();
            let stop = StopRequest {
                reason: StopReason::Requested,
                latest_kill_at_ms: 7,
            };
            let stop = ToLauncher::Stop {
                run: 1,
                request: stop,
            };
            send(&near, &stop).unwrap();
            send(&near, &terms("short")).unwrap();
        });
        let mut receiver = Receiver::<ToLauncher>::new(far);
        let name = |message: Option<ToLauncher>| match message {
            Some(ToLauncher::Terms(terms)) => terms.name.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(name(receiver.wait().unwrap()), 3 * BUFFER_BYTES);
        while !receiver.is_closed() {
            receiver.read().unwrap();
        }
        writer.join().unwrap();
        let stops = receiver.take_matching(|message| matches!(message, ToLauncher::Stop { .. }));
        assert_eq!(stops.len(), 1);
        assert_eq!(name(receiver.wait().unwrap()), 5);
        assert!(receiver.wait().unwrap().is_none());
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused() {
        let (near, far) = UnixStream::pair().unwrap();
        (&near).write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(Receiver::<ToLauncher>::new(far).read().is_err());
    }
}
