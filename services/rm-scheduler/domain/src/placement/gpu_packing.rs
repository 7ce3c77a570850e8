//! Where gpus are in play: the node on which what stays free is of most use (R-10.2, W-2).
//!
//! The fragmentation of a node is the free gpu that a process drawn from the demand at hand could
//! not use there, summed over the sizes that occur by how many processes of each are wanted. A
//! process goes where that grows least; the idea is that of fragmentation gradient descent
//! (ATC '23). Everything is in integers, what was reckoned for one room serves all rooms alike, and
//! a fleet in which nobody wants a gpu never comes here.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hayward_vocabulary::Size;

use crate::{index::node_space::Room, input::snapshot::GPU_MILLI, state::Books};

/// Percent of the demand that the sizes which count make up; the rest is too rare to wait for.
const POPULAR: u64 = 95;
/// Sizes that count at most.
const MOST: usize = 64;
/// Changes of fragmentation within four hundredths of a gpu for each process that may come count
/// as equal. Then the size and the name of nodes decide, and the fleet fills from one side.
const STEP: u64 = 40;

/// Processes that are likely to come: how much of cpu and gpu each takes, and of memory on average.
#[derive(Debug)]
struct Likely {
    cpu_milli: u64,
    gpu_milli: u64,
    memory_bytes: u64,
    weight: u64,
}

impl Likely {
    /// Free gpu on this node that it could not use.
    fn lost(&self, room: &Room, free: u64) -> u64 {
        let fits = room.size.cpu_milli >= self.cpu_milli
            && room.size.memory_bytes >= self.memory_bytes
            && room.fitting_gpus(self.gpu_milli) > 0;
        if self.gpu_milli == 0 || !fits {
            return free;
        }
        let least = self.gpu_milli.min(GPU_MILLI);
        room.gpus.iter().filter(|free| **free < least).sum()
    }
}

/// Processes that all work asks for, by shape; kept from round to round.
#[derive(Default)]
pub(crate) struct Asking {
    by_shape: Vec<u128>,
    /// What each piece of work adds, and to which shape.
    parts: Vec<(usize, u64)>,
    /// What of this round is entered.
    seen: usize,
}

impl Asking {
    pub fn renew(&mut self, books: &Books) {
        self.by_shape.resize(books.register.shapes.len(), 0);
        self.parts.resize(books.requests.len(), (0, 0));
        if books.register.anew {
            (0..books.requests.len()).for_each(|at| self.enter(books, at));
        } else {
            books
                .requests
                .stirred()
                .for_each(|at| self.enter(books, at));
        }
        self.seen = books.requests.now();
    }

    /// The same after some of this round is decided, which changes nothing about what work asks for
    /// but that some of it is left out.
    pub fn follow(&mut self, books: &Books) {
        let news = books.requests.since(self.seen);
        let out = news.filter(|at| books.requests[*at].is_out());
        out.for_each(|at| self.enter(books, at));
        #[cfg(test)]
        for at in books.requests.since(self.seen) {
            let known = self.parts[at];
            self.enter(books, at);
            assert_eq!(self.parts[at].1, known.1, "of {}", books.id(at));
        }
        self.seen = books.requests.now();
    }

    fn enter(&mut self, books: &Books, at: usize) {
        let request = &books.requests[at];
        // Work that is withdrawn leaves an empty row, which belongs to no class.
        let asks = request.class.is_some() && !request.is_out();
        let wanted = request.cap.base.min(request.reach).max(1);
        let part = (request.shape, if asks { wanted } else { 0 });
        let (shape, before) = std::mem::replace(&mut self.parts[at], part);
        if (shape, before) != part {
            self.by_shape[shape] -= u128::from(before);
            self.by_shape[part.0] += u128::from(part.1);
        }
    }

    fn sizes<'b>(&'b self, books: &Books<'b>) -> impl Iterator<Item = (&'b Size, u128)> {
        let shapes = books.register.shapes.iter().map(|(.., size)| size);
        let sizes = shapes.zip(self.by_shape.iter().copied());
        sizes.filter(|(_, wanted)| *wanted > 0)
    }
}

/// The demand at hand.
#[derive(Debug)]
struct Mix {
    likely: Vec<Likely>,
    /// Sum of the weights.
    weight: u64,
}

