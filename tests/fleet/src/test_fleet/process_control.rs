//! Signals to the processes of a fleet, their ends, and counts of processes in containers.

use std::process::{Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::TestFleet;
use crate::machine_processes;

impl TestFleet {
    pub fn spawn(&mut self, alias: &str, mut command: Command) {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {alias}: {error}"));
        self.processes.insert(alias.to_owned(), child);
    }

    /// Sends a signal to a process.
    pub fn signal(&self, alias: &str, signal: Signal) {
        let child = self.processes.get(alias);
        let child = child.unwrap_or_else(|| panic!("no {alias}"));
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the signal is sent");
    }

    /// Kills a process with `kill -9`, and waits until it is gone.
    pub fn kill(&mut self, alias: &str) {
        let mut child = self
            .processes
            .remove(alias)
            .unwrap_or_else(|| panic!("no {alias}"));
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    /// Sends SIGTERM to a process, and waits until it is gone.
    pub fn terminate(&mut self, alias: &str) {
        let mut child = self
            .processes
            .remove(alias)
            .unwrap_or_else(|| panic!("no {alias}"));
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a signal");
        child.wait().expect("gone");
    }

    /// Returns the exit status of a process that was not killed, or `None` while it runs.
    pub fn exit_status(&mut self, alias: &str) -> Option<ExitStatus> {
        let child = self.processes.get_mut(alias);
        let child = child.unwrap_or_else(|| panic!("no {alias}"));
        child.try_wait().expect("a process of ours")
    }

    /// Simulates the loss of a node. Kills its agent and all processes of the agent at once.
    pub fn lose_node(&mut self, node: &str) {
        self.kill(node);
        for pid in machine_processes::supervised_processes(&self.agent_state_dir(node)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Counts the processes with this text in their arguments in the containers of a node. The
    /// empty text matches all of them.
    pub fn count_processes_on(&self, node: &str, text: &str) -> usize {
        machine_processes::count_processes(&self.agent_state_dir(node), text)
    }

    /// Counts the processes with this text in their arguments on all nodes.
    pub fn count_processes(&self, text: &str) -> usize {
        machine_processes::count_processes(self.dir.path(), text)
    }

    /// Sends SIGTERM to the supervisors of all containers, which end their containers.
    fn end_containers(&self) {
        for pid in machine_processes::supervisors(self.dir.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

impl Drop for TestFleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.dir.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = entry.path();
                if path.extension().is_some_and(|kind| kind == "log") {
                    let text = std::fs::read_to_string(&path).unwrap_or_default();
                    let lines: Vec<&str> = text.lines().rev().take(15).collect();
                    eprintln!("--- the end of {}", path.display());
                    lines.iter().rev().for_each(|line| eprintln!("{line}"));
                }
            }
        }
        // Agents end first, so that they start no more containers. Then their containers end.
        let agents: Vec<String> = self
            .processes
            .keys()
            .filter(|alias| alias.starts_with("node-") && *alias != "node-status")
            .cloned()
            .collect();
        for alias in agents {
            self.kill(&alias);
        }
        self.end_containers();
        for child in self.processes.values_mut() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
