//! Worker threads that run tasks, each one task at a time.
//!
//! A task has its own process group and pipe. No code runs between fork and exec, and nothing is
//! written to disk per task. The leader of a group is waited for only after the rest of the group
//! was killed, so its process id cannot be reused before.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use hayward_job_converter_api::tasks::{LeasedTask, OUTPUT_LIMIT, TaskReport};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PREFIX;
use super::queue::TaskQueue;
use super::tee::Tee;
use crate::process_identity;

/// The worker threads of a task runner.
pub struct TaskThreads {
    /// Each thread, with the pipe that interrupts its task.
    threads: Vec<(JoinHandle<()>, PipeWriter)>,
}

impl TaskThreads {
    pub fn start_all(queue: &Arc<TaskQueue>) -> io::Result<Self> {
        let mut threads = Vec::new();
        for _ in 0..queue.threads() {
            let (interrupts, interrupt_writer) = io::pipe()?;
            let queue = Arc::clone(queue);
            let work = move || {
                let mut worker = Worker::new(interrupts);
                while let Some(task) = queue.take() {
                    queue.finish(worker.run(&task));
                }
            };
            threads.push((
                std::thread::Builder::new()
                    .name("tasks".into())
                    .spawn(work)?,
                interrupt_writer,
            ));
        }
        Ok(Self { threads })
    }

    /// Ends all running tasks.
    pub fn interrupt(&self) {
        for (_, interrupt_writer) in &self.threads {
            // The write fails only for a thread that has ended.
            let _ = (&*interrupt_writer).write_all(&[1]);
        }
    }

    /// Waits for the threads. The queue must be closed.
    pub fn join(self) {
        self.interrupt();
        for (thread, _) in self.threads {
            if thread.join().is_err() {
                eprintln!("hayward: a thread of the task runner panicked");
            }
        }
    }
}

struct Worker {
    /// Pipe with one byte for each interrupt.
    interrupts: PipeReader,
    /// Environment that tasks inherit.
    environment: Vec<(String, String)>,
}

