//! What follows from entries: each step reads what the steps before it left.

use std::{collections::BTreeSet, sync::Arc};

use hayward_vocabulary::{NodeName, Size, WorkId, WorkKind};

use super::{
    Asked, Holding, Register, Share, Wishes,
    apply_delta::Stirred,
    eligibility,
    growth_cap::{self, Cap},
    largest_nodes,
};
use crate::{
    collections::id_list::Numbers,
    departures,
    incremental::join::each,
    input::snapshot::{Demand, Policy, Snapshot},
    output::plan::CapParts,
};

/// Sizes of one class whose measure is kept; more would take longer to look through than to
/// reckon.
const MEASURED: usize = 16;
/// Kinds of work.
const KINDS: usize = 3;

impl Register {
    pub(super) fn asked(
        &mut self,
        snapshot: &Snapshot,
        (id, demand): (&WorkId, &Demand),
        holds: bool,
    ) -> Asked {
        let (class, deferral) = self.admit(snapshot, demand, holds);
        let policy = class.map(|class| self.classes[class].class.policy);
        let whole = policy == Some(Policy::Reserve);
        let (order, shape) = self.measure(class, demand);
        let user_at = self.user(&demand.user);
        let wishes = wishes(snapshot, demand, whole);
        Asked {
            id: id.clone(),
            kind: demand.kind,
            user: self.user_names[user_at].clone(),
            user_at,
            class,
            deferral,
            submitted_at: demand.submitted_at,
            order,
            shape,
            max_processes: demand.max_processes,
            remaining_tasks: demand.remaining_tasks,
            threads: demand.threads,
            task_ms: demand.task_ms.unwrap_or(0),
            wishes,
            managed: demand.managed,
            runnable: demand.runnable,
            completing: demand.completing,
            keeps_what_it_holds: demand.keeps_what_it_holds,
            held: Numbers::default(),
            holding: Holding::default(),
        }
    }

    /// Quanta of one process, and its shape: reckoned once for all that ask for the same in one
    /// class.
    fn measure(&mut self, class: Option<usize>, demand: &Demand) -> (u64, usize) {
        let kind = demand.kind as usize;
        let place = class.map_or(0, |class| class + 1) * KINDS + kind;
        if let Some(known) = self.measured.get(place) {
            let known = known.iter().find(|(size, ..)| *size == demand.size);
            if let Some((_, order, shape)) = known {
                return (*order, *shape);
            }
        }
        let home = class.and_then(|class| self.classes[class].pool);
        let policy = class.map(|class| self.classes[class].class.policy);
        let quantum = self.quantum(home);
        // A reservation that names no size takes any machine; its order is known with its node.
        let fair = policy == Some(Policy::FairShare);
        let order = self.order_of(&demand.size, home, fair);
        let size = match demand.kind {
            WorkKind::Reservation if policy == Some(Policy::Reserve) => demand.size.clone(),
            _ => quantum.granted_at(order, &demand.size),
        };
        let shape = self.shape((home, fair, order, size));
        if self.measured.len() <= place {
            self.measured.resize(place + 1, Vec::new());
        }
        let known = &mut self.measured[place];
        if known.len() < MEASURED {
            known.push((demand.size.clone(), order, shape));
        }
        (order, shape)
    }

    /// Quanta of one process. Fair-share work may use all below its home.
    fn order_of(&self, size: &Size, home: Option<usize>, fair: bool) -> u64 {
        let pools = match home {
            Some(home) if fair => self.forest.subtree(home),
            Some(ref home) => std::slice::from_ref(home),
            None => &[],
        };
        let largest = pools.iter().map(|pool| &self.largest[*pool]);
        largest_nodes::order_of(self.quantum(home), size, largest)
    }

    fn shape(&mut self, shape: super::Shape) -> usize {
        if let Some(known) = self.shape_at.get(&shape) {
            return *known;
        }
        Arc::make_mut(&mut self.shapes).push(shape.clone());
        self.shape_at.insert(shape, self.shapes.len() - 1);
        self.shapes.len() - 1
    }

