//! Injects faults, and repairs each one when its duration is over.

mod clock;
mod containers;
mod database;
mod disk;
mod network;
mod processes;

use std::time::Duration;

use crate::fleet::Fleet;
use crate::fleet::container_processes::ContainerProcess;
use crate::plan::{Actor, Connections, Disk, Fault};

/// The result of an injection.
#[derive(Debug)]
pub enum InjectionResult {
    /// No repair is needed.
    Done,
    /// The fault lasts until its repair.
    NeedsRepair(ScheduledRepair),
    /// The fault had no target, or the machine does not allow it.
    Skipped(&'static str),
}

#[derive(Debug)]
pub struct ScheduledRepair {
    /// Time from the injection to the repair.
    pub after: Duration,
    pub repair: Repair,
}

/// The action that ends a fault.
#[derive(Debug)]
pub enum Repair {
    Start(Actor),
    Continue(Actor),
    ContinueContainerProcess(ContainerProcess),
    EndSilence(Connections),
    EndRefusals(Connections),
    EndDelay(Connections),
    StartPostgres,
    EmptyDisk(Disk),
    ResetClock(Actor),
}

impl Repair {
    fn scheduled_after_ms(self, ms: u64) -> InjectionResult {
        InjectionResult::NeedsRepair(ScheduledRepair {
            after: Duration::from_millis(ms),
            repair: self,
        })
    }
}

pub async fn inject(fleet: &mut Fleet, fault: Fault) -> anyhow::Result<InjectionResult> {
    match fault {
        Fault::Kill { actor, down_ms } => processes::kill(fleet, actor, down_ms),
        Fault::Pause { actor, duration_ms } => processes::pause(fleet, actor, duration_ms),
        Fault::KillContainerProcess { kind, choice } => Ok(containers::kill(fleet, kind, choice)),
        Fault::PauseContainerProcess {
            kind,
            choice,
            duration_ms,
        } => Ok(containers::pause(fleet, kind, choice, duration_ms)),
        Fault::Reset { connections } => Ok(network::reset(fleet, connections)),
        Fault::Silence {
            connections,
            duration_ms,
        } => Ok(network::silence(fleet, connections, duration_ms)),
        Fault::Refuse {
            connections,
            duration_ms,
        } => Ok(network::refuse(fleet, connections, duration_ms)),
        Fault::Delay {
            connections,
            delay_ms,
            duration_ms,
        } => Ok(network::delay(fleet, connections, delay_ms, duration_ms)),
        Fault::RestartPostgres => database::restart(fleet).await,
        Fault::KillPostgres { down_ms } => Ok(database::kill(fleet, down_ms).await),
        Fault::FillDisk { disk, duration_ms } => Ok(disk::fill(fleet, disk, duration_ms)),
        Fault::StepClock {
            actor,
            offset_ms,
            duration_ms,
        } => clock::step(fleet, actor, offset_ms, duration_ms),
    }
}

pub async fn apply_repair(fleet: &mut Fleet, repair: Repair) -> anyhow::Result<()> {
    match repair {
        Repair::Start(actor) => fleet.start(actor)?,
        Repair::Continue(actor) => fleet.resume(actor)?,
        Repair::ContinueContainerProcess(process) => containers::resume(&process),
        Repair::EndSilence(connections) => fleet
            .relays
            .update(connections, |state| state.silent = false),
        Repair::EndRefusals(connections) => {
            fleet
                .relays
                .update(connections, |state| state.refused = false);
        }
        Repair::EndDelay(connections) => fleet
            .relays
            .update(connections, |state| state.delay = Duration::ZERO),
        Repair::StartPostgres => database::start(fleet).await?,
        Repair::EmptyDisk(disk) => disk::empty(fleet, disk).await?,
        Repair::ResetClock(actor) => clock::set_offset(fleet, actor, 0)?,
    }
    Ok(())
}
