//! Nodes come, change and go.
//!
//! Numbers of nodes ascend by name, and so do ties in every decision. So that a node which comes
//! finds a number between its neighbours some are left free, and who goes leaves one; only where
//! there is none is everything read anew.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Size, WorkId};

use super::{
    Register, Station, apply_delta::Stirred, derive::set, largest_nodes::LargestNodes,
    node_space::Room,
};
use crate::{
    collections::id_list::Numbers,
    input::{
        delta::News,
        snapshot::{Node, Snapshot},
    },
};

/// After so many nodes one number is left free.
const NODES_FOR_ONE_FREE: usize = 8;

impl Register {
    /// All of them, numbered anew.
    pub(super) fn read_nodes(&mut self, snapshot: &Snapshot) {
        let free = snapshot.nodes.len() / NODES_FOR_ONE_FREE + 1;
        self.machines.reserve_exact(snapshot.nodes.len() + free);
        for (at, (name, node)) in snapshot.nodes.iter().enumerate() {
            self.machine_at.insert(name.clone(), self.machines.len());
            let station = self.station(name, node);
            if let Some(pool) = station.pool {
                self.all_quanta[pool] += station.order;
            }
            self.machines.push(station);
            if at % NODES_FOR_ONE_FREE == NODES_FOR_ONE_FREE / 2 {
                self.machines.push(Station::vacant(name));
            }
        }
        self.largest = self.largest_nodes(snapshot);
        self.note_packable();
    }

    /// By pool.
    fn largest_nodes(&self, snapshot: &Snapshot) -> Vec<LargestNodes> {
        let mut capacities: Vec<Vec<&Size>> = vec![Vec::new(); self.forest.len()];
        for node in snapshot.nodes.values() {
            if let Some(pool) = self.forest.find(&node.pool) {
                capacities[pool].push(&node.capacity);
            }
        }
        let pools = capacities.into_iter().enumerate();
        let largest = pools.map(|(pool, sizes)| LargestNodes::of(self.quantum(Some(pool)), sizes));
        largest.collect()
    }

    /// False where the order of any work may be another than before.
    fn keeps_orders(&mut self, snapshot: &Snapshot) -> bool {
        let largest = self.largest_nodes(snapshot);
        let caps = |largest: &[LargestNodes]| largest.iter().any(LargestNodes::caps);
        let keeps = largest == self.largest || !(caps(&largest) || caps(&self.largest));
        self.largest = largest;
        keeps
    }

    /// Takes up news of nodes. Returns work for which it matters which nodes there are, and which
    /// is to be said again for that; none when there is no number for a node that comes, or work
    /// may count as another number of quanta now.
    pub(super) fn absorb_nodes(
        &mut self,
        snapshot: &Snapshot,
        news: &News,
        stirred: &mut Stirred,
    ) -> Option<Vec<WorkId>> {
        let (mut are_others, mut are_sized_otherwise) = (false, false);
        for name in &news.nodes {
            let (known, said) = (self.machine(name), snapshot.nodes.get(name));
            are_others |= known.is_some() != said.is_some();
            are_sized_otherwise |=
                known.map(|at| sized(&self.machines[at].node)) != said.map(sized);
            match (known, said) {
                (Some(at), Some(node)) => self.change_node(at, node, stirred),
                (None, Some(node)) => self.add_node((name, node), stirred)?,
                (Some(at), None) => self.remove_node(at, stirred),
                (None, None) => {}
            }
        }
        if are_sized_otherwise && !self.keeps_orders(snapshot) {
            return None;
        }
        let numbers = self.avoiding.iter().filter(|_| are_others);
        let again = numbers.map(|at| self.requests[*at].id.clone());
        Some(again.filter(|id| !news.work.contains_key(id)).collect())
    }

    pub(super) fn note_avoiding(&mut self, at: usize) {
        let avoids = !self.requests[at].wishes().avoids.is_empty();
        set(&mut self.avoiding, at, avoids);
    }

    fn change_node(&mut self, at: usize, node: &Node, stirred: &mut Stirred) {
        if self.machines[at].node != *node {
            let name = self.machines[at].name.clone();
            let mut station = self.station(&name, node);
            station.held = std::mem::take(&mut self.machines[at].held);
            self.put_station(at, station, stirred);
        }
    }

    fn add_node(&mut self, (name, node): (&NodeName, &Node), stirred: &mut Stirred) -> Option<()> {
        let at = self.number_for(name)?;
        if at == self.machines.len() {
            self.machines.push(Station::vacant(name));
        }
        self.machine_at.insert(name.clone(), at);
        let mut station = self.station(name, node);
        // By id, as all lists of shares.
        let lost = self.unplaced.iter().copied();
        let mut held: Vec<usize> = lost
            .filter(|held| self.shares[*held].node == *name)
            .collect();
        held.sort_by(|a, b| self.shares[*a].id.cmp(&self.shares[*b].id));
        for held in held.iter().copied() {
            self.shares[held].machine = Some(at);
        }
        station.held = held.into_iter().collect();
        self.put_station(at, station, stirred);
        Some(())
    }

    /// A free number between those of its neighbours by name, or the next one.
    fn number_for(&self, name: &NodeName) -> Option<usize> {
        let place = self.machines.partition_point(|it| it.name < *name);
        let is_free = |at: &usize| self.machines[*at].is_vacant;
        if place == self.machines.len() || is_free(&place) {
            return Some(place);
        }
        place.checked_sub(1).filter(is_free)
    }