    fn admit(
        &mut self,
        snapshot: &Snapshot,
        demand: &Demand,
        holds: bool,
    ) -> (Option<usize>, Option<Box<crate::output::reason::Deferral>>) {
        let kind = demand.kind as usize;
        // No class is named with nothing, so that stands for work that names none.
        let named = demand.class.as_deref().unwrap_or_default();
        let can_be_known = demand.class.is_none() || !named.is_empty();
        if let Some(class) = self.open_to_all[kind].get(named).filter(|_| can_be_known) {
            return (Some(*class), None);
        }
        match eligibility::class_of(snapshot, demand, holds) {
            Ok(name) => {
                let class = self.class(name);
                let open = class.filter(|at| self.classes[*at].class.users.is_empty());
                if let Some(at) = open.filter(|_| can_be_known) {
                    self.open_to_all[kind].insert(named.to_owned(), at);
                }
                (class, None)
            }
            Err(deferral) => (None, Some(Box::new(deferral))),
        }
    }

    pub(super) fn derive(&mut self, snapshot: &Snapshot, stirred: &mut Stirred) {
        self.admit_anew(snapshot, stirred);
        for at in stirred.moved.listed() {
            for share in self.requests[at].held.iter() {
                stirred.shares.insert(share);
                stirred.machines.extend(self.shares[share].machine);
            }
        }
        for at in stirred.nodes.listed() {
            for share in self.machines[at].held.iter() {
                stirred.shares.insert(share);
                stirred.requests.extend(self.shares[share].request);
            }
        }
        for at in stirred.shares.listed() {
            self.reload(at);
        }
        #[cfg(test)]
        self.assert_taken();
        let machines: Vec<usize> = stirred.machines.listed().collect();
        for at in self.take_stands(&machines) {
            let owners = self.machines[at].held.iter();
            let owners = owners.filter_map(|share| self.shares[share].request);
            stirred.requests.extend(owners);
        }
        for at in stirred.shares.listed() {
            let faulty = departures::is_faulty(self, at);
            set(&mut self.faulty, at, faulty);
            let squats = self.squats(at);
            set(&mut self.squatters, at, squats);
            let strays = squats && self.strays(at);
            set(&mut self.strays, at, strays);
            let share = &self.shares[at];
            let class = share.request.and_then(|at| self.requests[at].class);
            set(&mut self.unplaced, at, share.machine.is_none());
            set(&mut self.unclassed, at, class.is_none());
        }
        let requests: Vec<usize> = stirred.requests.listed().collect();
        let holdings = each((&requests, 1), |at| self.holding(at));
        for (at, holding) in requests.iter().copied().zip(holdings) {
            self.requests[at].holding = holding;
        }
        if !self.anew {
            (self.refreshed, self.changed_machines) = (requests, machines);
        }
    }

    /// An allow list is not asked about work that holds room, so what is held decides here.
    fn admit_anew(&mut self, snapshot: &Snapshot, stirred: &mut Stirred) {
        for at in stirred.requests.listed() {
            let asked = &self.requests[at];
            let open = asked.class.is_some_and(|class| {
                let users = &self.classes[class].class.users;
                users.is_empty() || users.contains(asked.user.as_str())
            });
            if open {
                continue;
            }
            let Some(demand) = snapshot.demand.get(&asked.id) else {
                continue;
            };
            let before = asked.class;
            let (id, held) = (asked.id.clone(), asked.held.clone());
            self.leave_class(at);
            let asked = self.asked(snapshot, (&id, demand), !held.is_empty());
            self.requests[at] = Asked { held, ..asked };
            self.join_class(at);
            self.touched.push(at);
            if self.requests[at].class != before {
                stirred.moved.insert(at);
            }
        }
    }

    pub(super) fn open_for(&mut self, at: usize, open: bool) {
        let station = &mut self.machines[at];
        let was_open = std::mem::replace(&mut station.schedulable, open);
        if let Some(pool) = station.pool.filter(|_| was_open != open) {
            let quanta = &mut self.open_quanta[pool];
            *quanta = if open {
                *quanta + station.order
            } else {
                *quanta - station.order
            };
        }
    }

    pub(super) fn forget_kind(&mut self, at: usize) {
        let station = &self.machines[at];
        let Some(pool) = station.pool.filter(|_| station.schedulable) else {
            return;
        };
        let key = (pool, station.room.clone());
        if let Some(nodes) = self.kinds.get_mut(&key) {
            *nodes -= 1;
            if *nodes == 0 {
                self.kinds.remove(&key);
            }
            self.kinds_moved = true;
        }
    }

    /// a share of a whole node holds its order in quanta. What made no quantum when it was
    /// taken is room again once the node has grown.
    pub(super) fn leave_remnant(&self, share: &mut Share) {
        let class = self.class(&share.class).map(|at| &self.classes[at]);
        if let Some(served) = class.filter(|it| it.class.policy == Policy::Reserve) {
            let quantum = self.quantum(served.pool);
            share.size = quantum.whole(share.order, &share.size);
        }
    }