impl Worker {
    fn new(interrupts: PipeReader) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| !name.starts_with(PREFIX))
            .collect();
        Self {
            interrupts,
            environment,
        }
    }

    fn run(&mut self, task: &LeasedTask) -> TaskReport {
        self.discard_interrupts();
        let started_at = Instant::now();
        let mut report = TaskReport {
            task: task.task,
            attempt: task.attempt,
            exit_code: None,
            signal: None,
            error: None,
            interrupted: false,
            duration_us: 0,
            output: String::new(),
        };
        match self
            .start(task)
            .and_then(|(child, reader)| self.wait(child, reader, Tee::new(task.task)))
        {
            Ok(end) => {
                report.exit_code = end.status.code();
                report.signal = end.status.signal();
                report.interrupted = end.interrupted;
                report.output = end.tail.to_string();
            }
            Err(error) => {
                let program = task.argv.first().map_or("", String::as_str);
                report.error = Some(format!("{program:?} cannot be run: {error}"));
            }
        }
        report.duration_us = u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        report
    }

    /// Discards interrupts meant for an earlier task.
    fn discard_interrupts(&mut self) {
        while is_readable(self.interrupts.as_fd()) {
            let mut buffer = [0; 16];
            if !matches!(self.interrupts.read(&mut buffer), Ok(1..)) {
                return;
            }
        }
    }

    fn start(&self, task: &LeasedTask) -> io::Result<(Child, PipeReader)> {
        let [program, arguments @ ..] = task.argv.as_slice() else {
            return Err(io::Error::other("the argument vector is empty"));
        };
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(&task.environment)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        if let Some(directory) = &task.working_directory {
            command.current_dir(directory);
        }
        Ok((command.spawn()?, reader))
    }

    /// Waits for the end of the program, even if other processes still have its output open.
    fn wait(&self, mut child: Child, mut reader: PipeReader, mut tee: Tee) -> io::Result<TaskEnd> {
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        let Some(handle) = process_identity::open_pidfd(child.id()) else {
            let _ = killpg(group, Signal::SIGKILL);
            child.wait()?;
            return Err(io::Error::other("cannot open a handle on the process"));
        };
        let (mut tail, mut output_open, mut interrupted) = (Tail::default(), true, false);
        loop {
            let (ended, interrupt, readable) = {
                let poll_input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
                let mut fds = vec![poll_input(handle.as_fd())];
                // The byte of an interrupt stays in the pipe, so the pipe is not polled afterwards.
                if !interrupted {
                    fds.push(poll_input(self.interrupts.as_fd()));
                }
                if output_open {
                    fds.push(poll_input(reader.as_fd()));
                }
                let _ = poll(&mut fds, None);
                let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
                let mut take_next = |is_polled| is_polled && ready.next().unwrap_or(false);
                (
                    take_next(true),
                    take_next(!interrupted),
                    take_next(output_open),
                )
            };
            if readable {
                output_open = tail.read_available(&mut reader, &mut tee);
            } else if ended {
                // Other processes of the group end with the program.
                let _ = killpg(group, Signal::SIGKILL);
                tee.finish();
                return Ok(TaskEnd {
                    status: child.wait()?,
                    interrupted,
                    tail,
                });
            } else if interrupt {
                interrupted = true;
                let _ = killpg(group, Signal::SIGKILL);
            }
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

struct TaskEnd {
    status: ExitStatus,
    interrupted: bool,
    tail: Tail,
}

/// The last part of the output.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    /// Whether older output was dropped.
    truncated: bool,
}

impl Tail {
    /// Reads available output. Returns false at the end of the stream.
    fn read_available(&mut self, reader: &mut PipeReader, tee: &mut Tee) -> bool {
        let mut buffer = [0; 8192];
        match reader.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                tee.push(&buffer[..length]);
                self.bytes.extend_from_slice(&buffer[..length]);
                // Older output is dropped in large pieces, to copy the rest rarely.
                if self.bytes.len() > 4 * OUTPUT_LIMIT {
                    self.bytes.drain(..self.bytes.len() - OUTPUT_LIMIT);
                    self.truncated = true;
                }
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }
}

impl fmt::Display for Tail {
    /// Writes at most `OUTPUT_LIMIT` bytes of text. Begins with a complete line if possible.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = &self.bytes[self.bytes.len().saturating_sub(OUTPUT_LIMIT)..];
        // A replaced byte takes three bytes. Postgres text cannot store NUL.
        let text = String::from_utf8_lossy(tail).replace('\0', "\u{fffd}");
        let mut start = text.len().saturating_sub(OUTPUT_LIMIT);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let truncated = self.truncated || start > 0 || tail.len() < self.bytes.len();
        let partial_line_length = text[start..].find('\n').map_or(0, |end| end + 1);
        if truncated && start + partial_line_length < text.len() {
            start += partial_line_length;
        }
        f.write_str(&text[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_script(script: &str) -> TaskReport {
        let (interrupts, _interrupt_writer) = io::pipe().unwrap();
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let task = LeasedTask {
            task: 1,
            attempt: 1,
            argv,
            environment: [("COLOUR".to_owned(), "red".to_owned())].into(),
            working_directory: Some("/".into()),
        };
        let environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
        Worker {
            interrupts,
            environment,
        }
        .run(&task)
    }

    #[test]
    fn a_report_has_both_streams_and_the_exit_code() {
        let report = run_script("echo $COLOUR; pwd >&2; exit 7");
        assert_eq!(
            (report.exit_code, report.output.as_str()),
            (Some(7), "red\n/\n")
        );
        assert_eq!(run_script("kill -9 $$").signal, Some(9));
    }

    #[test]
    fn only_the_end_of_the_output_is_reported_as_text() {
        let report = run_script("head -c 300000 /dev/zero; head -c 100000 /dev/urandom; echo end");
        assert!(report.output.len() <= OUTPUT_LIMIT && report.output.ends_with("end\n"));
        assert!(!report.output.contains('\0'));
    }

    #[test]
    fn truncated_output_begins_with_a_complete_line() {
        let report = run_script("seq -f 'line number %g' 1 5000");
        let mut lines = report.output.lines();
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with("line number "))
        );
        assert!(report.output.len() > OUTPUT_LIMIT / 2 && report.output.ends_with(" 5000\n"));
        let single_line = run_script("head -c 9000 /dev/zero | tr '\\0' x");
        assert_eq!(
            single_line.output.len(),
            OUTPUT_LIMIT,
            "a line longer than the limit"
        );
    }

    #[test]
    fn a_background_child_delays_nothing_and_is_killed() {
        let started_at = Instant::now();
        let report = run_script("sleep 300 & echo $!");
        assert!(started_at.elapsed().as_secs() < 100);
        let pid = report.output.trim().to_owned();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(Instant::now() < deadline, "process {pid} is still alive");
            std::thread::yield_now();
        }
    }
}
