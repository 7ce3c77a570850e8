//! News: which nodes, which work and which shares are to be looked up anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
};

use hayward_vocabulary::{AllocationId, NodeName, WorkId, WorkKind};

use rustc_hash::FxHashMap;

use super::{Asked, Departed, Holding, Laws, Register, Served, Share, Splice, Station};
use crate::{
    beside::both,
    forest::Forest,
    marks::Marks,
    news::News,
    room::Room,
    snapshot::{Allocation, Demand, Node, Snapshot},
};

/// What has to be derived anew. Its memory is kept for the next news.
#[derive(Default)]
pub(super) struct Stirred {
    /// Nodes that differ themselves, and not just in what they hold.
    pub nodes: Marks,
    pub machines: Marks,
    pub requests: Marks,
    /// Work that asks for something else than before.
    pub moved: Marks,
    pub shares: Marks,
}

impl Stirred {
    fn clear(&mut self) {
        self.nodes.clear();
        self.machines.clear();
        self.requests.clear();
        self.moved.clear();
        self.shares.clear();
    }
}

impl Register {
    /// Brings the register up to a snapshot of which only the news differs from the last one.
    pub fn absorb(&mut self, snapshot: &Snapshot, news: &News) {
        let laws = &self.laws;
        let same_laws = laws.quantum == snapshot.quantum
            && laws.tunables == snapshot.tunables
            && laws.pools == snapshot.pools
            && laws.classes == snapshot.classes;
        // Nodes are numbered by name, so a node that comes or goes renumbers the others.
        let known = |name: &&NodeName| {
            self.machine_at.contains_key(*name) == snapshot.nodes.contains_key(*name)
        };
        if news.everything || !same_laws || !news.nodes.iter().all(|name| known(&name)) {
            self.read_all(snapshot);
            (self.anew, self.kinds_moved) = (true, true);
            return;
        }
        self.anew = false;
        self.kinds_moved = false;
        self.touched.clear();
        self.departed.clear();
        self.left_pools.clear();
        self.nodes_moved = false;
        self.splices.clear();
        self.withdrawn.clear();
        self.vacated.clear();
        let mut stirred = std::mem::take(&mut self.stirred);
        stirred.clear();
        for name in &news.nodes {
            if let Some(node) = snapshot.nodes.get(name) {
                self.set_node(name, node, &mut stirred);
            }
        }
        let (work, shares) = self.look_up(snapshot, news);
        self.read_ahead(&work, &shares);
        self.absorb_work(snapshot, work, &mut stirred);
        for share in shares {
            match share.said {
                Some(_) => self.set_share(share, &mut stirred),
                None => self.remove_share(share, &mut stirred),
            }
        }
        self.derive(snapshot, &mut stirred);
        self.stirred = stirred;
    }

