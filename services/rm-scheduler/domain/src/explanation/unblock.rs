//! What else keeps waiting work back, and the smallest change that would let one more process of it
//! start. Read off the same books and asked of the same steps that decided.

mod structural;

use rustc_hash::FxHashMap;

use crate::{
    entitlement::reachable::{never, not_offered},
    input::snapshot::Policy,
    output::{
        plan::{Reason, Unblock},
        sentence::Beside,
    },
    state::Books,
};

/// Number of the shape, whether it is of whole nodes, and quanta: those of whole nodes may be other
/// than its shape says.
type Shape = (usize, bool, u64);

/// The node that comes nearest to holding one more process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Near {
    pub machine: usize,
    /// Quanta it lacks.
    pub lacking: u64,
    /// What else it lacks, where it has the quanta.
    pub beside: Option<Beside>,
}

impl Near {
    /// Which node it is, is only said where it lacks quanta.
    pub fn are_told_the_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        let said = |it: &Self| {
            let named = (it.lacking > 0).then_some(it.machine);
            (named, it.lacking, it.beside)
        };
        one.map(said) == other.map(said)
    }
}

/// Answers that many pieces of work share.
#[derive(Default)]
pub(crate) struct Explainer {
    nearest: FxHashMap<Shape, Option<Near>>,
    smaller: FxHashMap<Shape, Option<u64>>,
    never: FxHashMap<Shape, Option<Reason>>,
    /// By class.
    rivals: FxHashMap<usize, bool>,
}

impl Explainer {
    pub fn also(&mut self, books: &Books, at: usize, primary: Reason) -> Vec<Reason> {
        let request = &books.requests[at];
        if request.class.is_none() {
            return Vec::new();
        }
        let mut also = Vec::new();
        let mut add = |reason: Reason| also.extend((reason != primary).then_some(reason));
        let never = self.never(books, at);
        never.into_iter().for_each(&mut add);
        let is_of_other_size = structural::has_no_host_of_size(books, at);
        if is_of_other_size {
            add(Reason::NoHostOfSize);
        }
        let has_host = never.is_none() && !is_of_other_size;
        let fair = books.policy(at) == Some(Policy::FairShare);
        if !fair && request.has() == 0 && books.allotment_left(at, request.order) == 0 {
            add(Reason::AllotmentExceeded);
        }
        if fair && request.counted == 0 && request.cap.now > 0 {
            add(Reason::ZeroShare);
        }
        let near = self.nearest(books, at);
        // Where there is none, those that would do are closed.
        if near.map_or(has_host, |near| near.lacking > 0 || near.beside.is_some()) {
            add(match books.policy(at) {
                Some(Policy::FairShare) => Reason::WaitingForPreemption,
                Some(Policy::Reserve) => Reason::ResourcesExhausted,
                _ => Reason::InsufficientResources,
            });
        }
        also
    }

    pub fn unblock(&mut self, books: &Books, at: usize, primary: Reason) -> Option<Unblock> {
        let request = &books.requests[at];
        let order = request.order;
        if let Some(brake) = books.brake_on(at)
            && primary == Reason::WaitingForPreemption
        {
            let (user, percent) = (brake.user, brake.percent);
            return Some(Unblock::RaisePreemptionBudget { user, percent });
        }
        let exhausted = [Reason::InsufficientResources, Reason::ResourcesExhausted];
        if exhausted.contains(&primary)
            && let Some(free_room) = structural::held_for_good(books, at)
        {
            return Some(free_room);
        }
        Some(match primary {
            Reason::NoClass
            | Reason::UnknownClass
            | Reason::NotAuthorised
            | Reason::PolicyMismatch => Unblock::NameClass,
            Reason::AllotmentExceeded => {
                let (limit, used) = books.allotment(at)?;
                let quantum = books.quantum_bytes(at).max(1);
                let left = limit.saturating_sub(used) / quantum;
                if structural::has_no_host_of_size(books, at)
                    && let Some(quanta) = structural::smaller(books, at, left)
                {
                    return Some(Unblock::AskForLess { quanta });
                }
                let needed = structural::least(books, at).saturating_mul(quantum);
                let bytes = used.saturating_add(needed).saturating_sub(limit);
                Unblock::RaiseAllotment { bytes }
            }
            Reason::NoHostLargeEnough | Reason::NoHostOfSize => {
                if let Some(name) = not_offered(books, at) {
                    let name = name.to_owned();
                    return Some(Unblock::OfferResource { name });
                }
                match self.smaller(books, at) {
                    Some(quanta) => Unblock::AskForLess { quanta },
                    None => Unblock::AddNode { quanta: order },
                }
            }
            Reason::NoListedMachine => structural::listed_or_added(books, at),
            Reason::AllBlocked => Unblock::OpenNode {
                node: blocked(books, at)?,
            },
            Reason::KeptApart => match self.nearest(books, at) {
                Some(near) if near.lacking > 0 => free_room(books, near),
                _ => Unblock::AddNode { quanta: order },
            },
            Reason::ZeroShare if self.has_rivals(books, at) => {
                Unblock::RaiseShare { quanta: order }
            }
            Reason::ZeroShare => Unblock::AddNode { quanta: order },
            Reason::WaitingForPreemption if request.coming > 0 => Unblock::Wait {
                leaving_processes: request.coming,
            },
            Reason::WaitingForPreemption
            | Reason::WaitingForDefragmentation
            | Reason::InsufficientResources
            | Reason::ResourcesExhausted => match self.nearest(books, at) {
                None => structural::unblock(books, at),
                Some(near) if near.lacking > 0 => free_room(books, near),
                Some(near) if near.beside.is_some() => Unblock::AddNode { quanta: order },
                Some(_) => Unblock::Wait {
                    leaving_processes: 1,
                },
            },
            _ => return None,
        })
    }

