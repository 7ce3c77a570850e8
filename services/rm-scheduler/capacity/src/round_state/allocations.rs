//! Allocations in the pool, and those that must leave in any case.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::{plan::VacateReason, snapshot::BlockEffect};
use hayward_vocabulary::WorkKind;

use super::{AllocationState, RoundState, read_snapshot::wait_start};
use crate::{owner_limits::LimitSubject, resource_vec::add};

impl RoundState<'_> {
    /// Reads all allocations on the pool's nodes, and all allocations of its work.
    pub(super) fn read_allocations(&mut self) {
        for (id, allocation) in &self.snapshot.allocations {
            let node = self.nodes.find(&allocation.node);
            let item = self.item_by_work.get(&allocation.work).copied();
            if node.is_none() && item.is_none() {
                continue;
            }
            let vector = self.dims.vector(allocation.quanta, &allocation.size);
            if let Some(node) = node {
                self.nodes.add_usage(node, &vector, &allocation.gpus);
            }
            if let (Some(anti_affinity), Some(item)) = (
                item.and_then(|index| self.items[index].demand.anti_affinity.as_ref()),
                item,
            ) {
                let placed = (self.items[item].work, &allocation.node);
                self.anti_affinity_groups
                    .entry(&anti_affinity.group)
                    .or_default()
                    .push(placed);
            }
            if let Some(item) = item {
                let item = &mut self.items[item];
                item.current += 1;
                item.waits_since = wait_start(item.waits_since, allocation.granted_at);
            }
            self.allocation_states.push(AllocationState {
                id,
                allocation,
                node,
                item,
                queue: None,
                vector,
                is_leaving: false,
            });
        }
    }

    /// Charges queues, users and groups for allocations, and then computes what each work item
    /// lacks.
    pub(super) fn charge_allocations(&mut self) {
        for index in 0..self.allocation_states.len() {
            let allocation_state = &self.allocation_states[index];
            // Allocations of classes belong to another planner.
            let is_foreign = self
                .snapshot
                .classes
                .contains_key(&allocation_state.allocation.class);
            let vector = allocation_state.vector.clone();
            match allocation_state.item {
                Some(item) => {
                    let app = self.items[item].app;
                    self.allocation_states[index].queue =
                        self.apps[app].queue.as_ref().ok().copied();
                    self.charge(app, &vector);
                }
                None if is_foreign => {}
                None => self.charge_withdrawn(index),
            }
            let is_leaving = self.allocation_states[index].allocation.leaving
                || self.allocation_states[index].allocation.purged;
            if is_leaving {
                self.mark_leaving(index);
            }
        }
        self.vacate_forced();
        for item in &mut self.items {
            item.wanted = Self::wanted(item.demand, item.current);
        }
        self.vacate_surplus();
    }

    /// Charges an allocation of withdrawn work to its queue, user and group.
    fn charge_withdrawn(&mut self, index: usize) {
        let allocation_state = &self.allocation_states[index];
        let (queue, _) = self.tree.nearest(&allocation_state.allocation.class);
        let subject = LimitSubject {
            user: allocation_state.allocation.user.as_str(),
            group: allocation_state.allocation.group.as_deref(),
        };
        let owner_limits = self
            .owner_limits
            .for_subject(&self.tree, &self.dims, queue, subject);
        for owner_limit in owner_limits {
            add(
                &mut self.owner_limits.entries[owner_limit].used,
                &allocation_state.vector,
            );
        }
        let path: Vec<usize> = self.tree.path(queue).collect();
        for ancestor in path {
            add(
                &mut self.tree.entries[ancestor].used,
                &allocation_state.vector,
            );
        }
        self.allocation_states[index].queue = Some(queue);
    }

    /// Vacates allocations of withdrawn work, and those on lost, evacuated or offline nodes.
    fn vacate_forced(&mut self) {
        for index in 0..self.allocation_states.len() {
            let allocation_state = &self.allocation_states[index];
            let allocation = allocation_state.allocation;
            let node = self.snapshot.nodes.get(&allocation.node);
            let is_lost = node.is_none_or(|node| node.lost);
            let already_vacated = if is_lost {
                allocation.purged
            } else {
                allocation.leaving
            };
            if already_vacated || allocation.purged {
                continue;
            }
            if let Some((reason, detail)) = self.reason_to_vacate(index) {
                self.vacate(index, reason, detail);
            }
        }
    }

    /// Returns why the allocation must leave in any case. `None` if it may stay.
    fn reason_to_vacate(&self, index: usize) -> Option<(VacateReason, String)> {
        let allocation_state = &self.allocation_states[index];
        let allocation = allocation_state.allocation;
        let Some(item) = allocation_state.item else {
            // Work of other planners is not vacated here.
            let is_withdrawn = !self.snapshot.demand.contains_key(&allocation.work);
            let is_own = is_withdrawn && !self.snapshot.classes.contains_key(&allocation.class);
            let detail = format!("work {} is withdrawn", allocation.work);
            return is_own.then_some((VacateReason::WorkGone, detail));
        };
        if self.items[item].demand.kind == WorkKind::Reservation {
            return None;
        }
        let Some(node) = allocation_state.node else {
            let node = self.snapshot.nodes.get(&allocation.node);
            let is_lost = node.is_none_or(|node| node.lost);
            let detail = format!("node {} was lost", allocation.node);
            return is_lost.then_some((VacateReason::NodeLost, detail));
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
        let is_offline = node.offline && !allocation.fixed;
        let detail = format!("node {} was varied off", allocation.node);
        is_offline.then_some((VacateReason::NodeOffline, detail))
    }

    /// Vacates the newest allocations of work that has more processes than allowed.
    fn vacate_surplus(&mut self) {
        let mut surplus_items: Vec<usize> = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            let limit = if item.demand.kind == WorkKind::Job {
                item.demand.max_processes
            } else {
                item.demand.max_processes.min(1)
            };
            let is_exempt = item.demand.keeps_what_it_holds || item.demand.completing;
            if item.current > limit && !is_exempt {
                surplus_items.push(index);
            }
        }
        for item in surplus_items {
            let stays = |index: &usize| {
                self.allocation_states[*index].item == Some(item)
                    && !self.allocation_states[*index].is_leaving
            };
            let mut allocations: Vec<usize> =
                (0..self.allocation_states.len()).filter(stays).collect();
            allocations.sort_by_key(|index| {
                let allocation_state = &self.allocation_states[*index];
                Reverse((allocation_state.allocation.granted_at, allocation_state.id))
            });
            let limit = self.items[item].demand.max_processes;
            let excess = self.items[item].current.saturating_sub(limit);
            for index in allocations
                .into_iter()
                .take(usize::try_from(excess).unwrap_or(0))
            {
                let detail = format!("its work may have {limit} processes");
                self.vacate(index, VacateReason::OwnLimit, detail);
            }
        }
    }
}
