//! Wall clocks that step, one process at a time (F23).

use super::{Injected, Repair};
use crate::fleet::Fleet;
use crate::plan::Actor;

pub fn step(
    fleet: &Fleet,
    actor: Actor,
    offset_ms: i64,
    duration_ms: u64,
) -> anyhow::Result<Injected> {
    set(fleet, actor, offset_ms)?;
    Ok(Repair::ResetClock(actor).after_ms(duration_ms))
}

/// Writes the offset of a clock in one step. A process that reads an incomplete file keeps the old
/// offset.
pub fn set(fleet: &Fleet, actor: Actor, offset_ms: i64) -> anyhow::Result<()> {
    let file = fleet.clock_file(actor);
    let new_file = file.with_extension("new");
    std::fs::write(&new_file, offset_ms.to_string())?;
    std::fs::rename(new_file, file)?;
    Ok(())
}