    fn remove_node(&mut self, at: usize, stirred: &mut Stirred) {
        let held = std::mem::take(&mut self.machines[at].held);
        for held in held.iter() {
            let share = &mut self.shares[held];
            share.machine = None;
            stirred.requests.extend(share.request);
            stirred.shares.insert(held);
        }
        let name = self.machines[at].name.clone();
        self.machine_at.remove(&name);
        self.put_station(at, Station::vacant(&name), stirred);
    }

    /// A station in the place of another.
    fn put_station(&mut self, at: usize, station: Station, stirred: &mut Stirred) {
        self.forget_kind(at);
        self.open_for(at, false);
        let before = &self.machines[at];
        if let Some(pool) = before.pool {
            self.all_quanta[pool] -= before.order;
            self.left_pools.push(pool);
        }
        if let Some(pool) = station.pool {
            self.all_quanta[pool] += station.order;
        }
        let packs = |it: &Station| {
            let with_gpus = it.node.capacity.gpu_milli > 0;
            let pool = it.pool.filter(|pool| with_gpus || self.with_gpus[*pool]);
            (pool, pool.is_some() && with_gpus)
        };
        let repacks = packs(&station) != packs(before);
        self.nodes_moved = true;
        // Whether it holds too much is found anew, and noted where that is otherwise.
        let over = before.over;
        self.machines[at] = Station { over, ..station };
        if repacks {
            self.note_packable();
        }
        stirred.nodes.insert(at);
        stirred.machines.insert(at);
    }

    fn station(&self, name: &NodeName, node: &Node) -> Station {
        let pool = self.forest.find(&node.pool);
        let order = self.quantum(pool).node_order(&node.capacity);
        let room = Room::new(order, &node.capacity);
        Station {
            pool,
            order,
            node: node.clone(),
            room,
            is_vacant: false,
            ..Station::vacant(name)
        }
    }

    fn note_packable(&mut self) {
        let stations = || self.machines.iter().enumerate();
        self.with_gpus = vec![false; self.forest.len()];
        for (_, station) in stations().filter(|(_, it)| it.node.capacity.gpu_milli > 0) {
            if let Some(pool) = station.pool {
                self.with_gpus[pool] = true;
            }
        }
        let is_packable = |it: &Station| it.pool.is_some_and(|pool| self.with_gpus[pool]);
        let packable = stations().filter(|(_, station)| is_packable(station));
        self.packable = packable.map(|(at, _)| at).collect();
    }
}

fn sized(node: &Node) -> (&str, &Size) {
    (&node.pool, &node.capacity)
}

impl Station {
    /// A number that is free. Its name keeps the order of names.
    fn vacant(name: &NodeName) -> Self {
        Self {
            name: name.clone(),
            node: Node {
                pool: String::new(),
                capacity: Size::default(),
                takes_work: false,
                lost: false,
                offline: false,
                block: None,
                labels: BTreeMap::new(),
            },
            is_vacant: true,
            is_plain: false,
            pool: None,
            order: 0,
            schedulable: false,
            room: Room::default(),
            counted: None,
            held: Numbers::default(),
            held_quanta: 0,
            over: false,
            services: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::{
        News, Planner as _, Rounds,
        planner::FairShare,
        tests::fixture::{World, node_name},
    };

    /// Takes up this node, and tells whether it found a number without reading all anew.
    fn takes_up(rounds: &mut Rounds, world: &mut World, name: &str) -> bool {
        let news = News {
            nodes: BTreeSet::from([node_name(name)]),
            ..News::default()
        };
        let decided = rounds.decide(&world.snapshot, &news);
        let found = decided.shares.is_some();
        let plan = rounds.whole(decided);
        assert_eq!(plan, FairShare.schedule(&world.snapshot));
        found
    }

    #[test]
    fn who_goes_leaves_its_number_and_what_it_held_waits_for_it() {
        let mut world = World::eager().nodes(&[4, 4, 4]);
        for user in ["a", "b", "c"] {
            world.job(user, user, 6);
        }
        world.step();
        let mut rounds = Rounds::default();
        rounds.decide(&world.snapshot, &News::everything());
        let gone = world.snapshot.nodes.remove("n01").unwrap();
        assert!(takes_up(&mut rounds, &mut world, "n01"));
        let name = node_name("n01");
        world.snapshot.nodes.insert(name, gone.clone());
        assert!(takes_up(&mut rounds, &mut world, "n01"), "it comes back");
        for next in ["n03", "n04"] {
            world.snapshot.nodes.insert(node_name(next), gone.clone());
            assert!(takes_up(&mut rounds, &mut world, next), "one more");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn nodes_come_and_go_in_any_order(names in prop::collection::vec(0..40_u8, 1..30)) {
            let mut world = World::eager().nodes(&[3; 20]);
            for user in ["a", "b"] {
                world.job(user, user, 40);
            }
            world.step();
            let node = world.node("n00").clone();
            let mut rounds = Rounds::default();
            rounds.decide(&world.snapshot, &News::everything());
            for number in names {
                // Every other one stands between two that are there.
                let half = if number % 2 == 0 { "" } else { "x" };
                let name = format!("n{:02}{half}", number / 2);
                if world.snapshot.nodes.remove(name.as_str()).is_none() {
                    world.snapshot.nodes.insert(node_name(&name), node.clone());
                }
                takes_up(&mut rounds, &mut world, &name);
            }
        }
    }
}
