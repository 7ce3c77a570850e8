//! Fills the disks of agents and of Postgres, and empties them (F29).

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::plan::Disk;

pub fn fill(fleet: &Fleet, disk: Disk, duration_ms: u64) -> InjectionResult {
    match fleet.disks.fill(disk) {
        Ok(()) => Repair::EmptyDisk(disk).scheduled_after_ms(duration_ms),
        Err(reason) => InjectionResult::Skipped(reason),
    }
}

/// Empties a disk. Postgres may have ended because of its full disk, so it is started again.
pub async fn empty(fleet: &mut Fleet, disk: Disk) -> anyhow::Result<()> {
    fleet.disks.empty(disk)?;
    if disk == Disk::Postgres {
        fleet.postgres.ensure_running().await?;
    }
    Ok(())
}