impl Mix {
    fn of(books: &Books) -> Self {
        let mut sums: BTreeMap<(u64, u64), (u64, u128)> = BTreeMap::new();
        for (size, wanted) in books.sets.asking.sizes(books) {
            let sum = sums.entry((size.gpu_milli, size.cpu_milli)).or_default();
            let count = u64::try_from(wanted).unwrap_or(u64::MAX);
            sum.0 = sum.0.saturating_add(count);
            sum.1 += wanted * u128::from(size.memory_bytes);
        }
        let mut likely: Vec<Likely> = sums
            .into_iter()
            .map(|((gpu_milli, cpu_milli), (weight, memory))| Likely {
                cpu_milli,
                gpu_milli,
                memory_bytes: u64::try_from(memory / u128::from(weight)).unwrap_or(u64::MAX),
                weight,
            })
            .collect();
        // Stable: among equals the smaller one.
        likely.sort_by_key(|it| Reverse(it.weight));
        let all: u64 = likely.iter().map(|it| it.weight).sum();
        let mut weight = 0;
        likely.retain(|it| {
            let counts = weight * 100 < all * POPULAR;
            weight += if counts { it.weight } else { 0 };
            counts
        });
        likely.truncate(MOST);
        let weight = likely.iter().map(|it| it.weight).sum();
        Self { likely, weight }
    }

    fn fragmentation(&self, room: &Room) -> i128 {
        let free = room.gpus.iter().sum();
        let lost = |it: &Likely| i128::from(it.lost(room, free)) * i128::from(it.weight);
        self.likely.iter().map(lost).sum()
    }

    /// The higher, the better a place; nothing where it does not fit. `most` is the number of gpus
    /// of the largest node: among equals small nodes go first, for large ones can take what fits
    /// nowhere else.
    fn score(&self, room: &Room, (order, size): (u64, &Size), most: usize) -> Option<i128> {
        if room.fitting(order, size) == 0 {
            return None;
        }
        let mut then = room.clone();
        then.take(order, size, &room.choose_gpus(size.gpu_milli));
        let won = self.fragmentation(room) - self.fragmentation(&then);
        let steps = won.div_euclid(i128::from(STEP * self.weight.max(1)));
        Some(steps * (most as i128 + 1) - room.gpus.len() as i128)
    }
}

/// The best score first, then the smallest hole, then by name.
type Place = (Reverse<i128>, u64, usize);

/// The nodes of one pool for processes of one size.
#[derive(Default)]
struct Ranking {
    places: BTreeSet<Place>,
    by_node: BTreeMap<usize, Place>,
    /// Rooms alike are reckoned once.
    known: BTreeMap<Room, Option<i128>>,
    /// Changes that it has taken up.
    seen: usize,
}

/// Of one walk over the work that is to be placed.
pub(crate) struct Packing<'a> {
    mix: Mix,
    /// By pool: the nodes that may be used, where any of the pool has gpus.
    pools: Vec<Vec<usize>>,
    most: usize,
    rankings: BTreeMap<(usize, u64, &'a Size), Ranking>,
    /// Nodes whose room changed in this walk, in the order of the changes.
    changed: Vec<usize>,
}

impl<'a> Packing<'a> {
    /// For work of one tree. None where it is not set, where nobody wants gpus, or where no node
    /// of the tree has any.
    pub fn open(
        books: &Books<'a>,
        tree: Option<usize>,
        usable: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let mut pools = tree.into_iter().flat_map(|tree| books.forest.subtree(tree));
        if !pools.any(|pool| books.register.has_gpus(*pool)) {
            return None;
        }
        let mut sizes = books.sets.asking.sizes(books);
        if !books.settings.pack_gpus || !sizes.any(|(size, _)| size.gpu_milli > 0) {
            return None;
        }
        let mut pools: Vec<Vec<usize>> = vec![Vec::new(); books.forest.len()];
        let mut most_of = vec![0; pools.len()];
        for at in books.register.packable.iter().copied() {
            let machine = &books.machines[at];
            if let Some(pool) = machine
                .pool
                .filter(|_| machine.is_schedulable() && usable(at))
            {
                pools[pool].push(at);
                most_of[pool] = most_of[pool].max(machine.free.gpus.len());
            }
        }
        for (pool, most) in pools.iter_mut().zip(&most_of) {
            if *most == 0 {
                pool.clear();
            }
        }
        let most = most_of.into_iter().max().unwrap_or(0);
        (most > 0).then(|| Self {
            mix: Mix::of(books),
            pools,
            most,
            rankings: BTreeMap::new(),
            changed: Vec::new(),
        })
    }

    pub fn covers(&self, pool: usize) -> bool {
        !self.pools[pool].is_empty()
    }

    /// The room of this node is another than before.
    pub fn changed(&mut self, machine: usize) {
        self.changed.push(machine);
    }

    /// No node of the pool has room for one process of the request; asked after [`Packing::best`].
    pub fn is_full(&self, books: &Books<'a>, (at, pool): (usize, usize)) -> bool {
        let key = (pool, books.requests[at].order, books.size(at));
        let known = self.rankings.get(&key);
        known.is_some_and(|ranking| ranking.places.is_empty())
    }

