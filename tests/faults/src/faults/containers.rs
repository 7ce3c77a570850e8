//! Supervisors, runners and programs of users that are killed, or stopped and continued.
//!
//! Supervisors of exclusive work are excluded. If one is killed or stopped, its container ends only
//! when its agent is back (decision 0014).

use nix::sys::signal::Signal;

use super::{Injected, Repair};
use crate::fleet::Fleet;
use crate::fleet::inside::{self, Found};
use crate::plan::{Chosen, Inside};
use crate::work::EXCLUSIVE;

const NONE: Injected = Injected::Skipped("no such process runs");

pub fn kill(fleet: &Fleet, what: Inside, chosen: Chosen) -> Injected {
    match choose(fleet, what, chosen) {
        Some(found) if found.signal(Signal::SIGKILL) => Injected::Done,
        _ => NONE,
    }
}

pub fn pause(fleet: &Fleet, what: Inside, chosen: Chosen, for_ms: u64) -> Injected {
    match choose(fleet, what, chosen) {
        Some(found) if found.signal(Signal::SIGSTOP) => {
            Repair::ContinueInside(found).after_ms(for_ms)
        }
        _ => NONE,
    }
}

pub fn resume(found: &Found) {
    // The process may have been killed meanwhile, which ends a stop as well.
    found.signal(Signal::SIGCONT);
}

fn choose(fleet: &Fleet, what: Inside, Chosen(number): Chosen) -> Option<Found> {
    let all = inside::all(&fleet.dir);
    let exclusive: Vec<String> = all
        .iter()
        .filter(|it| it.line.contains(EXCLUSIVE))
        .map(|it| it.allocation.clone())
        .collect();
    let spared = |it: &Found| what == Inside::Supervisor && exclusive.contains(&it.allocation);
    let mut there: Vec<Found> = all
        .into_iter()
        .filter(|it| it.what == what && !spared(it))
        .collect();
    let index = number as usize % there.len().max(1);
    (!there.is_empty()).then(|| there.swap_remove(index))
}
