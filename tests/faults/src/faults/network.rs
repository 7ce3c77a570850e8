//! Connections between processes, and to the database, that are cut or slow (F19).

use std::time::Duration;

use super::{Injected, Repair};
use crate::fleet::Fleet;
use crate::plan::Lines;

pub fn reset(fleet: &Fleet, lines: Lines) -> Injected {
    fleet.wires.change(lines, |it| it.resets += 1);
    Injected::Done
}

pub fn silence(fleet: &Fleet, lines: Lines, for_ms: u64) -> Injected {
    fleet.wires.change(lines, |it| it.silent = true);
    Repair::EndSilence(lines).after_ms(for_ms)
}

pub fn refuse(fleet: &Fleet, lines: Lines, for_ms: u64) -> Injected {
    fleet.wires.change(lines, |it| {
        it.refused = true;
        it.resets += 1;
    });
    Repair::EndRefusals(lines).after_ms(for_ms)
}

pub fn delay(fleet: &Fleet, lines: Lines, by_ms: u64, for_ms: u64) -> Injected {
    let by = Duration::from_millis(by_ms);
    fleet.wires.change(lines, |it| it.delay = by);
    Repair::EndDelay(lines).after_ms(for_ms)
}
