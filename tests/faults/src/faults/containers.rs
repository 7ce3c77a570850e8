//! Supervisors, runners and programs of users that are killed, or stopped and continued.
//!
//! Supervisors of exclusive work are excluded. If one is killed or stopped, its container ends only
//! when its agent is back (decision 0014).

use nix::sys::signal::Signal;

use super::{Injected, Repair};
use crate::fleet::Fleet;
use crate::fleet::container_processes::{self, ContainerProcess};
use crate::plan::{Choice, ProcessKind};
use crate::work::EXCLUSIVE;

const NO_PROCESS: Injected = Injected::Skipped("no such process runs");

pub fn kill(fleet: &Fleet, kind: ProcessKind, choice: Choice) -> Injected {
    match choose(fleet, kind, choice) {
        Some(process) if process.signal(Signal::SIGKILL) => Injected::Done,
        _ => NO_PROCESS,
    }
}

pub fn pause(fleet: &Fleet, kind: ProcessKind, choice: Choice, duration_ms: u64) -> Injected {
    match choose(fleet, kind, choice) {
        Some(process) if process.signal(Signal::SIGSTOP) => {
            Repair::ContinueContainerProcess(process).after_ms(duration_ms)
        }
        _ => NO_PROCESS,
    }
}

pub fn resume(process: &ContainerProcess) {
    // The process may have been killed meanwhile, which ends a stop as well.
    process.signal(Signal::SIGCONT);
}

fn choose(fleet: &Fleet, kind: ProcessKind, Choice(number): Choice) -> Option<ContainerProcess> {
    let processes = container_processes::list(&fleet.dir);
    let exclusive: Vec<String> = processes
        .iter()
        .filter(|it| it.command_line.contains(EXCLUSIVE))
        .map(|it| it.allocation.clone())
        .collect();
    let is_spared = |it: &ContainerProcess| {
        kind == ProcessKind::Supervisor && exclusive.contains(&it.allocation)
    };
    let mut candidates: Vec<ContainerProcess> = processes
        .into_iter()
        .filter(|it| it.kind == kind && !is_spared(it))
        .collect();
    let index = number as usize % candidates.len().max(1);
    (!candidates.is_empty()).then(|| candidates.swap_remove(index))
}
