//! Starts and stops the agent as a separate process, with the fake control plane.

use std::process::{Child, Command, Stdio};

use crate::fake_control_plane::{ControlPlaneState, FakeControlPlane, TIMEOUT};

/// An agent that is killed with the test.
pub struct Agent(pub Child);

impl Agent {
    pub fn start(control: &FakeControlPlane, extra_variables: &[(&str, &str)]) -> Self {
        Self::run(control, &[], extra_variables)
    }

    /// Starts an agent through `command_prefix`, such as `unshare -m`, which runs the command line
    /// that follows.
    pub fn start_with_command(control: &FakeControlPlane, command_prefix: &[&str]) -> Self {
        Self::run(control, command_prefix, &[])
    }

    pub fn start_with_command_and_variables(
        control: &FakeControlPlane,
        command_prefix: &[&str],
        extra_variables: &[(&str, &str)],
    ) -> Self {
        Self::run(control, command_prefix, extra_variables)
    }

    fn run(
        control: &FakeControlPlane,
        command_prefix: &[&str],
        extra_variables: &[(&str, &str)],
    ) -> Self {
        let arguments = [
            command_prefix,
            &[env!("CARGO_BIN_EXE_hayward-node-agent"), "agent"],
        ]
        .concat();
        let mut command = Command::new(arguments[0]);
        command
            .args(&arguments[1..])
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
            .envs(extra_variables.iter().copied())
            .stdin(Stdio::null());
        let journal = control.state_dir().join("journal");
        let is_new_node = std::fs::metadata(journal).map_or(true, |metadata| metadata.len() == 0);
        let requests_before = control.state.borrow().desired_requests;
        let mut agent = Self(command.spawn().unwrap());
        // On a new node, entries of the first desired set are never started, because a previous
        // agent may have started them. Tests therefore add entries only after the first set was
        // requested.
        let started_at = std::time::Instant::now();
        while is_new_node && control.state.borrow().desired_requests == requests_before {
            assert!(
                started_at.elapsed() < TIMEOUT,
                "the agent requests no desired set"
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

/// Removes all desired entries, and waits until the agent has no container, so that a test leaves
/// nothing running.
pub async fn remove_all_entries(control: &FakeControlPlane) {
    control.change(|plane| plane.desired.clear());
    let has_no_container = |plane: &ControlPlaneState| {
        plane
            .report
            .as_ref()
            .is_some_and(|report| report.containers.is_empty())
    };
    control
        .wait_until("the agent has no container", has_no_container)
        .await;
}
