//! Runs a program whose whole process group ends when the caller stops waiting for it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Runs `command` to its end. Dropping the future ends the whole process group, because `initdb`
/// alone would leave a bootstrapping server behind.
pub(super) async fn output(mut command: Command) -> io::Result<Output> {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = tokio::process::Command::from(command).spawn()?;
    let group_id = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = ProcessGroup(group_id.map(Pid::from_raw));
    let result = child.wait_with_output().await;
    // After the exit another process may get this id.
    group.0 = None;
    result
}

struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group_id) = self.0 {
            let _ = killpg(group_id, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::output;

    #[tokio::test]
    async fn a_dropped_program_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("child");
        let mut command = Command::new("/bin/sh");
        let script = format!(
            "sleep 60 & echo $! > {0}.new; mv {0}.new {0}; wait",
            pid_file.display()
        );
        command.args(["-c", &script]);
        let limit = Duration::from_secs(20);
        let child = tokio::select! {
            _ = output(command) => panic!("it ended by itself"),
            child = tokio::time::timeout(limit, read_pid(&pid_file)) => child.unwrap(),
        };
        let child_ended = async {
            while is_running(child) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(limit, child_ended).await.unwrap();
    }

    #[tokio::test]
    async fn a_finished_program_returns_output_and_status() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo well; exit 3"]);
        let result = output(command).await.unwrap();
        assert_eq!(
            (result.stdout.as_slice(), result.status.code()),
            (&b"well\n"[..], Some(3))
        );
    }

    async fn read_pid(file: &std::path::Path) -> i32 {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Ok(number) = text.trim().parse() {
                return number;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns whether the process runs. A zombie process, or one without `stat`, counts as ended.
    fn is_running(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name of the program, which is in brackets.
        stat.rsplit_once(") ")
            .is_some_and(|(_, state)| !state.starts_with('Z'))
    }
}