    /// Most of the time goes into waiting for names in memory, so that is done side by side.
    fn look_up<'s>(
        &self,
        snapshot: &'s Snapshot,
        news: &'s News,
    ) -> (Vec<OfWork<'s>>, Vec<OfShare<'s>>) {
        let work: Vec<&WorkId> = news.work.iter().collect();
        // Half of all for each, as work and shares take equally long.
        let half = (work.len() + news.allocations.len()) / 2;
        let (here, beside) = work.split_at(half.min(work.len()));
        let find = |names: &[&'s WorkId]| {
            let names = names.iter().copied();
            let found = names.map(|id| Entry::of(id, &snapshot.demand, &self.request_at));
            found.collect::<Vec<_>>()
        };
        let shares = || {
            let names = news.allocations.iter();
            let found = names.map(|id| Entry::of(id, &snapshot.allocations, &self.share_at));
            (find(beside), found.collect())
        };
        let all = work.len() + news.allocations.len();
        let (mut found, (rest, shares)) = both(all, || find(here), shares);
        found.extend(rest);
        (found, shares)
    }

    /// Rows that are needed one after the other would be waited for one after the other. Read in a
    /// row before, many of them come from memory at the same time.
    fn read_ahead(&self, work: &[OfWork], shares: &[OfShare]) {
        let rows = work.iter().filter_map(|it| Some(&self.requests[it.at?]));
        read(rows.map(|asked| asked.submitted_at.unix_ms().unsigned_abs() ^ asked.order));
        let rows = shares.iter().filter_map(|it| Some(&self.shares[it.at?]));
        let places = rows.map(|share| (share.machine, share.order, share.request));
        let places: Vec<_> = places.collect();
        let stations = places.iter().filter_map(|place| place.0);
        read(stations.map(|at| self.machines[at].order ^ self.machines[at].held.len() as u64));
    }

    /// Everything, as on the first day.
    fn read_all(&mut self, snapshot: &Snapshot) {
        *self = Self {
            laws: Laws {
                quantum: snapshot.quantum.clone(),
                tunables: snapshot.tunables.clone(),
                pools: snapshot.pools.clone(),
                classes: snapshot.classes.clone(),
            },
            forest: Forest::new(&snapshot.pools),
            ..Self::default()
        };
        self.read_policy(snapshot);
        for (name, node) in &snapshot.nodes {
            self.machine_at.insert(name.clone(), self.machines.len());
            let station = self.station(name, node);
            if let Some(pool) = station.pool {
                self.all_quanta[pool] += station.order;
            }
            self.machines.push(station);
        }
        self.note_packable();
        let numbers = || snapshot.demand.keys().cloned().zip(0..).collect();
        ((), self.request_at) = both(snapshot.demand.len(), || self.read_work(snapshot), numbers);
        self.share_at.reserve(snapshot.allocations.len());
        let mut stirred = Stirred::default();
        for (id, allocation) in &snapshot.allocations {
            let share = Entry {
                name: id,
                said: Some(allocation),
                at: None,
            };
            self.set_share(share, &mut stirred);
        }
        stirred.machines.extend(0..self.machines.len());
        stirred.requests.extend(0..self.requests.len());
        self.derive(snapshot, &mut stirred);
    }

    /// All work but its numbers by id.
    fn read_work(&mut self, snapshot: &Snapshot) {
        self.requests.reserve_exact(snapshot.demand.len());
        // By class and the number of the user.
        let mut groups: Vec<Vec<Vec<usize>>> = vec![Vec::new(); self.classes.len()];
        for (at, work) in snapshot.demand.iter().enumerate() {
            let asked = self.asked(snapshot, work, false);
            if let Some(class) = asked.class {
                let users = &mut groups[class];
                users.resize_with(users.len().max(asked.user_at + 1), Vec::new);
                users[asked.user_at].push(at);
            }
            self.requests.push(asked);
            self.join_group(at);
        }
        for (served, users) in self.classes.iter_mut().zip(groups) {
            for mut group in users {
                if let Some(first) = group.first() {
                    let user = self.requests[*first].user.clone();
                    group.sort_by_key(|at| self.requests[*at].submitted_at);
                    served.users.insert(user, group);
                }
            }
        }
    }

    fn read_policy(&mut self, snapshot: &Snapshot) {
        let own: Vec<_> = snapshot
            .pools
            .values()
            .map(|pool| pool.quantum.as_ref())
            .collect();
        self.open_quanta = vec![0; self.forest.len()];
        self.all_quanta = vec![0; self.forest.len()];
        self.quanta = (0..self.forest.len())
            .map(|pool| own[self.forest.root(pool)].unwrap_or(&snapshot.quantum))
            .cloned()
            .collect();
        for (name, class) in &snapshot.classes {
            self.class_at.insert(name.clone(), self.classes.len());
            self.classes.push(Served {
                name: name.clone(),
                class: class.clone(),
                pool: self.forest.find(&class.pool),
                users: BTreeMap::new(),
            });
        }
    }

    fn station(&self, name: &NodeName, node: &Node) -> Station {
        let pool = self.forest.find(&node.pool);
        let order = self.quantum(pool).node_order(&node.capacity);
        let room = Room::new(order, &node.capacity);
        Station {
            name: name.clone(),
            node: node.clone(),
            pool,
            order,
            schedulable: false,
            free: room.clone(),
            coming: room.clone(),
            room,
            held: Vec::new(),
            held_quanta: 0,
            services: BTreeSet::new(),
        }
    }

    fn set_node(&mut self, name: &NodeName, node: &Node, stirred: &mut Stirred) {
        let at = self.machine_at[name];
        if self.machines[at].node == *node {
            return;
        }
        self.forget_kind(at);
        self.open_for(at, false);
        let mut station = self.station(name, node);
        station.held = std::mem::take(&mut self.machines[at].held);
        let gpus = |of: &Station| (of.pool, of.node.capacity.gpu_milli > 0);
        let before = &self.machines[at];
        let moved = gpus(&station) != gpus(before);
        self.nodes_moved = true;
        if let Some(pool) = before.pool {
            self.all_quanta[pool] -= before.order;
            self.left_pools.push(pool);
        }
        if let Some(pool) = station.pool {
            self.all_quanta[pool] += station.order;
        }
        self.machines[at] = station;
        if moved {
            self.note_packable();
        }
        stirred.nodes.insert(at);
        stirred.machines.insert(at);
    }

    fn note_packable(&mut self) {
        let mut with_gpus = vec![false; self.forest.len()];
        let stations = || self.machines.iter().enumerate();
        for (_, station) in stations().filter(|(_, it)| it.node.capacity.gpu_milli > 0) {
            if let Some(pool) = station.pool {
                with_gpus[pool] = true;
            }
        }
        let is_packable = |station: &Station| station.pool.is_some_and(|pool| with_gpus[pool]);
        let packable = stations().filter(|(_, station)| is_packable(station));
        self.packable = packable.map(|(at, _)| at).collect();
    }

    fn absorb_work(&mut self, snapshot: &Snapshot, work: Vec<OfWork>, stirred: &mut Stirred) {
        for work in work {
            let id = work.name;
            match (work.at, work.said) {
                (Some(at), Some(demand)) => {
                    self.leave_class(at);
                    self.set_work(snapshot, at, (id, demand));
                    self.touched.push(at);
                    stirred.requests.insert(at);
                    stirred.moved.insert(at);
                }
                (None, Some(demand)) => {
                    let at = self.new_work(snapshot, (id, demand));
                    self.touched.push(at);
                    stirred.requests.insert(at);
                    stirred.moved.insert(at);
                }
                (Some(at), None) => {
                    self.remove_work(at, stirred);
                    self.touched.push(at);
                    stirred.requests.remove(at);
                    stirred.moved.remove(at);
                }
                (None, None) => {}
            }
        }
    }

    fn set_work(&mut self, snapshot: &Snapshot, at: usize, work: (&WorkId, &Demand)) {
        let held = std::mem::take(&mut self.requests[at].held);
        let mut asked = self.asked(snapshot, work, !held.is_empty());
        asked.held = held;
        self.leave_group(at);
        self.requests[at] = asked;
        self.join_group(at);
        self.join_class(at);
    }

    fn new_work(&mut self, snapshot: &Snapshot, work: (&WorkId, &Demand)) -> usize {
        let held = self.orphans.remove(work.0).unwrap_or_default();
        let mut asked = self.asked(snapshot, work, !held.is_empty());
        let at = self.vacant_requests.pop().unwrap_or(self.requests.len());
        for share in &held {
            self.shares[*share].request = Some(at);
        }
        asked.held = held;
        if at == self.requests.len() {
            self.requests.push(asked);
        } else {
            self.requests[at] = asked;
        }
        self.request_at.insert(work.0.clone(), at);
        self.join_group(at);
        self.join_class(at);
        at
    }

    fn remove_work(&mut self, at: usize, stirred: &mut Stirred) {
        self.leave_class(at);
        self.leave_group(at);
        let asked = &mut self.requests[at];
        let held = std::mem::take(&mut asked.held);
        (asked.class, asked.deferral) = (None, None);
        asked.holding = Holding::default();
        self.request_at.remove(&asked.id);
        self.withdrawn.push(asked.id.clone());
        self.vacated.push(at);
        self.vacant_requests.push(at);
        for share in &held {
            self.shares[*share].request = None;
            stirred.shares.insert(*share);
            stirred.machines.extend(self.shares[*share].machine);
        }
        if !held.is_empty() {
            self.orphans.insert(asked.id.clone(), held);
        }
    }

    pub(super) fn leave_class(&mut self, at: usize) {
        let asked = &self.requests[at];
        let Some(class) = asked.class else { return };
        self.departed.push(Departed {
            at,
            class,
            user: asked.user.clone(),
            work: asked.id.clone(),
        });
        if let Some(group) = self.classes[class].users.get_mut(&asked.user) {
            let Some(place) = group.iter().position(|other| *other == at) else {
                return;
            };
            group.remove(place);
            self.splices.push(Splice {
                class,
                user_at: asked.user_at,
                place,
                at,
                joins: false,
            });
            if group.is_empty() {
                self.classes[class].users.remove(&asked.user);
            }
        }
    }

    pub(super) fn join_class(&mut self, at: usize) {
        let asked = &self.requests[at];
        let Some(class) = asked.class else { return };
        let group = self.classes[class]
            .users
            .entry(asked.user.clone())
            .or_default();
        let key = |at: usize| (self.requests[at].submitted_at, &self.requests[at].id);
        // What comes mostly is the youngest.
        let place = if group.last().is_none_or(|last| key(*last) < key(at)) {
            group.len()
        } else {
            group.partition_point(|other| key(*other) < key(at))
        };
        group.insert(place, at);
        self.splices.push(Splice {
            class,
            user_at: asked.user_at,
            place,
            at,
            joins: true,
        });
    }

    fn set_share(&mut self, found: OfShare, stirred: &mut Stirred) {
        let (id, Some(allocation)) = (found.name, found.said) else {
            return;
        };
        let request = self.request(&allocation.work);
        let machine = self.machine(&allocation.node);
        let user = self.user(&allocation.user);
        let mut share = share((id, user), allocation, (request, machine));
        self.leave_remnant(&mut share);
        let at = if let Some(at) = found.at {
            self.unlink(at, stirred);
            self.shares[at] = share;
            at
        } else if let Some(at) = self.vacant_shares.pop() {
            self.shares[at] = share;
            at
        } else {
            self.shares.push(share);
            self.shares.len() - 1
        };
        if found.at.is_none() {
            self.share_at.insert(id.clone(), at);
        }
        if allocation.fixed {
            self.fixed.insert(at);
        }
        if allocation.leaving || allocation.purged {
            self.leaving.insert(at);
        }
        let shares = &self.shares;
        let link = |list: &mut Vec<usize>| {
            // News of allocations mostly is of the newest, so the search ends soon.
            let after = list.iter().rposition(|other| shares[*other].id < *id);
            list.insert(after.map_or(0, |after| after + 1), at);
        };
        match request {
            Some(request) => link(&mut self.requests[request].held),
            None => link(self.orphans.entry(allocation.work.clone()).or_default()),
        }
        if let Some(machine) = machine {
            link(&mut self.machines[machine].held);
        }
        stirred.machines.extend(machine);
        stirred.requests.extend(request);
        stirred.shares.insert(at);
    }

    fn remove_share(&mut self, gone: OfShare, stirred: &mut Stirred) {
        if let Some(at) = gone.at {
            self.share_at.remove(gone.name);
            self.unlink(at, stirred);
            self.faulty.remove(&at);
            stirred.shares.remove(at);
            self.vacant_shares.push(at);
        }
    }

    fn unlink(&mut self, at: usize, stirred: &mut Stirred) {
        self.fixed.remove(&at);
        self.leaving.remove(&at);
        self.squatters.remove(&at);
        self.unplaced.remove(&at);
        self.unclassed.remove(&at);
        let share = &self.shares[at];
        match share.request {
            Some(request) => self.requests[request].held.retain(|other| *other != at),
            None => {
                if let Some(orphans) = self.orphans.get_mut(&share.work) {
                    orphans.retain(|other| *other != at);
                    if orphans.is_empty() {
                        self.orphans.remove(&share.work);
                    }
                }
            }
        }
        if let Some(machine) = share.machine {
            self.machines[machine].held.retain(|other| *other != at);
        }
        stirred.machines.extend(share.machine);
        stirred.requests.extend(share.request);
    }
}

