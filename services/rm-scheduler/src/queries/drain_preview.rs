//! Preview of a drain: which processes move and to which node, which stay, and how long it may
//! take. The code is pure.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::WaitReason;
use hayward_rm_scheduler_api::evidence::{Blocker, BlockerReason};
use hayward_rm_scheduler_api::what_if::{DrainMove, DrainPreview};
use hayward_rm_scheduler_domain::forecast::{Forecast, Timeline};
use hayward_vocabulary::{NodeName, WorkId, WorkKind};

use crate::command::ProcessOnNode;

/// Returns one preview for each node, in the order of `nodes`.
pub fn drains(
    nodes: &[NodeName],
    processes: &[ProcessOnNode],
    forecast: &Forecast,
) -> Vec<DrainPreview> {
    let goes = |it: &&ProcessOnNode| nodes.contains(&it.node) && stays(it).is_none();
    let mut groups: BTreeMap<&WorkId, Vec<&ProcessOnNode>> = BTreeMap::new();
    for it in processes.iter().filter(goes) {
        groups.entry(&it.group).or_default().push(it);
    }
    let mut places = SuccessorPlaces::new(processes.iter().filter(goes), forecast);
    let preview = |node: &NodeName| {
        let here = || processes.iter().filter(|it| it.node == *node);
        let stays: Vec<Blocker> = here().filter_map(stays).collect();
        let moving: Vec<&ProcessOnNode> = here().filter(goes).collect();
        let moves: Vec<DrainMove> = moving.iter().map(|it| places.place(it)).collect();
        let without_space = moves.iter().filter(|it| it.why_not.is_some()).count() as u64;
        let estimate = match hindrance(&stays, without_space, forecast.with.settled) {
            Some(why) => Err(why),
            None => moving
                .iter()
                .map(|it| estimate(&groups[&it.group]))
                .try_fold(0, |most, one| one.map(|ms| most.max(ms))),
        };
        DrainPreview {
            node: node.clone(),
            total: (moves.len() + stays.len()) as u64,
            moves,
            stays,
            without_room: without_space,
            estimate_ms: estimate.as_ref().ok().copied(),
            no_estimate: estimate.err(),
        }
    };
    nodes.iter().map(preview).collect()
}

/// Returns why a process would stay. Returns `None` if it would leave.
fn stays(it: &ProcessOnNode) -> Option<Blocker> {
    let (why, detail) = if let Some(leaving) = &it.leaving {
        let detail = format!("it was ordered to leave before: {leaving}");
        (BlockerReason::Stopping, detail)
    } else if it.kind == WorkKind::Reservation {
        let detail = format!(
            "a reservation is never preempted; ask {} to release it",
            it.user
        );
        (BlockerReason::Reservation, detail)
    } else if it.unreachable {
        let detail = format!("{} waits for its node, which does not answer", it.work);
        (BlockerReason::Unreachable, detail)
    } else {
        return None;
    };
    Some(Blocker {
        allocation: it.allocation.clone(),
        work: it.work.clone(),
        user: it.user.clone(),
        why,
        detail,
    })
}

fn hindrance(stays: &[Blocker], without_space: u64, settled: bool) -> Option<String> {
    let lasting = |it: &&Blocker| it.why != BlockerReason::Stopping;
    if let Some(stays) = stays.iter().find(lasting) {
        return Some(format!("{} of {} stays", stays.work, stays.user));
    }
    if without_space > 0 {
        let detail = format!("{without_space} of the processes find no space elsewhere");
        return Some(detail);
    }
    (!settled).then(|| "more rounds are needed for an estimate; ask for more".to_owned())
}

/// Returns the milliseconds that a group needs. Processes move in waves as large as the disruption
/// limit. A wave takes as long as its slowest process.
fn estimate(group: &[&ProcessOnNode]) -> Result<u64, String> {
    let mut slowest = 0;
    for it in group {
        let Some(start_ms) = it.start_ms else {
            return Err(format!(
                "no process of {} has started yet, so the time of a start is unknown",
                it.work
            ));
        };
        slowest = slowest.max(it.stop_grace_ms.saturating_add(start_ms));
    }
    let count = group.len() as u64;
    let limit = group.iter().filter_map(|it| it.disruption_limit).min();
    match limit {
        Some(0) => Err(format!(
            "{} lets none of its processes be moved; only a deadline moves them",
            group[0].group
        )),
        limit => Ok(slowest.saturating_mul(count.div_ceil(limit.unwrap_or(count).max(1)))),
    }
}

/// Nodes on which successors of leaving processes start, by work. Each place is used once.
struct SuccessorPlaces<'a> {
    places: BTreeMap<&'a WorkId, Vec<&'a NodeName>>,
    /// Number of processes of each work that find space elsewhere or are no longer wanted.
    settled: BTreeMap<&'a WorkId, u64>,
    forecast: &'a Forecast,
}

impl<'a> SuccessorPlaces<'a> {
    fn new(goes: impl Iterator<Item = &'a ProcessOnNode>, forecast: &'a Forecast) -> Self {
        let mut settled: BTreeMap<&WorkId, u64> = BTreeMap::new();
        for it in goes {
            *settled.entry(&it.work).or_default() += 1;
        }
        let (without, with) = (counts(&forecast.without), counts(&forecast.with));
        for (work, count) in &mut settled {
            let started = |counts: &BTreeMap<&WorkId, u64>| counts.get(work).copied().unwrap_or(0);
            let lost = started(&without).saturating_sub(started(&with));
            *count = count.saturating_sub(lost);
        }
        let mut places: BTreeMap<&WorkId, Vec<&NodeName>> = BTreeMap::new();
        for start in forecast.with.starts.iter().rev() {
            places.entry(&start.work).or_default().push(&start.node);
        }
        Self {
            places,
            settled,
            forecast,
        }
    }

    /// Takes a place for one process. The places of a work run out before its last processes, and
    /// these stay without space.
    fn place(&mut self, it: &'a ProcessOnNode) -> DrainMove {
        let settled = self.settled.entry(&it.work).or_default();
        let has_space = *settled > 0;
        *settled = settled.saturating_sub(1);
        let mut to = None;
        if has_space && let Some(places) = self.places.get_mut(&it.work) {
            to = places.pop().cloned();
        }
        // Work that gets all that the smaller fleet can give has a verdict without a wait.
        let verdict = self.forecast.with.verdicts.get(&it.work);
        let waits = verdict.filter(|verdict| verdict.waits || verdict.refused);
        let why_not = waits.map_or(WaitReason::InsufficientResources, |verdict| verdict.reason);
        DrainMove {
            allocation: it.allocation.clone(),
            work: it.work.clone(),
            kind: it.kind,
            user: it.user.clone(),
            order: it.order,
            to,
            why_not: (!has_space).then_some(why_not),
            disruption_limit: it.disruption_limit,
            stop_grace_ms: it.stop_grace_ms,
            start_ms: it.start_ms,
        }
    }
}

fn counts(course: &Timeline) -> BTreeMap<&WorkId, u64> {
    let processes = course.processes();
    processes
        .map(|(work, (.., current))| (work, current))
        .collect()
}
