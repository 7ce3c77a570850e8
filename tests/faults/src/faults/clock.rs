//! Wall clocks that step, one process at a time (F23).

use super::{Injected, Repair};
use crate::fleet::Fleet;
use crate::plan::Actor;

pub fn step(fleet: &Fleet, actor: Actor, by_ms: i64, for_ms: u64) -> anyhow::Result<Injected> {
    set(fleet, actor, by_ms)?;
    Ok(Repair::ResetClock(actor).after_ms(for_ms))
}

/// Writes the offset of a clock in one step. A process that reads an incomplete file keeps the old
/// offset.
pub fn set(fleet: &Fleet, actor: Actor, by_ms: i64) -> anyhow::Result<()> {
    let file = fleet.clock_file(actor);
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, by_ms.to_string())?;
    std::fs::rename(fresh, file)?;
    Ok(())
}