    /// The best node of the pool for one process of the request, among those that `suits` admits.
    pub fn best(
        &mut self,
        books: &Books<'a>,
        (at, pool): (usize, usize),
        suits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let (order, size) = (books.requests[at].order, books.size(at));
        let key = (pool, order, size);
        let fresh = !self.rankings.contains_key(&key);
        let ranking = self.rankings.entry(key).or_default();
        let news = if fresh {
            &self.pools[pool]
        } else {
            &self.changed[ranking.seen..]
        };
        for machine in news {
            let place = &books.machines[*machine];
            if place.pool == Some(pool) {
                let (mix, most) = (&self.mix, self.most);
                ranking.renew(*machine, &place.free, (order, size), |room| {
                    mix.score(room, (order, size), most)
                });
            }
        }
        ranking.seen = self.changed.len();
        let places = ranking.places.iter().map(|(_, _, machine)| *machine);
        places.into_iter().find(|machine| suits(*machine))
    }
}

impl Ranking {
    fn renew(
        &mut self,
        machine: usize,
        room: &Room,
        (order, size): (u64, &Size),
        score: impl Fn(&Room) -> Option<i128>,
    ) {
        if let Some(old) = self.by_node.remove(&machine) {
            self.places.remove(&old);
        }
        // Most are full, which is seen sooner than that they were reckoned before.
        if room.fitting(order, size) == 0 {
            return;
        }
        let score = match self.known.get(room) {
            Some(known) => *known,
            None => *self.known.entry(room.clone()).or_insert(score(room)),
        };
        if let Some(score) = score {
            let place = (Reverse(score), room.order, machine);
            self.places.insert(place);
            self.by_node.insert(machine, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{News, index::Register, state::Desk, tests::fixture::World};

    fn mix(likely: &[(u64, u64, u64)]) -> Mix {
        let likely: Vec<Likely> = likely
            .iter()
            .map(|(cpu_milli, gpu_milli, weight)| Likely {
                cpu_milli: *cpu_milli,
                gpu_milli: *gpu_milli,
                memory_bytes: 0,
                weight: *weight,
            })
            .collect();
        let weight = likely.iter().map(|it| it.weight).sum();
        Mix { likely, weight }
    }

    fn room(cpu_milli: u64, gpus: &[u64]) -> Room {
        let size = Size {
            cpu_milli,
            gpu_milli: gpus.iter().sum(),
            ..Size::default()
        };
        Room {
            order: 8,
            size,
            gpus: gpus.to_vec(),
        }
    }

    #[test]
    fn work_that_is_withdrawn_is_no_demand() {
        let mut world = World::eager();
        let stays = world.job("stays", "a", 1);
        (stays.size.gpu_milli, stays.max_processes) = (500, 1);
        world.job("goes", "a", 1).size.gpu_milli = 1_000;
        let (mut register, mut desk) = (Register::default(), Desk::default());
        register.absorb(&world.snapshot, &News::everything());
        let mut before = Books::open(&mut desk, &register, &world.snapshot);
        before.take_up();
        before.close(&mut desk, crate::state::Needy::default());
        world.snapshot.demand.remove("goes");
        let news = News::of_work(&world.snapshot, ["goes".parse().unwrap()]);
        register.absorb(&world.snapshot, &news);
        let mut books = Books::open(&mut desk, &register, &world.snapshot);
        books.take_up();
        let likely = Mix::of(&books).likely;
        let gpus: Vec<u64> = likely.iter().map(|it| it.gpu_milli).collect();
        assert_eq!(gpus, [500]);
    }

    #[test]
    fn what_is_free_and_of_no_use_counts() {
        let mix = mix(&[(1, 500, 2), (1, 1_000, 1), (9, 0, 1)]);
        // Halves cannot use the 300, a whole one only the whole gpu, the last wants none.
        let split = room(8, &[300, 1_000]);
        assert_eq!(mix.fragmentation(&split), 2 * 300 + 300 + 1_300);
        // Without cpu nobody can use anything.
        assert_eq!(mix.fragmentation(&room(0, &[300, 1_000])), 4 * 1_300);
        assert_eq!(mix.fragmentation(&room(8, &[0, 0])), 0);
    }

    #[test]
    fn a_part_goes_where_it_leaves_whole_gpus_whole() {
        let mix = mix(&[(1, 500, 1), (1, 1_000, 1)]);
        let half = Size {
            cpu_milli: 1,
            gpu_milli: 500,
            ..Size::default()
        };
        let score = |gpus: &[u64]| mix.score(&room(8, gpus), (1, &half), 2);
        assert!(score(&[500, 1_000]) > score(&[1_000, 1_000]));
        assert_eq!(score(&[400, 400]), None);
        // Who wants no gpu goes where there are none.
        let plain = Size {
            cpu_milli: 8,
            ..Size::default()
        };
        let score = |gpus: &[u64]| mix.score(&room(8, gpus), (1, &plain), 2);
        assert!(score(&[]) > score(&[1_000, 1_000]));
    }
}
