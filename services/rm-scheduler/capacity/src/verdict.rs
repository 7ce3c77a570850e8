//! Verdicts: why each work item has its processes, with numbers.

mod gangs;
mod no_fitting_node;

use std::{collections::BTreeMap, sync::Arc};

use hayward_rm_scheduler_domain::{
    Reason, Verdict, Verdicts,
    plan::{Numbers, QuotaNumbers, Unblock},
};

use crate::{
    amount::amount_text,
    queue_tree::ROOT,
    reserve::{nodes_reserved_with_victims, reserved_nodes},
    round_state::{RoundState, WaitReason},
};
use no_fitting_node::explain_no_fitting_node;

/// A verdict without the counts of processes.
#[derive(Clone)]
struct Explanation {
    reason: Reason,
    detail: String,
    quota: Option<QuotaNumbers>,
    unblock: Option<Unblock>,
}

impl Explanation {
    fn new(reason: Reason, detail: String) -> Self {
        Self {
            reason,
            detail,
            quota: None,
            unblock: None,
        }
    }
}

/// Returns a verdict for each work item.
pub(crate) fn all_verdicts(round: &RoundState) -> Verdicts {
    let mut explainer = Explainer {
        round,
        reserved: reserved_nodes(round),
        nodes_with_victims: nodes_reserved_with_victims(round),
        leaving: count_leaving(round),
        no_node_explanations: BTreeMap::new(),
        free_space: BTreeMap::new(),
    };
    let items = 0..round.items.len();
    let verdicts = items.map(|item| {
        let work = round.items[item].work.clone();
        (work, Box::new(explainer.verdict(item)))
    });
    verdicts.collect()
}

/// Returns the number of leaving allocations, by node.
fn count_leaving(round: &RoundState) -> BTreeMap<usize, u64> {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    let leaving = round
        .allocation_states
        .iter()
        .filter(|allocation_state| allocation_state.is_leaving);
    for node in leaving.filter_map(|allocation_state| allocation_state.node) {
        *counts.entry(node).or_default() += 1;
    }
    counts
}

/// Writes the verdicts of one round.
struct Explainer<'b, 'a> {
    round: &'b RoundState<'a>,
    /// Nodes that are reserved for any work.
    reserved: Vec<usize>,
    /// First node that victims are leaving for a work item, by work item.
    nodes_with_victims: BTreeMap<usize, usize>,
    /// Leaving processes, by node.
    leaving: BTreeMap<usize, u64>,
    /// Cached explanation per size, for work that may use any node.
    no_node_explanations: BTreeMap<usize, Explanation>,
    /// Whether a node has free space, per size.
    free_space: BTreeMap<usize, bool>,
}

impl Explainer<'_, '_> {
    fn verdict(&mut self, item: usize) -> Verdict {
        let round = self.round;
        let work_item = &round.items[item];
        let app = &round.apps[work_item.app];
        let current = work_item.current + work_item.placed;
        let numbers = Numbers {
            counted_processes: work_item.wanted,
            current_processes: current,
            leaving_processes: work_item.leaving,
            quanta: round.shapes[work_item.shape].quanta,
            wanted_processes: work_item.wanted,
            ..Numbers::default()
        };
        let class = app.queue.as_ref().ok();
        let class = class.map(|queue| round.tree.entries[*queue].path.clone());
        let (explanation, refused) = match &app.queue {
            Err(refusal) => {
                // A gang that is too large is still in the right queue.
                let gang_reasons = [Reason::QueueQuota, Reason::GangIncomplete];
                let is_wrong_queue = !gang_reasons.contains(&refusal.reason);
                let explanation = Explanation {
                    unblock: is_wrong_queue.then_some(Unblock::NameClass),
                    ..Explanation::new(refusal.reason, refusal.detail.clone())
                };
                (explanation, true)
            }
            Ok(_) => (self.explain(item, current), false),
        };
        let has_missing = work_item.missing() > 0;
        Verdict {
            reason: explanation.reason,
            waits: has_missing || refused,
            refused: refused && current == 0,
            class: class.map(Arc::from),
            detail: explanation.detail,
            numbers: Numbers {
                quota: explanation.quota,
                ..numbers
            },
            also: Vec::new(),
            unblock: explanation.unblock.filter(|_| has_missing || refused),
        }
    }

    fn explain(&mut self, item: usize, current: u64) -> Explanation {
        let work_item = &self.round.items[item];
        if work_item.missing() == 0 {
            let detail = if work_item.wanted == 0 {
                "wants no process now".to_owned()
            } else {
                format!("has all {current} processes it can use")
            };
            return Explanation::new(Reason::Satisfied, detail);
        }
        if let Some(node) = self.nodes_with_victims.get(&item) {
            return self.explain_leaving_victims(item, *node);
        }
        let wait_reason = work_item
            .wait_reason
            .as_ref()
            .or(self.round.apps[work_item.app].wait_reason.as_ref());
        match wait_reason {
            Some(wait_reason) => self.explain_wait(item, wait_reason),
            // Every item is placed or skipped when a round ends.
            None => Explanation::new(Reason::ResourcesExhausted, "is in line".to_owned()),
        }
    }

