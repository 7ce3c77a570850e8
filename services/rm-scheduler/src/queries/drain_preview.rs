//! Preview of a drain: which processes would move and to which node, which would stay, and how long
//! the drain may take. The code is pure.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::WaitReason;
use hayward_rm_scheduler_api::node_publications::{Blocker, BlockerReason};
use hayward_rm_scheduler_api::what_if::{DrainMove, DrainPreview};
use hayward_rm_scheduler_domain::forecast::{Forecast, Timeline};
use hayward_vocabulary::{NodeName, WorkId, WorkKind};

use crate::command::ProcessOnNode;

/// Returns one preview for each node, in the order of `nodes`.
pub fn preview_drains(
    nodes: &[NodeName],
    processes: &[ProcessOnNode],
    forecast: &Forecast,
) -> Vec<DrainPreview> {
    let would_leave = |process: &&ProcessOnNode| {
        nodes.contains(&process.node) && reason_to_stay(process).is_none()
    };
    let mut groups: BTreeMap<&WorkId, Vec<&ProcessOnNode>> = BTreeMap::new();
    for process in processes.iter().filter(would_leave) {
        groups.entry(&process.group).or_default().push(process);
    }
    let mut successors = SuccessorNodes::new(processes.iter().filter(would_leave), forecast);
    let preview = |node: &NodeName| {
        let on_node = || processes.iter().filter(|process| process.node == *node);
        let stays: Vec<Blocker> = on_node().filter_map(reason_to_stay).collect();
        let moving: Vec<&ProcessOnNode> = on_node().filter(would_leave).collect();
        let moves: Vec<DrainMove> = moving
            .iter()
            .map(|process| successors.next_move(process))
            .collect();
        let without_space = moves
            .iter()
            .filter(|drain_move| drain_move.why_not.is_some())
            .count() as u64;
        let estimate = match reason_without_estimate(&stays, without_space, forecast.with.settled) {
            Some(why) => Err(why),
            None => moving
                .iter()
                .map(|process| estimate_ms(&groups[&process.group]))
                .try_fold(0, |slowest, group| group.map(|ms| slowest.max(ms))),
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
fn reason_to_stay(process: &ProcessOnNode) -> Option<Blocker> {
    let (why, detail) = if let Some(reason) = &process.leave_reason {
        let detail = format!("it was ordered to leave before: {reason}");
        (BlockerReason::Stopping, detail)
    } else if process.kind == WorkKind::Reservation {
        let detail = format!(
            "a reservation is never preempted; ask {} to release it",
            process.user
        );
        (BlockerReason::Reservation, detail)
    } else if process.unreachable {
        let detail = format!("{} waits for its node, which does not answer", process.work);
        (BlockerReason::Unreachable, detail)
    } else {
        return None;
    };
    Some(Blocker {
        allocation: process.allocation.clone(),
        work: process.work.clone(),
        user: process.user.clone(),
        why,
        detail,
    })
}

/// Returns why the duration cannot be estimated. Returns `None` if it can.
fn reason_without_estimate(stays: &[Blocker], without_space: u64, settled: bool) -> Option<String> {
    let is_lasting = |blocker: &&Blocker| blocker.why != BlockerReason::Stopping;
    if let Some(blocker) = stays.iter().find(is_lasting) {
        return Some(format!("{} of {} stays", blocker.work, blocker.user));
    }
    if without_space > 0 {
        let detail = format!("{without_space} of the processes find no space elsewhere");
        return Some(detail);
    }
    (!settled).then(|| "more rounds are needed for an estimate; ask for more".to_owned())
}

/// Returns the milliseconds that the moves of a group need. The disruption limit is the
/// number of processes that move at the same time. Each such wave takes as long as its slowest
/// process.
fn estimate_ms(group: &[&ProcessOnNode]) -> Result<u64, String> {
    let mut slowest = 0;
    for process in group {
        let Some(start_ms) = process.start_ms else {
            return Err(format!(
                "no process of {} has started yet, so the time of a start is unknown",
                process.work
            ));
        };
        slowest = slowest.max(process.stop_grace_ms.saturating_add(start_ms));
    }
    let count = group.len() as u64;
    let limit = group
        .iter()
        .filter_map(|process| process.disruption_limit)
        .min();
    match limit {
        Some(0) => Err(format!(
            "{} lets none of its processes be moved; only a deadline moves them",
            group[0].group
        )),
        limit => {
            let wave_size = limit.unwrap_or(count).max(1);
            Ok(slowest.saturating_mul(count.div_ceil(wave_size)))
        }
    }
}

/// Nodes on which the forecast starts successors of leaving processes. Each start is used for one
/// process.
struct SuccessorNodes<'a> {
    /// Nodes of the starts that are not used yet, by work. The first start is last.
    nodes_by_work: BTreeMap<&'a WorkId, Vec<&'a NodeName>>,
    /// Number of leaving processes of each work that find space elsewhere or are no longer wanted.
    with_space: BTreeMap<&'a WorkId, u64>,
    forecast: &'a Forecast,
}

impl<'a> SuccessorNodes<'a> {
    fn new(leaving: impl Iterator<Item = &'a ProcessOnNode>, forecast: &'a Forecast) -> Self {
        let mut with_space: BTreeMap<&WorkId, u64> = BTreeMap::new();
        for process in leaving {
            *with_space.entry(&process.work).or_default() += 1;
        }
        let (without, with) = (
            process_counts(&forecast.without),
            process_counts(&forecast.with),
        );
        for (work, count) in &mut with_space {
            let processes =
                |counts: &BTreeMap<&WorkId, u64>| counts.get(work).copied().unwrap_or(0);
            let lost = processes(&without).saturating_sub(processes(&with));
            *count = count.saturating_sub(lost);
        }
        let mut nodes_by_work: BTreeMap<&WorkId, Vec<&NodeName>> = BTreeMap::new();
        for start in forecast.with.starts.iter().rev() {
            nodes_by_work
                .entry(&start.work)
                .or_default()
                .push(&start.node);
        }
        Self {
            nodes_by_work,
            with_space,
            forecast,
        }
    }

    /// Returns the move of one process, to the next node of its work. If the work finds less space
    /// elsewhere than it has leaving processes, the last of them have no node.
    fn next_move(&mut self, process: &'a ProcessOnNode) -> DrainMove {
        let with_space = self.with_space.entry(&process.work).or_default();
        let has_space = *with_space > 0;
        *with_space = with_space.saturating_sub(1);
        let mut target = None;
        if has_space && let Some(nodes) = self.nodes_by_work.get_mut(&process.work) {
            target = nodes.pop().cloned();
        }
        // The work may have a verdict that it does not wait. This is the case if its entitlement in
        // the smaller fleet is so low that the work has all processes it is entitled to.
        let verdict = self.forecast.with.verdicts.get(&process.work);
        let waits = verdict.filter(|verdict| verdict.waits || verdict.refused);
        let why_not = waits.map_or(WaitReason::InsufficientResources, |verdict| verdict.reason);
        DrainMove {
            allocation: process.allocation.clone(),
            work: process.work.clone(),
            kind: process.kind,
            user: process.user.clone(),
            order: process.quanta,
            to: target,
            why_not: (!has_space).then_some(why_not),
            disruption_limit: process.disruption_limit,
            stop_grace_ms: process.stop_grace_ms,
            start_ms: process.start_ms,
        }
    }
}

fn process_counts(timeline: &Timeline) -> BTreeMap<&WorkId, u64> {
    let processes = timeline.processes();
    processes
        .map(|(work, (.., current))| (work, current))
        .collect()
}
