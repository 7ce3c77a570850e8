//! The slots of a task runner. A thread for each slot takes tasks from the queue and has its
//! launcher run them.
//!
//! The supervisor sends the socket of each launcher over the standard input of the runner, with the
//! number of its slot. When a launcher ends, its slot gets another one.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use hayward_job_converter_api::tasks::{EndCause, RunEnd, RunTerms, TaskReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::queue::{StartedTask, TaskQueue};
use super::run_control::{Run, RunControl};
use crate::launcher::messages::{FromLauncher, Receiver, RunOrder, ToLauncher, send};

/// Starts the threads of all slots, and receives the launchers.
pub fn start_all(queue: &Arc<TaskQueue>, control: &Arc<RunControl>) -> io::Result<()> {
    let run_count = Arc::new(AtomicU64::new(0));
    let mut senders = Vec::new();
    for number in 0..queue.threads() as usize {
        let (sender, launchers) = mpsc::channel();
        senders.push(sender);
        let slot = Slot {
            number,
            queue: Arc::clone(queue),
            control: Arc::clone(control),
            run_count: Arc::clone(&run_count),
            launchers,
        };
        let builder = std::thread::Builder::new().name("tasks".into());
        builder.spawn(move || slot.serve())?;
    }
    let receive = move || match receive_all(&senders) {
        Ok(()) => exit("its supervisor has ended"),
        Err(error) => exit(&format!("its supervisor cannot be read: {error}")),
    };
    let builder = std::thread::Builder::new().name("launchers".into());
    builder.spawn(receive)?;
    Ok(())
}

/// Ends the runner at once. Its launchers then end their runs.
fn exit(reason: &str) -> ! {
    eprintln!("hayward: the task runner ends: {reason}");
    std::process::exit(1)
}

/// Hands each received launcher to its slot, until the supervisor ends.
fn receive_all(slots: &[mpsc::Sender<UnixStream>]) -> io::Result<()> {
    let supervisor = io::stdin();
    while let Some((slot, launcher)) = receive(&supervisor)? {
        if let Some(sender) = slots.get(slot) {
            // A slot without a thread needs no launcher.
            let _ = sender.send(launcher);
        }
    }
    Ok(())
}

/// Receives the number of a slot and the socket of its launcher.
fn receive(supervisor: &io::Stdin) -> io::Result<Option<(usize, UnixStream)>> {
    let mut number = [0; size_of::<u32>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        supervisor.as_fd(),
        &mut [IoSliceMut::new(&mut number)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let Some(socket) = files.filter(|_: &OwnedFd| received.bytes == number.len()) else {
        return Ok(None);
    };
    let slot = usize::try_from(u32::from_le_bytes(number)).map_err(io::Error::other)?;
    Ok(Some((slot, UnixStream::from(socket))))
}

struct Slot {
    number: usize,
    queue: Arc<TaskQueue>,
    control: Arc<RunControl>,
    /// Number of runs of all slots.
    run_count: Arc<AtomicU64>,
    launchers: mpsc::Receiver<UnixStream>,
}

impl Slot {
    fn serve(&self) {
        let mut launcher = self.next_launcher();
        while let Some(task) = self.queue.take() {
            if !launcher.is_alive() {
                launcher = self.next_launcher();
            }
            let result = self.run(&mut launcher, &task);
            self.control.forget(Run::of(&task.task));
            let report = result.unwrap_or_else(|_| {
                // The next launcher comes when all processes of the lost run have ended. Before
                // that the task must not run again.
                launcher = self.next_launcher();
                report_of_lost_run(&task)
            });
            self.queue.finish(report);
        }
    }

    fn run(&self, launcher: &mut Launcher, started: &StartedTask) -> io::Result<TaskReport> {
        launcher.send_terms(started)?;
        let order = RunOrder {
            task: started.task.clone(),
            number: self.run_count.fetch_add(1, Ordering::Relaxed) + 1,
        };
        self.control
            .start_run(self.number, order, started.started_at)?;
        match launcher.receiver.wait()? {
            Some(FromLauncher::Ended(report)) => Ok(*report),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Waits for the next launcher of this slot that can run tasks.
    fn next_launcher(&self) -> Launcher {
        loop {
            let Ok(socket) = self.launchers.recv() else {
                exit("its supervisor sends no launcher");
            };
            let mut receiver = Receiver::new(socket);
            // A launcher that ended before it was ready is replaced.
            if let (Ok(Some(FromLauncher::Ready)), Ok(socket)) =
                (receiver.wait(), receiver.stream().try_clone())
            {
                self.control.set_launcher(self.number, socket);
                return Launcher {
                    receiver,
                    terms: None,
                };
            }
        }
    }
}

/// A launcher, as its slot uses it.
struct Launcher {
    receiver: Receiver<FromLauncher>,
    /// The terms that were sent.
    terms: Option<Arc<RunTerms>>,
}

impl Launcher {
    fn is_alive(&self) -> bool {
        // A launcher sends nothing between runs, so only the end of its stream is readable.
        let mut fds = [PollFd::new(&self.receiver, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
    }

    fn send_terms(&mut self, started: &StartedTask) -> io::Result<()> {
        let Some(terms) = &started.terms else {
            return Ok(());
        };
        let is_sent = |sent: &Arc<RunTerms>| Arc::ptr_eq(sent, terms);
        if self.terms.as_ref().is_some_and(is_sent) {
            return Ok(());
        }
        let message = ToLauncher::Terms(Box::new(RunTerms::clone(terms)));
        send(self.receiver.stream(), &message)?;
        self.terms = Some(Arc::clone(terms));
        Ok(())
    }
}

/// Returns the report of a run whose launcher ended. The task may have killed it, so the attempt
/// counts.
fn report_of_lost_run(started: &StartedTask) -> TaskReport {
    let since_start = started.started_at.elapsed();
    let message = "its launcher ended while it ran";
    TaskReport {
        task: started.task.task,
        attempt: started.task.attempt,
        exit_code: None,
        signal: None,
        error: Some(message.to_owned()),
        interrupted: false,
        end: Some(RunEnd {
            cause: EndCause::CrashedRunner,
            message: Some(message.to_owned()),
        }),
        duration_us: u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX),
        usage: None,
        output: String::new(),
    }
}
