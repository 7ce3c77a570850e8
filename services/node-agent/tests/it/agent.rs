//! The agent as a process of its own, killed with its test.

use std::process::{Child, Command, Stdio};

use crate::control::Control;

/// An agent that is killed with the test.
pub struct Agent(pub Child);

impl Agent {
    pub fn start(control: &Control, more: &[(&str, &str)]) -> Self {
        Self::run(control, &[], more)
    }

    /// Starts an agent by this command, followed by the command line of the agent.
    pub fn start_by(control: &Control, words: &[&str]) -> Self {
        Self::run(control, words, &[])
    }

    pub fn start_with(control: &Control, words: &[&str], more: &[(&str, &str)]) -> Self {
        Self::run(control, words, more)
    }

    fn run(control: &Control, before: &[&str], more: &[(&str, &str)]) -> Self {
        let words = [before, &[env!("CARGO_BIN_EXE_hayward-node-agent"), "agent"]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HAYWARD_NODE", "node-1")
            .env("HAYWARD_TOKEN_FILE", control.token_file())
            .env("HAYWARD_STATE_DIR", control.state_dir())
            .env("HAYWARD_NODE_STATUS_URL", &control.url)
            .env("HAYWARD_CONTAINER_MANAGER_URL", &control.url)
            .env("HAYWARD_JOB_CONVERTER_URL", &control.url)
            .env("HAYWARD_CGROUP_ROOT", "none")
            .env("HAYWARD_LOG_FILTER", "warn")
            .envs(more.iter().copied())
            .stdin(Stdio::null());
        let journal = control.state_dir().join("journal");
        let fresh = std::fs::metadata(journal).map_or(true, |it| it.len() == 0);
        let before = control.plane.borrow().desired_requests;
        let mut agent = Self(command.spawn().unwrap());
        // On a new node, orders before the first set are doubtful. Tests therefore order after it
        // was received.
        let begun = std::time::Instant::now();
        while fresh && control.plane.borrow().desired_requests == before {
            assert!(
                begun.elapsed() < crate::control::PATIENCE,
                "it does not look"
            );
            if agent.0.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        agent
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn terminate(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removes all entries, so that a test leaves nothing running.
pub async fn clear(control: &Control) {
    control.change(|plane| plane.desired.clear());
    let empty = |plane: &crate::control::ControlState| {
        plane
            .report
            .as_ref()
            .is_some_and(|report| report.containers.is_empty())
    };
    control.until("nothing left", empty).await;
}