    /// W-13: neither at home nor on its way out.
    fn squats(&self, share: usize) -> bool {
        let share = &self.shares[share];
        let (home, pool) = self.pools(share);
        let stays = !share.leaving && !share.fixed && share.machine.is_some();
        stays && home.is_some() && home != pool
    }

    fn strays(&self, share: usize) -> bool {
        let (home, pool) = self.pools(&self.shares[share]);
        let trees = home.zip(pool);
        trees.is_some_and(|(home, pool)| self.forest.root(home) != self.forest.root(pool))
    }

    /// The home of its work and the pool of its node.
    fn pools(&self, share: &Share) -> (Option<usize>, Option<usize>) {
        let class = share
            .request
            .and_then(|request| self.requests[request].class);
        let pool = share
            .machine
            .and_then(|machine| self.machines[machine].pool);
        (class.and_then(|class| self.classes[class].pool), pool)
    }

    fn holding(&self, at: usize) -> Holding {
        let mut holding = Holding::default();
        let held = self.requests[at].held.iter();
        let (mut start_ms, mut started) = (0_u64, 0_u64);
        for load in held.map(|held| &self.loads[held]) {
            holding.quanta += load.order;
            start_ms += load.start_ms;
            started += u64::from(load.start_ms > 0);
            let machine = load.machine().map(|machine| &self.machines[machine]);
            if machine.is_none_or(|machine| !machine.schedulable) {
                holding.closed_quanta += load.order;
            }
            if load.leaving {
                holding.leaving += 1;
                holding.leaving_quanta += load.order;
                continue;
            }
            holding.current += 1;
            holding.resting += u64::from(machine.is_some_and(|machine| !machine.schedulable));
        }
        holding.mean_start_ms = start_ms.checked_div(started).unwrap_or(0);
        holding.cap = growth_cap::of(self, at, holding.has());
        holding
    }

    /// What work can use with what it was known to hold last, and what that is made of.
    pub(super) fn cap(&self, at: usize) -> (Cap, CapParts) {
        let has = self.requests[at].holding.has();
        let cap = growth_cap::of(self, at, has);
        (cap, cap.parts(self, at, has))
    }

    /// May this request ever use nodes of this pool?
    pub fn may_use(&self, request: usize, pool: usize) -> bool {
        let Some(class) = self.requests[request].class else {
            return false;
        };
        let served = &self.classes[class];
        let Some(home) = served.pool else {
            return false;
        };
        match served.class.policy {
            Policy::FairShare => self.forest.is_within(pool, home),
            Policy::FixedShare | Policy::Reserve => pool == home,
        }
    }
}

pub(super) fn set(among: &mut BTreeSet<usize>, at: usize, belongs: bool) {
    if belongs {
        among.insert(at);
    } else if !among.is_empty() {
        // Most of these are empty most of the time.
        among.remove(&at);
    }
}

fn wishes(snapshot: &Snapshot, demand: &Demand, whole: bool) -> Option<Box<Wishes>> {
    let may_go_anywhere = demand.machines.is_empty() && demand.avoids.is_empty();
    if may_go_anywhere && demand.service.is_none() && demand.apart.is_none() && !whole {
        return None;
    }
    let (machines, avoids) = machines(snapshot, demand);
    let wishes = Wishes {
        machines,
        avoids,
        service: demand.service.clone(),
        apart: demand.apart.clone(),
        node_size: whole.then(|| demand.size.clone()),
    };
    (wishes != Wishes::default()).then(|| Box::new(wishes))
}

/// Work that avoids nodes lists all others, so that one way of looking serves both. Where none is
/// left it lists what it avoids, and is admitted to nothing of it.
fn machines(snapshot: &Snapshot, demand: &Demand) -> (BTreeSet<NodeName>, Vec<NodeName>) {
    let could = |name: &&NodeName| demand.machines.is_empty() || demand.machines.contains(*name);
    let avoids: Vec<NodeName> = demand.avoids.iter().filter(could).cloned().collect();
    if avoids.is_empty() {
        return (demand.machines.clone(), Vec::new());
    }
    let all = snapshot.nodes.keys().filter(could);
    let left: BTreeSet<NodeName> = all
        .filter(|name| !demand.avoids.contains(*name))
        .cloned()
        .collect();
    let machines = if left.is_empty() {
        avoids.iter().cloned().collect()
    } else {
        left
    };
    (machines, avoids)
}
