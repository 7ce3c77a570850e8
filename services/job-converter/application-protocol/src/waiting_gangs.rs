//! The line of gangs that wait for room. Who was hurt goes first (I13), then whoever asked first.
//!
//! A younger gang may pass one that does not fit yet, but only until that one has waited for the
//! fence; then nobody passes it, so that a large gang is not starved by a stream of small ones. One
//! that no wait can help stands in nobody's way.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;

use crate::admission::{self, Outcome, TooLarge, Wanted};
use crate::free_capacity::{Level, Room};
use crate::ids::AppId;
use crate::policy::Admission;

#[derive(Debug, Clone)]
pub struct Waiting {
    pub app: AppId,
    /// Below its minimum: first in line.
    pub repair: bool,
    pub since: Timestamp,
    pub mode: Admission,
    /// The levels it counts against, by name.
    pub path: Vec<String>,
    pub wanted: Vec<Wanted>,
}

#[derive(Debug, Clone)]
pub struct Floor {
    pub rooms: Vec<Room>,
    /// The same nodes with nothing on them.
    pub empty: Vec<Room>,
    pub levels: BTreeMap<String, Level>,
    pub now: Timestamp,
    /// How long a gang that does not fit may be passed.
    pub fence_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Admission(Outcome),
    /// It will never fit (17): larger than a limit, or than all nodes together.
    TooLarge(TooLarge),
    /// An older gang has waited long enough.
    Behind(AppId),
}

/// Answers everyone in line, and takes from the floor what is given.
pub fn line(waiting: &[Waiting], floor: &mut Floor) -> Vec<(AppId, Answer)> {
    let mut order: Vec<&Waiting> = waiting.iter().collect();
    order.sort_by(|a, b| {
        let key = |it: &Waiting| (!it.repair, it.since);
        key(a).cmp(&key(b)).then_with(|| a.app.cmp(&b.app))
    });
    let mut fence: Option<AppId> = None;
    let mut answers = Vec::new();
    for gang in order {
        if let Some(older) = &fence {
            answers.push((gang.app.clone(), Answer::Behind(older.clone())));
            continue;
        }
        let answer = floor.answer(gang);
        let waited = floor.now.ms_since(gang.since) >= floor.fence_ms;
        let waits = matches!(answer, Answer::Admission(Outcome::Wait(_)));
        if waits && (waited || gang.repair) {
            fence = Some(gang.app.clone());
        }
        answers.push((gang.app.clone(), answer));
    }
    answers
}

impl Floor {
    fn answer(&mut self, gang: &Waiting) -> Answer {
        let path = gang.path.iter().filter_map(|name| self.levels.get(name));
        let mut levels: Vec<Level> = path.cloned().collect();
        let outcome = admission::admit(&gang.wanted, &levels, &self.rooms, gang.mode);
        match &outcome {
            Outcome::Whole(placed) | Outcome::Part { placed, .. } => {
                admission::book(&gang.wanted, placed, &mut levels, &mut self.rooms);
                let changed = levels.into_iter().map(|level| (level.name.clone(), level));
                self.levels.extend(changed);
            }
            Outcome::Wait(_) => {
                let feasible = admission::feasible(&gang.wanted, &levels, &self.empty);
                if let Err(too_large) = feasible {
                    return Answer::TooLarge(too_large);
                }
            }
        }
        Answer::Admission(outcome)
    }
}
