//! Decides which waiting gangs are admitted, in order: repairs first, then by age (I13).
//!
//! A younger gang may overtake an older gang that does not fit, until the older gang has waited for
//! `overtaking_limit_ms`. A stream of small gangs therefore cannot starve a large one. A gang that
//! can never fit blocks no other.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;

use crate::free_capacity::{Level, NodeSpace};
use crate::gang_admission::{self, MemberRequest, Outcome, TooLarge};
use crate::gang_policy::Admission;
use crate::ids::AppId;

/// A gang that waits for admission or repair.
#[derive(Debug, Clone)]
pub struct WaitingGang {
    pub app: AppId,
    /// Whether the gang is below its minimum. Such a gang is served first.
    pub is_repair: bool,
    pub since: Timestamp,
    pub mode: Admission,
    /// Names of the levels that limit the gang: its queue and all queues above it.
    pub queue_path: Vec<String>,
    pub wanted: Vec<MemberRequest>,
}

/// Free space and limits of one admission pass. Admitted gangs are subtracted from them.
#[derive(Debug, Clone)]
pub struct AdmissionPass {
    pub spaces: Vec<NodeSpace>,
    /// Space of the same nodes without any work.
    pub empty: Vec<NodeSpace>,
    pub levels: BTreeMap<String, Level>,
    pub now: Timestamp,
    /// Milliseconds for which a gang that does not fit may be overtaken.
    pub overtaking_limit_ms: u64,
}

/// Decision about one waiting gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Admission(Outcome),
    /// The gang will never fit. It exceeds a limit, or all nodes together.
    TooLarge(TooLarge),
    /// An older gang has waited for `overtaking_limit_ms`, so this one may not overtake it.
    WaitsBehind(AppId),
}

/// Decides about every waiting gang in order, and subtracts the placed members from the free space.
pub fn decide_all(waiting: &[WaitingGang], pass: &mut AdmissionPass) -> Vec<(AppId, Decision)> {
    let mut gangs: Vec<&WaitingGang> = waiting.iter().collect();
    gangs.sort_by(|a, b| {
        let key = |it: &WaitingGang| (!it.is_repair, it.since);
        key(a).cmp(&key(b)).then_with(|| a.app.cmp(&b.app))
    });
    let mut blocking_gang: Option<AppId> = None;
    let mut decisions = Vec::new();
    for gang in gangs {
        if let Some(older) = &blocking_gang {
            decisions.push((gang.app.clone(), Decision::WaitsBehind(older.clone())));
            continue;
        }
        let decision = pass.decide(gang);
        let has_waited_long = pass.now.ms_since(gang.since) >= pass.overtaking_limit_ms;
        let is_waiting = matches!(decision, Decision::Admission(Outcome::Waiting(_)));
        if is_waiting && (has_waited_long || gang.is_repair) {
            blocking_gang = Some(gang.app.clone());
        }
        decisions.push((gang.app.clone(), decision));
    }
    decisions
}

impl AdmissionPass {
    fn decide(&mut self, gang: &WaitingGang) -> Decision {
        let queue_levels = gang
            .queue_path
            .iter()
            .filter_map(|name| self.levels.get(name));
        let mut levels: Vec<Level> = queue_levels.cloned().collect();
        let outcome = gang_admission::admit(&gang.wanted, &levels, &self.spaces, gang.mode);
        match &outcome {
            Outcome::Complete(placed) | Outcome::Partial { placed, .. } => {
                gang_admission::subtract_placed(
                    &gang.wanted,
                    placed,
                    &mut levels,
                    &mut self.spaces,
                );
                let changed = levels.into_iter().map(|level| (level.name.clone(), level));
                self.levels.extend(changed);
            }
            Outcome::Waiting(_) => {
                let result = gang_admission::check_feasible(&gang.wanted, &levels, &self.empty);
                if let Err(too_large) = result {
                    return Decision::TooLarge(too_large);
                }
            }
        }
        Decision::Admission(outcome)
    }
}
