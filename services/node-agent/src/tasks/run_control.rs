//! Requests to stop the running tasks of a process, from the lease loop to the workers.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::time::Instant;

use hayward_node_agent_domain::StopRequest;
use parking_lot::Mutex;

/// The last stop request, and a pipe that wakes each worker.
#[derive(Default)]
pub struct RunControl {
    stop: Mutex<Option<IssuedStop>>,
    wakers: Mutex<Vec<PipeWriter>>,
}

#[derive(Clone, Copy)]
struct IssuedStop {
    request: StopRequest,
    issued_at: Instant,
}

impl RunControl {
    /// Returns a pipe with one byte for each request.
    pub fn subscribe(&self) -> io::Result<PipeReader> {
        let (reader, writer) = io::pipe()?;
        self.wakers.lock().push(writer);
        Ok(reader)
    }

    /// Stops all tasks that run now.
    pub fn stop_all(&self, request: StopRequest) {
        *self.stop.lock() = Some(IssuedStop {
            request,
            issued_at: Instant::now(),
        });
        for waker in self.wakers.lock().iter() {
            // The write fails only for a worker that has ended.
            let _ = (&*waker).write_all(&[1]);
        }
    }

    /// Returns the request that concerns a task with this start. Tasks that started after a request
    /// go on.
    pub fn stop_for(&self, started_at: Instant) -> Option<StopRequest> {
        let stop = *self.stop.lock();
        stop.filter(|stop| stop.issued_at >= started_at)
            .map(|stop| stop.request)
    }
}
