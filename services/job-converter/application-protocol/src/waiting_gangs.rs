//! Order of waiting gangs: repairs first, then by age (I13).
//!
//! A younger gang may overtake one that does not fit, until that one has waited for `fence_ms`. A
//! stream of small gangs therefore cannot starve a large one. A gang that can never fit blocks no
//! other.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;

use crate::admission::{self, Outcome, TooLarge, Wanted};
use crate::free_capacity::{Level, NodeSpace};
use crate::ids::AppId;
use crate::policy::Admission;

#[derive(Debug, Clone)]
pub struct Waiting {
    pub app: AppId,
    /// Whether the gang is below its minimum. Such a gang is served first.
    pub repair: bool,
    pub since: Timestamp,
    pub mode: Admission,
    /// Names of the queue levels that the gang counts against.
    pub path: Vec<String>,
    pub wanted: Vec<Wanted>,
}

#[derive(Debug, Clone)]
pub struct AdmissionSpace {
    pub spaces: Vec<NodeSpace>,
    /// Space of the same nodes without any work.
    pub empty: Vec<NodeSpace>,
    pub levels: BTreeMap<String, Level>,
    pub now: Timestamp,
    /// Milliseconds for which a gang that does not fit may be overtaken.
    pub fence_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Admission(Outcome),
    /// The gang will never fit. It exceeds a limit, or all nodes together.
    TooLarge(TooLarge),
    /// An older gang has waited for `fence_ms`, so this one may not overtake it.
    Behind(AppId),
}

/// Decides about every waiting gang in order, and subtracts the placed members from the free space.
pub fn admit_in_order(waiting: &[Waiting], space: &mut AdmissionSpace) -> Vec<(AppId, Answer)> {
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
        let answer = space.answer(gang);
        let waited = space.now.ms_since(gang.since) >= space.fence_ms;
        let waits = matches!(answer, Answer::Admission(Outcome::Wait(_)));
        if waits && (waited || gang.repair) {
            fence = Some(gang.app.clone());
        }
        answers.push((gang.app.clone(), answer));
    }
    answers
}

impl AdmissionSpace {
    fn answer(&mut self, gang: &Waiting) -> Answer {
        let path = gang.path.iter().filter_map(|name| self.levels.get(name));
        let mut levels: Vec<Level> = path.cloned().collect();
        let outcome = admission::admit(&gang.wanted, &levels, &self.spaces, gang.mode);
        match &outcome {
            Outcome::Whole(placed) | Outcome::Part { placed, .. } => {
                admission::subtract(&gang.wanted, placed, &mut levels, &mut self.spaces);
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
