//! Allocations in the pool, and those that must leave in any case.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::{plan::VacateReason, snapshot::BlockEffect};
use hayward_vocabulary::WorkKind;

use super::{HeldAllocation, RoundState, open::later};
use crate::{limits::LimitSubject, resource_vec::add};

impl RoundState<'_> {
    /// Reads all allocations on the pool's nodes, and all allocations of its work.
    pub(super) fn read_allocations(&mut self) {
        for (id, allocation) in &self.snapshot.allocations {
            let node = self.nodes.find(&allocation.node);
            let item = self.item_of.get(&allocation.work).copied();
            if node.is_none() && item.is_none() {
                continue;
            }
            let vector = self.dims.vector(allocation.order, &allocation.size);
            if let Some(node) = node {
                self.nodes.hold(node, &vector, &allocation.gpus);
            }
            if let (Some(apart), Some(item)) = (
                item.and_then(|at| self.items[at].demand.apart.as_ref()),
                item,
            ) {
                let placed = (self.items[item].work, &allocation.node);
                self.apart.entry(&apart.group).or_default().push(placed);
            }
            if let Some(item) = item {
                let item = &mut self.items[item];
                item.has += 1;
                item.waits_since = later(item.waits_since, allocation.granted_at);
            }
            self.held.push(HeldAllocation {
                id,
                allocation,
                node,
                item,
                queue: None,
                vector,
                leaves: false,
            });
        }
    }

    /// Charges queues, users and groups for allocations, and then computes what each work item
    /// lacks.
    pub(super) fn charge_allocations(&mut self) {
        for at in 0..self.held.len() {
            let held = &self.held[at];
            let foreign = self.snapshot.classes.contains_key(&held.allocation.class);
            let vector = held.vector.clone();
            match held.item {
                Some(item) => {
                    let app = self.items[item].app;
                    self.held[at].queue = self.apps[app].queue.as_ref().ok().copied();
                    self.charge(app, &vector);
                }
                None if foreign => {}
                None => self.charge_withdrawn(at),
            }
            let leaves = self.held[at].allocation.leaving || self.held[at].allocation.purged;
            if leaves {
                self.mark_leaving(at);
            }
        }
        self.vacate_forced();
        for item in &mut self.items {
            item.wanted = Self::wanted(item.demand, item.has);
        }
        self.shrink();
    }

    /// Charges an allocation of withdrawn work to its queue, user and group.
    fn charge_withdrawn(&mut self, held: usize) {
        let it = &self.held[held];
        let (queue, _) = self.tree.nearest(&it.allocation.class);
        let subject = LimitSubject {
            user: it.allocation.user.as_str(),
            group: it.allocation.group.as_deref(),
        };
        let gates = self
            .gates
            .for_subject(&self.tree, &self.dims, queue, subject);
        for gate in gates {
            add(&mut self.gates.gates[gate].used, &it.vector);
        }
        let path: Vec<usize> = self.tree.path(queue).collect();
        for at in path {
            add(&mut self.tree.entries[at].used, &it.vector);
        }
        self.held[held].queue = Some(queue);
    }

    fn vacate_forced(&mut self) {
        for at in 0..self.held.len() {
            let held = &self.held[at];
            let allocation = held.allocation;
            let node = self.snapshot.nodes.get(&allocation.node);
            let lost = node.is_none_or(|node| node.lost);
            let already_vacated = if lost {
                allocation.purged
            } else {
                allocation.leaving
            };
            if already_vacated || allocation.purged {
                continue;
            }
            if let Some((reason, detail)) = self.forced_vacate(at) {
                self.vacate(at, reason, detail);
            }
        }
    }

    fn forced_vacate(&self, at: usize) -> Option<(VacateReason, String)> {
        let held = &self.held[at];
        let allocation = held.allocation;
        let Some(item) = held.item else {
            // Work of other planners is not vacated here.
            let gone = !self.snapshot.demand.contains_key(&allocation.work);
            let mine = gone && !self.snapshot.classes.contains_key(&allocation.class);
            let detail = format!("work {} is withdrawn", allocation.work);
            return mine.then_some((VacateReason::WorkGone, detail));
        };
        if self.items[item].demand.kind == WorkKind::Reservation {
            return None;
        }
        let Some(node) = held.node else {
            let known = self.snapshot.nodes.get(&allocation.node);
            let lost = known.is_none_or(|node| node.lost);
            let detail = format!("node {} was lost", allocation.node);
            return lost.then_some((VacateReason::NodeLost, detail));
        };
        let node = self.nodes.node_states[node].node;
        if node.lost {
            let detail = format!("node {} was lost", allocation.node);
            return Some((VacateReason::NodeLost, detail));
        }
        let block = node.block.as_ref();
        if let Some(block) = block.filter(|block| block.effect == BlockEffect::Evacuate) {
            let detail = format!("node {} is evacuated: {}", allocation.node, block.reason);
            return Some((VacateReason::Blocked, detail));
        }
        let off = node.offline && !allocation.fixed;
        let detail = format!("node {} was varied off", allocation.node);
        off.then_some((VacateReason::NodeOffline, detail))
    }

    /// Vacates the newest allocations of work that has more processes than allowed.
    fn shrink(&mut self) {
        let mut too_many: Vec<usize> = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            let limit = if item.demand.kind == WorkKind::Job {
                item.demand.max_processes
            } else {
                item.demand.max_processes.min(1)
            };
            let held_back = item.demand.keeps_what_it_holds || item.demand.completing;
            if item.has > limit && !held_back {
                too_many.push(at);
            }
        }
        for item in too_many {
            let mine = |at: &usize| self.held[*at].item == Some(item) && !self.held[*at].leaves;
            let mut mine: Vec<usize> = (0..self.held.len()).filter(mine).collect();
            mine.sort_by_key(|at| {
                let it = &self.held[*at];
                Reverse((it.allocation.granted_at, it.id))
            });
            let limit = self.items[item].demand.max_processes;
            let excess = self.items[item].has.saturating_sub(limit);
            for at in mine.into_iter().take(usize::try_from(excess).unwrap_or(0)) {
                let detail = format!("its work may have {limit} processes");
                self.vacate(at, VacateReason::OwnLimit, detail);
            }
        }
    }
}