    pub fn never(&mut self, books: &Books, at: usize) -> Option<Reason> {
        let reason = || never(books, at).map(|(reason, _)| reason);
        if books.requests[at].listed {
            return reason();
        }
        *self.never.entry(shape(books, at)).or_insert_with(reason)
    }

    pub fn nearest(&mut self, books: &Books, at: usize) -> Option<Near> {
        let near = |(machine, lacking)| Near {
            machine,
            lacking,
            beside: beside(books, at, machine).filter(|_| lacking == 0),
        };
        if books.demand(at).is_picky() {
            return nearest(books, at).map(near);
        }
        let known = self.nearest.entry(shape(books, at));
        *known.or_insert_with(|| nearest_alike(books, at).map(near))
    }

    /// The same for work of this shape that may go wherever its class may, and asks for parts of
    /// nodes.
    pub fn nearest_to_shape(&mut self, books: &Books, (at, shape): (usize, usize)) -> Option<Near> {
        let order = books.register.shapes[shape].2;
        let known = self.nearest.get(&(shape, false, order));
        known.copied().unwrap_or_else(|| self.nearest(books, at))
    }

    /// Weights divide among classes of one priority: a class that the policy gives no other
    /// beside it has all there is for it already, whatever its weight.
    fn has_rivals(&mut self, books: &Books, at: usize) -> bool {
        let Some(class) = books.requests[at].class else {
            return false;
        };
        let group = |class: usize| {
            let book = &books.classes[class];
            let tree = book.pool.map(|pool| books.forest.root(pool));
            (tree, book.class.policy, book.class.priority)
        };
        let others = || (0..books.classes.len()).filter(|other| *other != class);
        let known = self.rivals.entry(class);
        *known.or_insert_with(|| others().any(|other| group(other) == group(class)))
    }

    fn smaller(&mut self, books: &Books, at: usize) -> Option<u64> {
        let smaller = || structural::smaller(books, at, u64::MAX);
        if books.demand(at).is_picky() {
            return smaller();
        }
        *self.smaller.entry(shape(books, at)).or_insert_with(smaller)
    }
}

fn shape(books: &Books, at: usize) -> Shape {
    let request = &books.requests[at];
    let whole = books.policy(at) == Some(Policy::Reserve);
    (request.shape, whole, request.order)
}

fn free_room(books: &Books, near: Near) -> Unblock {
    Unblock::FreeRoom {
        node: books.station(near.machine).name.clone(),
        quanta: near.lacking,
    }
}

/// What is too little on a node, once everything that leaves has left, whatever its quanta.
fn beside(books: &Books, at: usize, machine: usize) -> Option<Beside> {
    let (room, size) = (books.coming_room(machine), books.size(at));
    let lacks = |name: &_, amount: &u64| room.size.extras.get(name).is_none_or(|it| it < amount);
    let mut extras = size.extras.iter().filter(|(_, amount)| **amount > 0);
    if size.cpu_milli > room.size.cpu_milli {
        Some(Beside::Cpu)
    } else if room.fitting_gpus(size.gpu_milli) == 0 || size.gpu_milli > room.size.gpu_milli {
        Some(Beside::Gpu)
    } else if extras.any(|(name, amount)| lacks(name, amount)) {
        Some(Beside::Other)
    } else {
        (size.memory_bytes > room.size.memory_bytes).then_some(Beside::Memory)
    }
}

/// For all of its shape: by what will be free and is meant for nobody.
fn nearest_alike(books: &Books, at: usize) -> Option<(usize, u64)> {
    let (home, order) = (books.home(at)?, books.requests[at].order);
    let pools = match books.policy(at)? {
        Policy::FairShare => books.forest.subtree(home),
        Policy::FixedShare => std::slice::from_ref(&home),
        Policy::Reserve => return nearest(books, at),
    };
    books.sets.rooms.prospects.nearest(books, pools, order)
}

/// By what will be free once everything that leaves has left.
fn nearest(books: &Books, at: usize) -> Option<(usize, u64)> {
    let request = &books.requests[at];
    let whole = books.policy(at) == Some(Policy::Reserve);
    let could = (0..books.machines.len()).filter(|machine| {
        let place = &books.machines[*machine];
        let large = place.order >= request.order && (!whole || place.order == request.order);
        large && place.is_schedulable() && books.is_permitted(at, *machine)
    });
    let mut nearest: Option<(usize, u64)> = None;
    for machine in could {
        let coming = books.coming_order_for(machine, Some(at));
        let lacking = request.order.saturating_sub(coming);
        if nearest.is_none_or(|(_, least)| lacking < least) {
            nearest = Some((machine, lacking));
        }
        if lacking == 0 {
            break;
        }
    }
    nearest
}

