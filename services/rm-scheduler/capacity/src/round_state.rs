//! What one round knows of one pool and writes down as it decides.
//!
//! Invariant: what is held only grows while asks are placed, so what did not fit once does not fit
//! later in the round. An ask, or a whole application, that is put aside stays aside; that is what
//! makes a round take one look at each. A gang that does not fit is undone before anybody looks.

mod headroom;
mod held;
mod open;
mod oversized_gangs;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    plan::{Grant, QuotaNumbers, Receipt, Vacate, VacateReason},
    snapshot::{
        Allocation, Demand, Snapshot,
        queues::{Kept, Queued, Queues},
    },
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Timestamp, WorkId};

use crate::{
    limits::Gates,
    nodes::{Nodes, Shape},
    placement::Refusal,
    resource_vec::{Dims, Sparse, Vector, add, take},
    tree::Tree,
};

pub(crate) use headroom::Promises;

pub(crate) struct Books<'a> {
    pub snapshot: &'a Snapshot,
    pub queues: &'a Queues,
    pub quantum: &'a Quantum,
    pub dims: Dims,
    pub tree: Tree<'a>,
    pub nodes: Nodes<'a>,
    pub gates: Gates,
    pub shapes: Vec<Shape>,
    pub apps: Vec<App<'a>>,
    pub asks: Vec<Ask<'a>>,
    pub ask_of: BTreeMap<&'a WorkId, usize>,
    pub held: Vec<Held<'a>>,
    /// What all nodes have.
    pub whole: Vector,
    /// By queue: what its share is a share of (8.3).
    pub denominators: Vec<Sparse>,
    /// Who of a group that is kept apart is where.
    apart: BTreeMap<&'a WorkId, Vec<(&'a WorkId, &'a NodeName)>>,
    pub placed: Vec<Placed>,
    pub vacates: BTreeMap<AllocationId, Vacate>,
    pub receipts: Vec<Receipt>,
    /// For the next round.
    pub kept: Kept,
    pub promises: Promises,
    /// Asks that were put aside, in the order in which they were.
    pub aside: Vec<usize>,
}

pub(crate) struct App<'a> {
    pub name: &'a str,
    pub queue: Result<usize, Refusal>,
    pub user: &'a str,
    pub groups: &'a [String],
    /// The one of them whose limits it is held to.
    pub group: Option<&'a str>,
    pub submitted: Timestamp,
    /// By priority, then age, then id.
    pub asks: Vec<usize>,
    /// The asks before this one are served or aside.
    pub next: usize,
    pub used: Vector,
    pub running: bool,
    pub gates: Vec<usize>,
    /// Asks that found no node in this round.
    pub failed: u64,
    pub aside: Option<Why>,
}

pub(crate) struct Ask<'a> {
    pub work: &'a WorkId,
    pub demand: &'a Demand,
    pub queued: &'a Queued,
    pub app: usize,
    pub shape: usize,
    pub has: u64,
    pub leaving: u64,
    pub wanted: u64,
    pub placed: u64,
    pub waits_since: Timestamp,
    /// It may go to any node.
    pub anywhere: bool,
    pub why: Option<Why>,
}

impl Ask<'_> {
    pub fn missing(&self) -> u64 {
        self.wanted.saturating_sub(self.has + self.placed)
    }

    /// It starts together with others or not at all. A part without a least number is asked for
    /// one by one.
    pub fn starts_whole(&self) -> bool {
        let gang = self.queued.gang.as_ref();
        gang.is_some_and(|gang| gang.min > 0)
    }

    /// Processes of its gang that are still to be placed together.
    pub fn gang_lacks(&self) -> u64 {
        let gang = self.queued.gang.as_ref();
        let least = gang.map_or(0, |gang| gang.min.min(self.wanted));
        least.saturating_sub(self.has + self.placed)
    }
}

/// Why an ask, or an application, is put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    BackingOff {
        until: Timestamp,
    },
    TooManyRun {
        queue: usize,
        whose: Option<String>,
        quota: QuotaNumbers,
        /// Of what is used, kept for other work.
        kept: u64,
    },
    UserQuota {
        gate: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Of what is used, kept for other work.
        kept: u64,
    },
    QueueQuota {
        queue: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Of what is used, kept for other work.
        kept: u64,
    },
    NoNode,
    /// So many of so many processes of its gang fit.
    Gang {
        fit: u64,
        of: u64,
        because: Option<Box<Why>>,
    },
}