fn read(rows: impl Iterator<Item = u64>) {
    std::hint::black_box(rows.fold(0, |sum, row| sum ^ row));
}

/// A name in the news.
struct Entry<'s, K, V> {
    name: &'s K,
    /// None where it is gone.
    said: Option<&'s V>,
    /// The number it has here so far.
    at: Option<usize>,
}

type OfWork<'s> = Entry<'s, WorkId, Demand>;
type OfShare<'s> = Entry<'s, AllocationId, Allocation>;

impl<'s, K: Ord + Hash, V> Entry<'s, K, V> {
    fn of(name: &'s K, said: &'s BTreeMap<K, V>, numbers: &FxHashMap<K, usize>) -> Self {
        Self {
            name,
            said: said.get(name),
            at: numbers.get(name).copied(),
        }
    }
}

fn share(
    (id, user_at): (&AllocationId, usize),
    it: &Allocation,
    (request, machine): (Option<usize>, Option<usize>),
) -> Share {
    Share {
        id: id.clone(),
        work: it.work.clone(),
        request,
        kind: it.kind,
        user: it.user.clone(),
        user_at,
        class: if it.fixed {
            it.class.clone()
        } else {
            String::new()
        },
        node: it.node.clone(),
        machine,
        order: it.order,
        size: it.size.clone(),
        gpus: it.gpus.clone(),
        fixed: it.fixed,
        running: it.running,
        granted_at: it.granted_at,
        started_at: it.started_at,
        running_since: it.running_since,
        investment_ms: it.investment_ms,
        item_ms: it.item_ms,
        leaving: it.leaving || it.purged,
        purged: it.purged,
    }
}

impl Asked {
    /// Submit time, then larger order; ties end with the id.
    pub fn seniority(&self) -> (i64, std::cmp::Reverse<u64>) {
        (self.submitted_at.unix_ms(), std::cmp::Reverse(self.order))
    }

    /// Of a service: where its class may not be any more, it leaves.
    pub fn is_instance(&self) -> bool {
        self.kind == WorkKind::Service && !self.managed
    }
}
