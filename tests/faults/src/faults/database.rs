//! Restarts Postgres in order, or kills it. After both, all committed data must be there (F7).

use super::{Injected, Repair};
use crate::fleet::Fleet;

pub async fn restart(fleet: &mut Fleet) -> anyhow::Result<Injected> {
    if !fleet.postgres.is_up() {
        return Ok(Injected::Skipped("Postgres is down already"));
    }
    fleet.postgres.stop().await;
    start(fleet).await?;
    Ok(Injected::Done)
}

pub async fn kill(fleet: &mut Fleet, down_ms: u64) -> Injected {
    if !fleet.postgres.is_up() {
        return Injected::Skipped("Postgres is down already");
    }
    fleet.postgres.kill().await;
    Repair::StartPostgres.scheduled_after_ms(down_ms)
}

/// Starts Postgres. If the start fails, empties the disk and tries again, because a server on a
/// full disk cannot start.
pub async fn start(fleet: &mut Fleet) -> anyhow::Result<()> {
    if fleet.postgres.resume().await.is_ok() {
        return Ok(());
    }
    fleet.disks.empty(crate::plan::Disk::Postgres)?;
    fleet.postgres.resume().await
}
