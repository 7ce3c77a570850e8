//! Steps the wall clock that one process sees (F23).

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::plan::Actor;

pub fn step(
    fleet: &Fleet,
    actor: Actor,
    offset_ms: i64,
    duration_ms: u64,
) -> anyhow::Result<InjectionResult> {
    set_offset(fleet, actor, offset_ms)?;
    Ok(Repair::ResetClock(actor).scheduled_after_ms(duration_ms))
}

/// Writes the offset that a process adds to its wall clock. The file is replaced atomically, so the
/// process never reads an incomplete offset.
pub fn set_offset(fleet: &Fleet, actor: Actor, offset_ms: i64) -> anyhow::Result<()> {
    let file = fleet.clock_file(actor);
    let new_file = file.with_extension("new");
    std::fs::write(&new_file, offset_ms.to_string())?;
    std::fs::rename(new_file, file)?;
    Ok(())
}
