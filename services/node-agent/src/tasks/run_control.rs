//! Requests to stop and to signal running tasks, from the loops that call job-converter to the
//! launchers.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hayward_job_converter_api::tasks::LeasedTask;
use hayward_node_agent_domain::StopRequest;
use nix::sys::signal::Signal;
use parking_lot::Mutex;

use crate::launcher::messages::{self, RunOrder, ToLauncher};

/// Longest time that a message to a launcher may take.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Stop requests, and the launcher of each slot.
#[derive(Default)]
pub struct RunControl(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The last request for all tasks.
    stop: Option<IssuedStop>,
    /// Requests for single tasks.
    task_stops: BTreeMap<Run, StopRequest>,
    slots: BTreeMap<usize, Slot>,
}

struct Slot {
    launcher: UnixStream,
    current: Option<CurrentRun>,
}

/// The run of a slot, with its number among the runs of the process.
#[derive(Clone, Copy)]
struct CurrentRun {
    run: Run,
    number: u64,
}

/// A run of a task, which a process has once at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub task: u64,
    pub attempt: u32,
}

impl Run {
    pub fn of(task: &LeasedTask) -> Self {
        Self {
            task: task.task,
            attempt: task.attempt,
        }
    }
}

#[derive(Clone, Copy)]
struct IssuedStop {
    request: StopRequest,
    issued_at: Instant,
}

impl RunControl {
    pub fn set_launcher(&self, slot: usize, launcher: UnixStream) {
        // A task can stop its launcher, and the runner must not wait for it.
        let _ = launcher.set_write_timeout(Some(WRITE_LIMIT));
        let slot_state = Slot {
            launcher,
            current: None,
        };
        self.0.lock().slots.insert(slot, slot_state);
    }

    /// Stops all tasks that run now.
    pub fn stop_all(&self, request: StopRequest) {
        let mut inner = self.0.lock();
        inner.stop = Some(IssuedStop {
            request,
            issued_at: Instant::now(),
        });
        for slot in inner.slots.values() {
            slot.send(|current| ToLauncher::Stop {
                run: current.number,
                request,
            });
        }
    }

    /// Stops one run, also if it starts later.
    pub fn stop_task(&self, run: Run, request: StopRequest) {
        let mut inner = self.0.lock();
        inner.task_stops.insert(run, request);
        if let Some(slot) = inner.slot_of(run) {
            slot.send(|current| ToLauncher::Stop {
                run: current.number,
                request,
            });
        }
    }

    /// Sends a signal to a run, unless it has ended.
    pub fn signal_task(&self, run: Run, signal: Signal) {
        if let Some(slot) = self.0.lock().slot_of(run) {
            slot.send_signal(signal);
        }
    }

    /// Sends an order to the launcher of a slot. The task was taken at `taken_at`. Stops that were
    /// requested since then concern it too.
    pub fn start_run(&self, slot: usize, order: RunOrder, taken_at: Instant) -> io::Result<()> {
        let mut guard = self.0.lock();
        let inner = &mut *guard;
        let current = CurrentRun {
            run: Run::of(&order.task),
            number: order.number,
        };
        let slot = inner.slots.get_mut(&slot);
        let slot = slot.ok_or_else(|| io::Error::other("the slot has no launcher"))?;
        messages::send(&slot.launcher, &ToLauncher::Run(Box::new(order)))?;
        slot.current = Some(current);
        let stop = inner.stop.filter(|stop| stop.issued_at >= taken_at);
        let task_stop = inner.task_stops.get(&current.run).copied();
        for request in stop.map(|stop| stop.request).into_iter().chain(task_stop) {
            slot.send(|current| ToLauncher::Stop {
                run: current.number,
                request,
            });
        }
        Ok(())
    }

    /// Forgets the requests for a run that has ended.
    pub fn forget(&self, run: Run) {
        let mut inner = self.0.lock();
        inner.task_stops.remove(&run);
        let mut slots = inner.slots.values_mut();
        if let Some(slot) = slots.find(|slot| slot.runs(run)) {
            slot.current = None;
        }
    }
}

impl Inner {
    fn slot_of(&self, run: Run) -> Option<&Slot> {
        self.slots.values().find(|slot| slot.runs(run))
    }
}

impl Slot {
    fn runs(&self, run: Run) -> bool {
        self.current.is_some_and(|current| current.run == run)
    }

    fn send_signal(&self, signal: Signal) {
        self.send(|current| ToLauncher::Signal {
            run: current.number,
            signal: signal as i32,
        });
    }

    /// Sends a message about the current run, if there is one.
    fn send(&self, message: impl FnOnce(CurrentRun) -> ToLauncher) {
        if let Some(current) = self.current {
            // The message is lost only if the launcher has ended, and its run with it.
            let _ = messages::send(&self.launcher, &message(current));
        }
    }
}

#[cfg(test)]
mod tests {
    use hayward_node_agent_domain::StopReason;

    use super::*;
    use crate::launcher::messages::Receiver;

    const STOP: StopRequest = StopRequest {
        reason: StopReason::Requested,
        latest_kill_at_ms: 7,
    };

    fn order(task: u64, number: u64) -> RunOrder {
        let task = serde_json::json!({ "task": task, "attempt": 1, "argv": [] });
        RunOrder {
            task: serde_json::from_value(task).unwrap(),
            number,
        }
    }

    /// Returns the kinds of the next messages, and the runs that they name.
    fn received(launcher: &mut Receiver<ToLauncher>, count: usize) -> Vec<(&'static str, u64)> {
        let mut messages = Vec::new();
        while messages.len() < count {
            match launcher.wait().unwrap().unwrap() {
                ToLauncher::Run(order) => messages.push(("run", order.number)),
                ToLauncher::Stop { run, .. } => messages.push(("stop", run)),
                ToLauncher::Signal { run, .. } => messages.push(("signal", run)),
                other => panic!("{other:?}"),
            }
        }
        messages
    }

    #[test]
    fn a_stop_reaches_its_run_also_if_it_starts_later() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut launcher = Receiver::new(far);
        let control = RunControl::default();
        control.set_launcher(0, near);
        let run = |task| Run { task, attempt: 1 };
        control.stop_task(run(5), STOP);
        control.start_run(0, order(4, 1), Instant::now()).unwrap();
        control.forget(run(4));
        control.start_run(0, order(5, 2), Instant::now()).unwrap();
        let expected = [("run", 1), ("run", 2), ("stop", 2)];
        assert_eq!(received(&mut launcher, 3), expected);
        control.forget(run(5));
        // A stop of an ended run is sent to no other run.
        control.stop_task(run(5), STOP);
        control.forget(run(5));
        let taken_before = Instant::now();
        control.stop_all(STOP);
        control.start_run(0, order(6, 3), taken_before).unwrap();
        control.start_run(0, order(7, 4), Instant::now()).unwrap();
        let expected = [("run", 3), ("stop", 3), ("run", 4)];
        assert_eq!(received(&mut launcher, 3), expected);
    }

    #[test]
    fn a_signal_reaches_its_run_only() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut launcher = Receiver::new(far);
        let control = RunControl::default();
        control.set_launcher(0, near);
        let run = |task| Run { task, attempt: 1 };
        control.start_run(0, order(4, 1), Instant::now()).unwrap();
        control.signal_task(run(4), Signal::SIGUSR2);
        control.forget(run(4));
        control.signal_task(run(4), Signal::SIGUSR1);
        control.start_run(0, order(5, 2), Instant::now()).unwrap();
        let expected = [("run", 1), ("signal", 1), ("run", 2)];
        assert_eq!(received(&mut launcher, 3), expected);
    }
}