/// Room that is held in this pool.
pub(crate) struct Held<'a> {
    pub id: &'a AllocationId,
    pub allocation: &'a Allocation,
    pub node: Option<usize>,
    pub ask: Option<usize>,
    /// Absent where it is not in a queue.
    pub queue: Option<usize>,
    pub vector: Vector,
    pub leaves: bool,
}

pub(crate) struct Placed {
    pub ask: usize,
    pub node: usize,
    pub gpus: Vec<u64>,
}

impl Books<'_> {
    pub fn vector(&self, ask: usize) -> &Vector {
        &self.shapes[self.asks[ask].shape].vector
    }

    pub fn queue_of(&self, ask: usize) -> Option<usize> {
        let app = &self.apps[self.asks[ask].app];
        app.queue.as_ref().ok().copied()
    }

    /// The next ask of an application that is neither served nor aside.
    pub fn head(&mut self, app: usize) -> Option<usize> {
        let app = &mut self.apps[app];
        if app.aside.is_some() || app.queue.is_err() {
            return None;
        }
        while let Some(ask) = app.asks.get(app.next) {
            let it = &self.asks[*ask];
            if it.why.is_none() && it.missing() > 0 {
                return Some(*ask);
            }
            app.next += 1;
        }
        None
    }

    /// The best node with room for one more (9.1, 9.2).
    pub fn find_node(&mut self, ask: usize) -> Option<usize> {
        let mut shape = std::mem::replace(
            &mut self.shapes[self.asks[ask].shape],
            Shape::of(0, hayward_vocabulary::Size::default(), Vec::new()),
        );
        let found = if self.asks[ask].anywhere {
            self.nodes.first(&mut shape, |_| true)
        } else {
            let candidates = self.candidates(ask);
            match candidates {
                None => self.nodes.first(&mut shape, |node| self.suits(ask, node)),
                Some(few) => {
                    let fit = few.into_iter().filter(|node| {
                        let station = &self.nodes.stations[*node];
                        let open = station.node.is_schedulable() && !station.reserved;
                        open && station.fits(&shape.vector) && self.suits(ask, *node)
                    });
                    fit.min_by_key(|node| self.nodes.rank(*node))
                }
            }
        };
        let at = self.asks[ask].shape;
        self.shapes[at] = shape;
        found
    }

    /// The only nodes it may use, where it names them.
    pub fn candidates(&self, ask: usize) -> Option<Vec<usize>> {
        let it = &self.asks[ask];
        if let Some(required) = &it.queued.required_node {
            return Some(self.nodes.find(required).into_iter().collect());
        }
        let machines = &it.demand.machines;
        let named = || machines.iter().filter_map(|name| self.nodes.find(name));
        (!machines.is_empty()).then(|| named().collect())
    }

    /// Placement predicates: everything but room.
    pub fn suits(&self, ask: usize, node: usize) -> bool {
        let it = &self.asks[ask];
        let station = &self.nodes.stations[node];
        let required = it.queued.required_node.as_ref();
        let listed = it.demand.machines.is_empty() || it.demand.machines.contains(station.name);
        required.is_none_or(|name| name == station.name)
            && listed
            && !it.demand.avoids.contains(station.name)
            && self.is_apart(ask, node)
    }

    pub fn is_apart(&self, ask: usize, node: usize) -> bool {
        self.is_apart_beside(ask, node, &[])
    }

    /// The same where others are as good as placed: asks and their nodes.
    pub fn is_apart_beside(&self, ask: usize, node: usize, more: &[(usize, usize)]) -> bool {
        let it = &self.asks[ask];
        let Some(apart) = &it.demand.apart else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |name: &NodeName| self.snapshot.nodes.get(name)?.labels.get(label?);
        let name = self.nodes.stations[node].name;
        let here = value(name);
        let more = more.iter().filter_map(|(other, at)| {
            let other = &self.asks[*other];
            let its = other.demand.apart.as_ref()?;
            (its.group == apart.group).then_some((other.work, self.nodes.stations[*at].name))
        });
        let others = self.apart.get(&apart.group).into_iter().flatten();
        let others = others.copied().chain(more);
        let mut others = others.filter(|(work, _)| *work != it.work);
        (label.is_none() || here.is_some())
            && others.all(|(_, at)| at != name && (label.is_none() || value(at) != here))
    }

    /// Others of its group are kept apart from it as if it were placed there.
    pub fn keep_apart(&mut self, ask: usize, node: usize) {
        let it = &self.asks[ask];
        if let Some(apart) = &it.demand.apart {
            let name = self.nodes.stations[node].name;
            self.apart
                .entry(&apart.group)
                .or_default()
                .push((it.work, name));
        }
    }

    pub fn place(&mut self, ask: usize, node: usize) {
        let shape = &self.shapes[self.asks[ask].shape];
        let gpus = self.nodes.stations[node].choose_gpus(shape.size.gpu_milli);
        self.nodes.hold(node, &shape.vector, &gpus);
        let vector = shape.vector.clone();
        self.charge(self.asks[ask].app, &vector);
        let it = &mut self.asks[ask];
        it.placed += 1;
        let missing = it.missing();
        self.keep_apart(ask, node);
        self.placed.push(Placed { ask, node, gpus });
        self.redeem(ask, self.promised(ask).saturating_sub(missing));
    }

    /// An application holds so much more.
    fn charge(&mut self, app: usize, vector: &[u64]) {
        let starts = !self.apps[app].running;
        let app = &mut self.apps[app];
        app.running = true;
        add(&mut app.used, vector);
        for gate in &app.gates {
            let gate = &mut self.gates.gates[*gate];
            add(&mut gate.used, vector);
            gate.running += u64::from(starts);
        }
        let mut at = app.queue.as_ref().ok().copied();
        while let Some(queue) = at {
            let spot = &mut self.tree.spots[queue];
            add(&mut spot.used, vector);
            spot.running += u64::from(starts);
            at = spot.parent;
        }
    }

    /// Takes back everything placed after the first `keep`; an application that started with it has
    /// not started.
    pub fn undo(&mut self, keep: usize, started: bool) {
        for Placed { ask, node, gpus } in self.placed.split_off(keep).into_iter().rev() {
            let vector = self.vector(ask).clone();
            self.nodes.undo(node, &vector, &gpus);
            let it = &mut self.asks[ask];
            it.placed -= 1;
            if let Some(apart) = &it.demand.apart {
                self.apart.entry(&apart.group).or_default().pop();
            }
            let app = &mut self.apps[it.app];
            take(&mut app.used, &vector);
            for gate in &app.gates {
                take(&mut self.gates.gates[*gate].used, &vector);
            }
            let first = started && std::mem::take(&mut app.running);
            for gate in app.gates.iter().filter(|_| first) {
                self.gates.gates[*gate].running -= 1;
            }
            let mut at = app.queue.as_ref().ok().copied();
            while let Some(queue) = at {
                let spot = &mut self.tree.spots[queue];
                take(&mut spot.used, &vector);
                spot.running -= u64::from(first);
                at = spot.parent;
            }
        }
    }

    /// Tells what is held to leave.
    pub fn vacate(&mut self, held: usize, (reason, detail): (VacateReason, String)) {
        let it = &mut self.held[held];
        let node = self.snapshot.nodes.get(&it.allocation.node);
        let purge = node.is_none_or(|node| node.lost);
        let vacate = Vacate {
            allocation: it.id.clone(),
            reason,
            detail,
            purge,
        };
        self.vacates.insert(it.id.clone(), vacate);
        self.goes(held);
    }

    /// What is held does not serve its work any more, and is not free yet.
    fn goes(&mut self, held: usize) {
        let it = &mut self.held[held];
        if std::mem::replace(&mut it.leaves, true) {
            return;
        }
        if let Some(ask) = it.ask {
            self.asks[ask].has -= 1;
            self.asks[ask].leaving += 1;
        }
        if let Some(node) = it.node {
            add(&mut self.nodes.stations[node].going, &it.vector);
        }
        let mut at = it.queue;
        while let Some(queue) = at {
            add(&mut self.tree.spots[queue].going, &it.vector);
            at = self.tree.spots[queue].parent;
        }
    }

    pub fn grants(&self) -> Vec<Grant> {
        let grants = self.placed.iter().map(|placed| {
            let ask = &self.asks[placed.ask];
            let shape = &self.shapes[ask.shape];
            let queue = self.queue_of(placed.ask);
            Grant {
                work: ask.work.clone(),
                kind: ask.demand.kind,
                user: ask.demand.user.clone(),
                class: queue.map_or("", |at| &self.tree.spots[at].path).into(),
                node: self.nodes.stations[placed.node].name.clone(),
                order: shape.order,
                size: shape.size.clone(),
                fixed: false,
                gpus: placed.gpus.clone(),
                group: self.apps[ask.app].group.map(str::to_owned),
            }
        });
        grants.collect()
    }
}

fn numbers(max: &Sparse, used: &[u64], ask: &[u64], dim: usize) -> QuotaNumbers {
    QuotaNumbers {
        limit: max[dim].unwrap_or(u64::MAX),
        used: used[dim],
        needed: ask[dim],
    }
}
