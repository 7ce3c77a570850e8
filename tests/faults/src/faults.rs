//! Injects faults, and repairs their damage when their time is over.

mod clock;
mod containers;
mod database;
mod disk;
mod network;
mod processes;

use std::time::Duration;

use crate::fleet::Fleet;
use crate::fleet::inside::Found;
use crate::plan::{Actor, Disk, Fault, Lines};

/// The result of an injection.
#[derive(Debug)]
pub enum Injected {
    /// No repair is needed.
    Done,
    /// The fault lasts until its repair.
    Until(Mend),
    /// The fault had no target, or the machine does not allow it.
    Skipped(&'static str),
}

#[derive(Debug)]
pub struct Mend {
    pub after: Duration,
    pub what: Repair,
}

#[derive(Debug)]
pub enum Repair {
    Start(Actor),
    Continue(Actor),
    ContinueInside(Found),
    EndSilence(Lines),
    EndRefusals(Lines),
    EndDelay(Lines),
    StartPostgres,
    EmptyDisk(Disk),
    ResetClock(Actor),
}

impl Repair {
    fn after_ms(self, ms: u64) -> Injected {
        Injected::Until(Mend {
            after: Duration::from_millis(ms),
            what: self,
        })
    }
}

pub async fn inject(fleet: &mut Fleet, fault: Fault) -> anyhow::Result<Injected> {
    match fault {
        Fault::Kill { actor, down_ms } => processes::kill(fleet, actor, down_ms),
        Fault::Pause { actor, for_ms } => processes::pause(fleet, actor, for_ms),
        Fault::KillInside { what, chosen } => Ok(containers::kill(fleet, what, chosen)),
        Fault::PauseInside {
            what,
            chosen,
            for_ms,
        } => Ok(containers::pause(fleet, what, chosen, for_ms)),
        Fault::Reset { lines } => Ok(network::reset(fleet, lines)),
        Fault::Silence { lines, for_ms } => Ok(network::silence(fleet, lines, for_ms)),
        Fault::Refuse { lines, for_ms } => Ok(network::refuse(fleet, lines, for_ms)),
        Fault::Delay {
            lines,
            by_ms,
            for_ms,
        } => Ok(network::delay(fleet, lines, by_ms, for_ms)),
        Fault::RestartPostgres => database::restart(fleet).await,
        Fault::KillPostgres { down_ms } => Ok(database::kill(fleet, down_ms).await),
        Fault::FillDisk { disk, for_ms } => Ok(disk::fill(fleet, disk, for_ms)),
        Fault::StepClock {
            actor,
            by_ms,
            for_ms,
        } => clock::step(fleet, actor, by_ms, for_ms),
    }
}

pub async fn mend(fleet: &mut Fleet, repair: Repair) -> anyhow::Result<()> {
    match repair {
        Repair::Start(actor) => fleet.start(actor)?,
        Repair::Continue(actor) => fleet.resume(actor)?,
        Repair::ContinueInside(found) => containers::resume(&found),
        Repair::EndSilence(lines) => fleet.wires.change(lines, |it| it.silent = false),
        Repair::EndRefusals(lines) => fleet.wires.change(lines, |it| it.refused = false),
        Repair::EndDelay(lines) => fleet.wires.change(lines, |it| it.delay = Duration::ZERO),
        Repair::StartPostgres => database::start(fleet).await?,
        Repair::EmptyDisk(disk) => disk::empty(fleet, disk).await?,
        Repair::ResetClock(actor) => clock::set(fleet, actor, 0)?,
    }
    Ok(())
}
