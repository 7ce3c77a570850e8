//! Requests to stop the running tasks of a process, from the lease loop to the launchers.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use hayward_node_agent_domain::StopRequest;
use parking_lot::Mutex;

use crate::launcher::messages::{self, ToLauncher};

/// The last stop request, and the launcher of each slot.
#[derive(Default)]
pub struct RunControl(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    stop: Option<IssuedStop>,
    launchers: BTreeMap<usize, UnixStream>,
}

#[derive(Clone, Copy)]
struct IssuedStop {
    request: StopRequest,
    issued_at: Instant,
}

impl RunControl {
    pub fn set_launcher(&self, slot: usize, launcher: UnixStream) {
        self.0.lock().launchers.insert(slot, launcher);
    }

    /// Stops all tasks that run now.
    pub fn stop_all(&self, request: StopRequest) {
        let mut inner = self.0.lock();
        inner.stop = Some(IssuedStop {
            request,
            issued_at: Instant::now(),
        });
        for launcher in inner.launchers.values() {
            // The message is lost only if the launcher has ended, and its run with it.
            let _ = messages::send(launcher, &ToLauncher::Stop(request));
        }
    }

    /// Sends the order to run a task that was taken at `taken_at`. A stop that was requested since
    /// then concerns the task too.
    pub fn start_run(
        &self,
        launcher: &UnixStream,
        order: &ToLauncher,
        taken_at: Instant,
    ) -> io::Result<()> {
        let inner = self.0.lock();
        messages::send(launcher, order)?;
        match inner.stop {
            Some(stop) if stop.issued_at >= taken_at => {
                messages::send(launcher, &ToLauncher::Stop(stop.request))
            }
            _ => Ok(()),
        }
    }
}
