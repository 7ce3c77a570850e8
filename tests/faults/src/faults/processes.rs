//! Kills services and agents, or pauses them with SIGSTOP and SIGCONT (F2).

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::plan::Actor;

pub fn kill(fleet: &mut Fleet, actor: Actor, down_ms: u64) -> anyhow::Result<InjectionResult> {
    if !fleet.is_up(actor) {
        return Ok(InjectionResult::Skipped("it is down already"));
    }
    fleet.kill(actor)?;
    Ok(Repair::Start(actor).scheduled_after_ms(down_ms))
}

pub fn pause(fleet: &mut Fleet, actor: Actor, duration_ms: u64) -> anyhow::Result<InjectionResult> {
    if !fleet.is_up(actor) {
        return Ok(InjectionResult::Skipped("it is down"));
    }
    if fleet.is_paused(actor) {
        return Ok(InjectionResult::Skipped("it is stopped already"));
    }
    fleet.pause(actor)?;
    Ok(Repair::Continue(actor).scheduled_after_ms(duration_ms))
}