fn blocked(books: &Books, at: usize) -> Option<hayward_vocabulary::NodeName> {
    let request = &books.requests[at];
    let found = (0..books.machines.len()).find(|machine| {
        let place = &books.machines[*machine];
        let avoided = books.avoids(at, *machine);
        (books.station(*machine).node.block.is_some() || avoided)
            && place.order >= request.order
            && (avoided || books.is_permitted(at, *machine))
    });
    found.map(|machine| books.station(machine).name.clone())
}

#[cfg(test)]
mod tests {
    use crate::{
        input::{settings::Settings, snapshot::Policy},
        output::plan::{Reason, Unblock},
        tests::fixture::{GIB, World, node_name},
    };

    #[test]
    fn the_smallest_change_and_what_else_would_block() {
        let mut world = World::eager().nodes(&[4, 4]);
        world.snapshot.tunables.global_allotment_bytes = Some(3 * GIB);
        world.service("holds", "a", 2);
        world.service("over", "a", 2);
        world.job("huge", "b", 9);
        world.service("late", "c", 3);
        world.step();
        world.service("later", "e", 3);
        let plan = world.step();
        let unblock = |id: &str| plan.verdicts[id].unblock.clone().unwrap();
        assert_eq!(plan.verdicts["over"].reason, Reason::AllotmentExceeded);
        assert_eq!(unblock("over"), Unblock::RaiseAllotment { bytes: GIB });
        // Two quanta of one node and one of the other are held for good.
        assert_eq!(unblock("huge"), Unblock::AskForLess { quanta: 2 });
        assert_eq!(plan.verdicts["later"].reason, Reason::InsufficientResources);
        let (node, quanta) = (node_name("n00"), 1);
        assert_eq!(unblock("later"), Unblock::FreeRoom { node, quanta });
    }

    /// What is said against `zero_share` helps: the weight where there is somebody to weigh
    /// against, room where there is not.
    #[test]
    fn whoever_is_due_nothing_is_told_what_gives_a_share() {
        for (beside, helps) in [
            (10, Unblock::RaiseShare { quanta: 2 }),
            (5, Unblock::AddNode { quanta: 2 }),
        ] {
            let mut world = World::eager().nodes(&[4]);
            world.snapshot.tunables.settings = Settings::reference();
            world.class("heavy", (Policy::FairShare, beside, 100), "default");
            world.job_in("heavy", "has", "a", 2).max_processes = 2;
            world.job("lacks", "b", 2);
            world.snapshot.classes.get_mut("fair").unwrap().weight = 1;
            world.step();
            let plan = world.step();
            assert_eq!(plan.verdicts["lacks"].reason, Reason::ZeroShare);
            assert_eq!(plan.verdicts["lacks"].unblock.as_ref(), Some(&helps));
            match helps {
                Unblock::AddNode { quanta } => world.node_in("default", "n01", quanta),
                _ => world.snapshot.classes.get_mut("fair").unwrap().weight = 100,
            }
            assert!(world.current("lacks", 3).contains(&1), "{helps:?}");
        }
    }

    #[test]
    fn d_6_what_no_quantum_counts_is_named_where_it_is_what_lacks() {
        let mut world = World::eager().nodes(&[8]);
        world.node("n00").capacity.cpu_milli = 2_000;
        for (id, user) in [("first", "a"), ("second", "b")] {
            world.job(id, user, 1).size.cpu_milli = 1_000;
            world.step();
            world.step();
        }
        let verdict = world.plan().verdicts["second"].clone();
        let named = "too little cpu, which the quantum of the policy does not count";
        assert!(
            verdict.detail.to_string().ends_with(named),
            "{}",
            verdict.detail
        );
        assert_eq!(verdict.unblock, Some(Unblock::AddNode { quanta: 1 }));
    }

    #[test]
    fn a_receipt_says_who_gave_what_for_whom() {
        let mut world = World::eager().nodes(&[2]);
        world.job("old", "a", 1);
        world.step();
        world.job("new", "b", 1);
        let plan = world.step();
        let receipt = &plan.receipts[0];
        assert_eq!(plan.receipts.len(), 1);
        assert_eq!((receipt.work.as_str(), receipt.user.as_str()), ("old", "a"));
        assert_eq!(receipt.beneficiary.as_ref().unwrap().as_str(), "new");
        assert_eq!(receipt.for_user.as_ref().unwrap().as_str(), "b");
        // Up for half a second of the one that passed.
        assert_eq!(receipt.lost_ms, 500);
        let unblock = plan.verdicts["new"].unblock.clone();
        assert_eq!(
            unblock,
            Some(Unblock::Wait {
                leaving_processes: 1
            })
        );
    }
}
