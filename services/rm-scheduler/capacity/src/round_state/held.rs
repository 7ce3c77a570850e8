//! What is held in the pool, and what of it has to leave whatever anybody wants.

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::{plan::VacateReason, snapshot::BlockEffect};
use hayward_vocabulary::WorkKind;

use super::{Books, Held, open::later};
use crate::resource_vec::add;

impl Books<'_> {
    /// All that lies on its nodes, and all that its work holds wherever it is.
    pub(super) fn take_in(&mut self) {
        for (id, allocation) in &self.snapshot.allocations {
            let node = self.nodes.find(&allocation.node);
            let ask = self.ask_of.get(&allocation.work).copied();
            if node.is_none() && ask.is_none() {
                continue;
            }
            let vector = self.dims.vector(allocation.order, &allocation.size);
            if let Some(node) = node {
                self.nodes.hold(node, &vector, &allocation.gpus);
            }
            if let (Some(apart), Some(ask)) =
                (ask.and_then(|at| self.asks[at].demand.apart.as_ref()), ask)
            {
                let who = (self.asks[ask].work, &allocation.node);
                self.apart.entry(&apart.group).or_default().push(who);
            }
            if let Some(ask) = ask {
                let ask = &mut self.asks[ask];
                ask.has += 1;
                ask.waits_since = later(ask.waits_since, allocation.granted_at);
            }
            self.held.push(Held {
                id,
                allocation,
                node,
                ask,
                queue: None,
                vector,
                leaves: false,
            });
        }
    }

    /// Queues, users and groups are charged for what is held; then it is settled who wants what.
    pub(super) fn charge_what_is_held(&mut self) {
        for at in 0..self.held.len() {
            let held = &self.held[at];
            let foreign = self.snapshot.classes.contains_key(&held.allocation.class);
            let vector = held.vector.clone();
            match held.ask {
                Some(ask) => {
                    let app = self.asks[ask].app;
                    self.held[at].queue = self.apps[app].queue.as_ref().ok().copied();
                    self.charge(app, &vector);
                }
                None if foreign => {}
                None => self.charge_withdrawn(at),
            }
            let told = self.held[at].allocation.leaving || self.held[at].allocation.purged;
            if told {
                self.goes(at);
            }
        }
        self.faults();
        for ask in &mut self.asks {
            ask.wanted = Self::wanted(ask.demand, ask.has);
        }
        self.shrink();
    }

    /// Its work is gone, and takes up room still: of the queue, of the user, and of the group that
    /// was chosen for it (7.4).
    fn charge_withdrawn(&mut self, held: usize) {
        let it = &self.held[held];
        let (queue, _) = self.tree.nearest(&it.allocation.class);
        let who = (it.allocation.user.as_str(), it.allocation.group.as_deref());
        let gates = self.gates.of((&self.tree, &self.dims), queue, who);
        for gate in gates {
            add(&mut self.gates.gates[gate].used, &it.vector);
        }
        let path: Vec<usize> = self.tree.path(queue).collect();
        for at in path {
            add(&mut self.tree.spots[at].used, &it.vector);
        }
        self.held[held].queue = Some(queue);
    }

    fn faults(&mut self) {
        for at in 0..self.held.len() {
            let held = &self.held[at];
            let allocation = held.allocation;
            let node = self.snapshot.nodes.get(&allocation.node);
            let lost = node.is_none_or(|node| node.lost);
            let told = if lost {
                allocation.purged
            } else {
                allocation.leaving
            };
            if let Some(fault) = self.fault(at).filter(|_| !told && !allocation.purged) {
                self.vacate(at, fault);
            }
        }
    }

    fn fault(&self, at: usize) -> Option<(VacateReason, String)> {
        let held = &self.held[at];
        let allocation = held.allocation;
        let Some(ask) = held.ask else {
            // What the other planners serve is theirs.
            let gone = !self.snapshot.demand.contains_key(&allocation.work);
            let mine = gone && !self.snapshot.classes.contains_key(&allocation.class);
            let detail = format!("work {} is withdrawn", allocation.work);
            return mine.then_some((VacateReason::WorkGone, detail));
        };
        if self.asks[ask].demand.kind == WorkKind::Reservation {
            return None;
        }
        let Some(node) = held.node else {
            let known = self.snapshot.nodes.get(&allocation.node);
            let lost = known.is_none_or(|node| node.lost);
            let detail = format!("node {} was lost", allocation.node);
            return lost.then_some((VacateReason::NodeLost, detail));
        };
        let node = self.nodes.stations[node].node;
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

    /// Work that may have fewer processes than it has gives up its newest.
    fn shrink(&mut self) {
        let mut too_many: Vec<usize> = Vec::new();
        for (at, ask) in self.asks.iter().enumerate() {
            let limit = if ask.demand.kind == WorkKind::Job {
                ask.demand.max_processes
            } else {
                ask.demand.max_processes.min(1)
            };
            let held_back = ask.demand.keeps_what_it_holds || ask.demand.completing;
            if ask.has > limit && !held_back {
                too_many.push(at);
            }
        }
        for ask in too_many {
            let mine = |at: &usize| self.held[*at].ask == Some(ask) && !self.held[*at].leaves;
            let mut mine: Vec<usize> = (0..self.held.len()).filter(mine).collect();
            mine.sort_by_key(|at| {
                let it = &self.held[*at];
                Reverse((it.allocation.granted_at, it.id))
            });
            let limit = self.asks[ask].demand.max_processes;
            let excess = self.asks[ask].has.saturating_sub(limit);
            for at in mine.into_iter().take(usize::try_from(excess).unwrap_or(0)) {
                let detail = format!("its work may have {limit} processes");
                self.vacate(at, (VacateReason::OwnLimit, detail));
            }
        }
    }
}
