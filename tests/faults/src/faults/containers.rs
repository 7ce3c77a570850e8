//! Kills the processes in containers (supervisors, task runners and programs of users), or pauses
//! them with SIGSTOP and SIGCONT.
//!
//! Supervisors of exclusive work are excluded. While such a supervisor is dead or stopped, only the
//! agent of its node can end the work. If the agent were down too, nothing would end the work in
//! time (decision 0014).

use nix::sys::signal::Signal;

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::fleet::container_processes::{self, ContainerProcess};
use crate::plan::{Choice, ProcessKind};
use crate::work::EXCLUSIVE;

const NO_PROCESS: InjectionResult = InjectionResult::Skipped("no such process runs");

pub fn kill(fleet: &Fleet, kind: ProcessKind, choice: Choice) -> InjectionResult {
    match choose(fleet, kind, choice) {
        Some(process) if process.signal(Signal::SIGKILL) => InjectionResult::Done,
        _ => NO_PROCESS,
    }
}

pub fn pause(
    fleet: &Fleet,
    kind: ProcessKind,
    choice: Choice,
    duration_ms: u64,
) -> InjectionResult {
    match choose(fleet, kind, choice) {
        Some(process) if process.signal(Signal::SIGSTOP) => {
            Repair::ContinueContainerProcess(process).scheduled_after_ms(duration_ms)
        }
        _ => NO_PROCESS,
    }
}

pub fn resume(process: &ContainerProcess) {
    // The process may have been killed meanwhile, so a failure is ignored.
    process.signal(Signal::SIGCONT);
}

fn choose(fleet: &Fleet, kind: ProcessKind, Choice(number): Choice) -> Option<ContainerProcess> {
    let processes = container_processes::list(&fleet.dir);
    let exclusive_allocations: Vec<String> = processes
        .iter()
        .filter(|process| process.command_line.contains(EXCLUSIVE))
        .map(|process| process.allocation.clone())
        .collect();
    let is_excluded = |process: &ContainerProcess| {
        kind == ProcessKind::Supervisor && exclusive_allocations.contains(&process.allocation)
    };
    let mut candidates: Vec<ContainerProcess> = processes
        .into_iter()
        .filter(|process| process.kind == kind && !is_excluded(process))
        .collect();
    let index = number as usize % candidates.len().max(1);
    (!candidates.is_empty()).then(|| candidates.swap_remove(index))
}
