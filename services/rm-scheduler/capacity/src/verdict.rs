//! Verdicts: why each work item has its processes, with numbers.

mod gangs;
mod no_node_fits;

use std::{collections::BTreeMap, sync::Arc};

use hayward_rm_scheduler_domain::{
    Reason, Verdict, Verdicts,
    plan::{Numbers, QuotaNumbers, Unblock},
};

use crate::{
    amount::amount_text,
    reserve::{cleared_nodes, reserved_nodes},
    round_state::{RoundState, Why},
    tree::ROOT,
};
use no_node_fits::no_node_fits;

/// A verdict without its counts.
#[derive(Clone)]
struct Answer {
    reason: Reason,
    detail: String,
    quota: Option<QuotaNumbers>,
    unblock: Option<Unblock>,
}

impl Answer {
    fn new(reason: Reason, detail: String) -> Self {
        Self {
            reason,
            detail,
            quota: None,
            unblock: None,
        }
    }
}

pub(crate) fn all(round: &RoundState) -> Verdicts {
    let mut explainer = Explainer {
        round,
        reserved: reserved_nodes(round),
        cleared: cleared_nodes(round),
        leaving: leaving(round),
        no_node_answers: BTreeMap::new(),
        free_space: BTreeMap::new(),
    };
    let items = 0..round.items.len();
    let verdicts = items.map(|item| {
        let work = round.items[item].work.clone();
        (work, Box::new(explainer.verdict(item)))
    });
    verdicts.collect()
}

fn leaving(round: &RoundState) -> BTreeMap<usize, u64> {
    let mut leaving: BTreeMap<usize, u64> = BTreeMap::new();
    let leaves = round.held.iter().filter(|held| held.leaves);
    for node in leaves.filter_map(|held| held.node) {
        *leaving.entry(node).or_default() += 1;
    }
    leaving
}

struct Explainer<'b, 'a> {
    round: &'b RoundState<'a>,
    /// Nodes reserved for other work.
    reserved: Vec<usize>,
    /// A node reserved with victims, by work item.
    cleared: BTreeMap<usize, usize>,
    /// Leaving processes, by node.
    leaving: BTreeMap<usize, u64>,
    /// Cached verdict per size, for work that may use any node.
    no_node_answers: BTreeMap<usize, Answer>,
    /// Whether a node has free space, per size.
    free_space: BTreeMap<usize, bool>,
}

impl Explainer<'_, '_> {
    fn verdict(&mut self, item: usize) -> Verdict {
        let round = self.round;
        let it = &round.items[item];
        let app = &round.apps[it.app];
        let has = it.has + it.placed;
        let numbers = Numbers {
            counted_processes: it.wanted,
            current_processes: has,
            leaving_processes: it.leaving,
            order: round.shapes[it.shape].order,
            wanted_processes: it.wanted,
            ..Numbers::default()
        };
        let class = app.queue.as_ref().ok();
        let class = class.map(|queue| round.tree.entries[*queue].path.clone());
        let (answer, refused) = match &app.queue {
            Err(refusal) => {
                // A gang that is too large is still in the right queue.
                let in_place = [Reason::QueueQuota, Reason::GangIncomplete];
                let named = !in_place.contains(&refusal.reason);
                let answer = Answer {
                    unblock: named.then_some(Unblock::NameClass),
                    ..Answer::new(refusal.reason, refusal.detail.clone())
                };
                (answer, true)
            }
            Ok(_) => (self.answer(item, has), false),
        };
        let missing = it.missing() > 0;
        Verdict {
            reason: answer.reason,
            waits: missing || refused,
            refused: refused && has == 0,
            class: class.map(Arc::from),
            detail: answer.detail,
            numbers: Numbers {
                quota: answer.quota,
                ..numbers
            },
            also: Vec::new(),
            unblock: answer.unblock.filter(|_| missing || refused),
        }
    }

