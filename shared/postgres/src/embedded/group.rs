//! A program and its children that end when nobody waits for them any more.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Runs `command` to its end. Dropping the future ends the program and all it started, because
/// `initdb` leaves a bootstrapping server behind when it alone is killed.
pub(super) async fn output(mut command: Command) -> io::Result<Output> {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = tokio::process::Command::from(command).spawn()?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(leader.map(Pid::from_raw));
    let said = child.wait_with_output().await;
    // Its id may belong to a stranger from now on.
    group.0 = None;
    said
}

struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::output;

    #[tokio::test]
    async fn who_is_not_waited_for_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("child");
        let mut command = Command::new("/bin/sh");
        let script = format!(
            "sleep 60 & echo $! > {0}.new; mv {0}.new {0}; wait",
            mark.display()
        );
        command.args(["-c", &script]);
        let limit = Duration::from_secs(20);
        let child = tokio::select! {
            _ = output(command) => panic!("it ended by itself"),
            child = tokio::time::timeout(limit, number_in(&mark)) => child.unwrap(),
        };
        let gone = async {
            while lives(child) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(limit, gone).await.unwrap();
    }

    #[tokio::test]
    async fn who_ends_has_said_something() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo well; exit 3"]);
        let said = output(command).await.unwrap();
        assert_eq!(
            (said.stdout.as_slice(), said.status.code()),
            (&b"well\n"[..], Some(3))
        );
    }

    async fn number_in(file: &std::path::Path) -> i32 {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Ok(number) = text.trim().parse() {
                return number;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A process that ended and was not yet collected no longer lives.
    fn lives(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with('Z'));
        state == Some(false)
    }
}
