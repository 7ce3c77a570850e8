//! Resets, silences, refuses or delays connections between processes and to the database (F19).

use std::time::Duration;

use super::{InjectionResult, Repair};
use crate::fleet::Fleet;
use crate::plan::Connections;

pub fn reset(fleet: &Fleet, connections: Connections) -> InjectionResult {
    fleet.relays.update(connections, |state| state.resets += 1);
    InjectionResult::Done
}

pub fn silence(fleet: &Fleet, connections: Connections, duration_ms: u64) -> InjectionResult {
    fleet
        .relays
        .update(connections, |state| state.silent = true);
    Repair::EndSilence(connections).scheduled_after_ms(duration_ms)
}

pub fn refuse(fleet: &Fleet, connections: Connections, duration_ms: u64) -> InjectionResult {
    fleet.relays.update(connections, |state| {
        state.refused = true;
        state.resets += 1;
    });
    Repair::EndRefusals(connections).scheduled_after_ms(duration_ms)
}

pub fn delay(
    fleet: &Fleet,
    connections: Connections,
    delay_ms: u64,
    duration_ms: u64,
) -> InjectionResult {
    let delay = Duration::from_millis(delay_ms);
    fleet
        .relays
        .update(connections, |state| state.delay = delay);
    Repair::EndDelay(connections).scheduled_after_ms(duration_ms)
}