    fn answer(&mut self, item: usize, has: u64) -> Answer {
        let it = &self.round.items[item];
        if it.missing() == 0 {
            let detail = if it.wanted == 0 {
                "wants no process now".to_owned()
            } else {
                format!("has all {has} processes it can use")
            };
            return Answer::new(Reason::Satisfied, detail);
        }
        if let Some(node) = self.cleared.get(&item) {
            return self.others_leave(item, *node);
        }
        let why = it.why.as_ref().or(self.round.apps[it.app].aside.as_ref());
        match why {
            Some(why) => self.waits(item, why),
            // Every item is placed or aside when a round ends.
            None => Answer::new(Reason::ResourcesExhausted, "is in line".to_owned()),
        }
    }

    fn others_leave(&self, item: usize, node: usize) -> Answer {
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
        Answer {
            unblock: Some(Unblock::Wait {
                leaving_processes: leaving_processes.max(1),
            }),
            ..Answer::new(Reason::WaitingForPreemption, detail)
        }
    }

    fn waits(&mut self, item: usize, why: &Why) -> Answer {
        let round = self.round;
        let path = |queue: usize| &round.tree.entries[queue].path;
        match why {
            Why::BackingOff { until } => {
                let name = round.apps[round.items[item].app].name;
                let detail = format!(
                    "so many items of application {name} found no node that it is left alone \
                     until {until}"
                );
                Answer::new(Reason::BackingOff, detail)
            }
            Why::TooManyRun {
                queue,
                owner,
                quota,
                reserved,
            } => self.too_many(*queue, owner.as_deref(), *quota, *reserved),
            Why::UserQuota {
                gate,
                dim,
                quota,
                reserved,
            } => {
                let gate = &round.gates.gates[*gate];
                let (owner, path) = (&gate.owner, path(gate.queue));
                let held = quota_text(quota, round.dims.name(*dim));
                let suffix = reserved_text(*reserved, round.dims.name(*dim));
                let detail = format!("{owner} holds {held} in queue {path}{suffix}");
                Answer {
                    quota: Some(*quota),
                    unblock: self.less(*dim, quota),
                    ..Answer::new(Reason::UserQuota, detail)
                }
            }
            Why::QueueQuota {
                queue,
                dim,
                quota,
                reserved,
            } => {
                let held = quota_text(quota, round.dims.name(*dim));
                let suffix = reserved_text(*reserved, round.dims.name(*dim));
                let detail = format!("queue {} holds {held}{suffix}", path(*queue));
                Answer {
                    quota: Some(*quota),
                    unblock: self.less(*dim, quota),
                    ..Answer::new(Reason::QueueQuota, detail)
                }
            }
            Why::Gang {
                fit,
                needed,
                because,
            } => self.gang(item, *fit, *needed, because.as_deref()),
            Why::NoNode => self.no_node(item),
        }
    }

    fn too_many(
        &self,
        queue: usize,
        owner: Option<&str>,
        quota: QuotaNumbers,
        reserved: u64,
    ) -> Answer {
        let owner = owner.map_or(String::new(), |it| format!(" for {it}"));
        let path = &self.round.tree.entries[queue].path;
        let (used, limit, suffix) = (quota.used, quota.limit, reserved_text(reserved, ""));
        let detail = format!("{used} of {limit} applications run in queue {path}{owner}{suffix}");
        Answer {
            quota: Some(quota),
            ..Answer::new(Reason::NotRunnable, detail)
        }
    }

    /// Returns the unblock for a process that exceeds the maximum: a smaller one could fit.
    fn less(&self, dim: usize, quota: &QuotaNumbers) -> Option<Unblock> {
        let unit = self.round.quantum.0.memory_bytes;
        let memory = self.round.dims.name(dim) == "memory" && unit > 0;
        let quanta = if memory { quota.limit / unit } else { 0 };
        (quota.needed > quota.limit && quanta > 0).then_some(Unblock::AskForLess { quanta })
    }

    fn no_node(&mut self, item: usize) -> Answer {
        let it = &self.round.items[item];
        if !it.anywhere {
            return no_node_fits(self.round, item, &self.reserved);
        }
        let round = self.round;
        let known = self.no_node_answers.entry(it.shape);
        known
            .or_insert_with(|| no_node_fits(round, item, &self.reserved))
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