    fn explain_leaving_victims(&self, item: usize, node: usize) -> Explanation {
        let round = self.round;
        let leaving_processes = self.leaving.get(&node).copied().unwrap_or(0);
        let name = round.nodes.node_states[node].name;
        let detail = if leaving_processes > 0 {
            format!("others leave node {name}, which is reserved for it")
        } else {
            let queue = round.queue_of(item).unwrap_or(ROOT);
            let queue = &round.tree.entries[queue].path;
            format!(
                "others leave so that queue {queue} may have more, and node {name} is reserved \
                for it"
            )
        };
        Explanation {
            unblock: Some(Unblock::Wait {
                leaving_processes: leaving_processes.max(1),
            }),
            ..Explanation::new(Reason::WaitingForPreemption, detail)
        }
    }

    fn explain_wait(&mut self, item: usize, wait_reason: &WaitReason) -> Explanation {
        let round = self.round;
        let path = |queue: usize| &round.tree.entries[queue].path;
        match wait_reason {
            WaitReason::BackingOff { until } => {
                let name = round.apps[round.items[item].app].name;
                let detail = format!(
                    "so many items of application {name} found no node that it is left alone \
                     until {until}"
                );
                Explanation::new(Reason::BackingOff, detail)
            }
            WaitReason::ApplicationLimit {
                queue,
                owner,
                quota,
                reserved,
            } => self.explain_application_limit(*queue, owner.as_deref(), *quota, *reserved),
            WaitReason::UserQuota {
                owner_limit,
                dim,
                quota,
                reserved,
            } => {
                let owner_limit = &round.owner_limits.entries[*owner_limit];
                let (owner, path) = (&owner_limit.owner, path(owner_limit.queue));
                let usage = quota_text(quota, round.dims.name(*dim));
                let suffix = reserved_text(*reserved, round.dims.name(*dim));
                let detail = format!("{owner} holds {usage} in queue {path}{suffix}");
                Explanation {
                    quota: Some(*quota),
                    unblock: self.unblock_by_smaller_process(*dim, quota),
                    ..Explanation::new(Reason::UserQuota, detail)
                }
            }
            WaitReason::QueueQuota {
                queue,
                dim,
                quota,
                reserved,
            } => {
                let usage = quota_text(quota, round.dims.name(*dim));
                let suffix = reserved_text(*reserved, round.dims.name(*dim));
                let detail = format!("queue {} holds {usage}{suffix}", path(*queue));
                Explanation {
                    quota: Some(*quota),
                    unblock: self.unblock_by_smaller_process(*dim, quota),
                    ..Explanation::new(Reason::QueueQuota, detail)
                }
            }
            WaitReason::Gang {
                fitting,
                needed,
                cause,
            } => self.explain_gang(item, *fitting, *needed, cause.as_deref()),
            WaitReason::NoNode => self.explain_no_node(item),
        }
    }

    fn explain_application_limit(
        &self,
        queue: usize,
        owner: Option<&str>,
        quota: QuotaNumbers,
        reserved: u64,
    ) -> Explanation {
        let owner = owner.map_or(String::new(), |it| format!(" for {it}"));
        let path = &self.round.tree.entries[queue].path;
        let (used, limit, suffix) = (quota.used, quota.limit, reserved_text(reserved, ""));
        let detail = format!("{used} of {limit} applications run in queue {path}{owner}{suffix}");
        Explanation {
            quota: Some(quota),
            ..Explanation::new(Reason::NotRunnable, detail)
        }
    }

    /// Returns the unblock for a process that exceeds the maximum: a smaller one could fit.
    fn unblock_by_smaller_process(&self, dim: usize, quota: &QuotaNumbers) -> Option<Unblock> {
        let quantum_bytes = self.round.quantum.0.memory_bytes;
        let is_memory = self.round.dims.name(dim) == "memory" && quantum_bytes > 0;
        let quanta = if is_memory {
            quota.limit / quantum_bytes
        } else {
            0
        };
        (quota.needed > quota.limit && quanta > 0).then_some(Unblock::AskForLess { quanta })
    }

    fn explain_no_node(&mut self, item: usize) -> Explanation {
        let work_item = &self.round.items[item];
        if !work_item.may_use_any_node {
            return explain_no_fitting_node(self.round, item, &self.reserved);
        }
        let round = self.round;
        let entry = self.no_node_explanations.entry(work_item.shape);
        entry
            .or_insert_with(|| explain_no_fitting_node(round, item, &self.reserved))
            .clone()
    }
}

fn quota_text(quota: &QuotaNumbers, resource: &str) -> String {
    let text = |amount| amount_text(resource, amount);
    let (used, limit, needed) = (text(quota.used), text(quota.limit), text(quota.needed));
    if quota.needed > quota.limit {
        return format!(
            "{used} of {limit} {resource}, and one process needs {needed}: it can never start"
        );
    }
    format!("{used} of {limit} {resource}, and {needed} more are needed")
}

/// Returns a text for the reserved part of the usage.
fn reserved_text(reserved: u64, resource: &str) -> String {
    if reserved == 0 {
        return String::new();
    }
    let reserved = amount_text(resource, reserved);
    format!("; {reserved} of that is reserved for work before it")
}
