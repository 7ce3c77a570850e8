//! Restarts Postgres cleanly, or kills it. After both, all committed data must be there (F7).

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::plan::Disk;

pub async fn restart(fleet: &mut Fleet) -> anyhow::Result<InjectionResult> {
    if !fleet.postgres.is_up() {
        return Ok(InjectionResult::Skipped("Postgres is down already"));
    }
    fleet.postgres.stop().await;
    start(fleet).await?;
    Ok(InjectionResult::Done)
}

pub async fn kill(fleet: &mut Fleet, down_ms: u64) -> InjectionResult {
    if !fleet.postgres.is_up() {
        return InjectionResult::Skipped("Postgres is down already");
    }
    fleet.postgres.kill().await;
    Repair::StartPostgres.scheduled_after_ms(down_ms)
}

/// Starts Postgres. If the start fails, empties the disk and tries again, because a server on a
/// full disk cannot start.
pub async fn start(fleet: &mut Fleet) -> anyhow::Result<()> {
    if fleet.postgres.ensure_running().await.is_ok() {
        return Ok(());
    }
    fleet.disks.empty(Disk::Postgres)?;
    fleet.postgres.ensure_running().await
}
