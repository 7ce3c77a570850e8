//! The work of one user in one class, in groups that ask for the same. Each has a turn by its age,
//! so nobody has to be moved when others come and go.

use rustc_hash::FxHashMap;

use super::{
    Course,
    parties::Quanta,
    said::{Run, Said},
};
use crate::books::Books;

/// Where a piece of work sits.
#[derive(Clone, Copy, Default)]
pub(super) struct Seat {
    group: u32,
    turn: u32,
    /// What the work has when the count begins.
    current: u64,
}

/// The group of work of which nobody looked yet what it asks for.
const UNREAD: u32 = u32::MAX;

/// By request; it means something where the request belongs to a crowd that is known.
pub(super) type Seats = Vec<Seat>;

/// What counting depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Asks {
    pub order: u64,
    pub base: u64,
    pub steady: u64,
    pub now: u64,
    /// Outside the tables.
    pub resting: u64,
}

impl Asks {
    fn of(books: &Books, at: usize) -> Self {
        let request = &books.requests[at];
        Self {
            order: request.order,
            base: request.cap.base,
            steady: request.cap.steady,
            now: request.cap.now,
            resting: request.resting,
        }
    }

    pub fn first_limit(&self, course: &Course) -> u64 {
        if course.steady {
            self.allowance(self.steady)
        } else {
            self.allowance(self.now)
        }
    }

    /// What is left of a cap after the shares that rest outside the tables.
    pub fn allowance(&self, cap: u64) -> u64 {
        cap.saturating_sub(self.resting)
    }

    /// Of a piece of work that has so many.
    fn quanta(&self, current: u64) -> Quanta {
        Quanta {
            wants: u128::from(self.now.saturating_mul(self.order)),
            has: u128::from(current.saturating_mul(self.order)),
        }
    }
}

/// Work that asks for the same, by age.
pub(super) struct Group {
    pub asks: Asks,
    pub turns: Vec<u32>,
    /// Their numbers.
    members: Vec<u32>,
    /// What they are counted for.
    said: Said,
}

impl Group {
    /// Says what they are counted for, and tells of whom that is something else than before.
    pub fn say(
        &mut self,
        runs: impl Iterator<Item = Run> + Clone,
        mut tell: impl FnMut(usize, u64),
    ) {
        let members = &self.members;
        let tell = |place: usize, counted| tell(members[place] as usize, counted);
        self.said.renew(runs, tell);
    }
}

#[derive(Default)]
pub(super) struct Crowd {
    /// Some may be empty.
    pub groups: Vec<Group>,
    group_of: FxHashMap<Asks, u32>,
    vacant: Vec<u32>,
    /// The turn of who comes next.
    next: u32,
    /// Pieces of work.
    len: usize,
    /// Sum of what all ask for and have.
    pub quanta: Quanta,
}

impl Crowd {
    /// All work, by age.
    pub fn of(books: &Books, work: &[usize], seats: &mut Seats) -> Self {
        let mut crowd = Self::default();
        if seats.len() < books.requests.len() {
            seats.resize(books.requests.len(), Seat::default());
        }
        for (turn, at) in (0..).zip(work.iter().copied()) {
            let (asks, current) = (Asks::of(books, at), books.requests[at].current);
            let group = crowd.group(asks);
            seats[at] = Seat {
                group,
                turn,
                current,
            };
            let group = &mut crowd.groups[group as usize];
            group.turns.push(turn);
            group.members.push(number(at));
            group.said.push(books.requests[at].counted);
            crowd.quanta.add(asks.quanta(current));
            (crowd.next, crowd.len) = (turn + 1, crowd.len + 1);
        }
        crowd
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whoever comes is younger than all who are here, or else it has no turn for him.
    pub fn has_turn(&self, place: usize) -> bool {
        place == self.len && self.next < u32::MAX - 1
    }

    /// Takes in the youngest; what it asks for is read later.
    pub fn sit(&mut self, at: usize, seats: &mut Seats) {
        if seats.len() <= at {
            seats.resize(at + 1, Seat::default());
        }
        seats[at] = Seat {
            group: UNREAD,
            turn: self.next,
            current: 0,
        };
        (self.next, self.len) = (self.next + 1, self.len + 1);
    }

    pub fn leave(&mut self, at: usize, seats: &Seats) {
        self.len -= 1;
        self.take_out(seats[at]);
    }

    /// Returns what it was counted for.
    fn take_out(&mut self, seat: Seat) -> Option<u64> {
        let group = self.groups.get_mut(seat.group as usize)?;
        let place = group.turns.binary_search(&seat.turn).ok()?;
        group.turns.remove(place);
        group.members.remove(place);
        let said = group.said.remove(place);
        self.quanta.remove(group.asks.quanta(seat.current));
        if group.turns.is_empty() {
            self.group_of.remove(&group.asks);
            self.vacant.push(seat.group);
        }
        said
    }

    /// Reads what a piece of work that has this seat asks for now and has. Returns its seat, and
    /// whether that is another one: where it asks for something else.
    pub fn read(&mut self, books: &Books, at: usize, seat: Seat) -> (Seat, bool) {
        let (asks, current) = (Asks::of(books, at), books.requests[at].current);
        let group = self.groups.get(seat.group as usize);
        if group.is_some_and(|group| group.asks == asks) {
            self.quanta.remove(asks.quanta(seat.current));
            self.quanta.add(asks.quanta(current));
            return (Seat { current, ..seat }, false);
        }
        let said = self.take_out(seat);
        let said = said.unwrap_or_else(|| books.requests[at].counted);
        let seat = Seat {
            group: self.group(asks),
            current,
            ..seat
        };
        let group = &mut self.groups[seat.group as usize];
        let place = group.turns.partition_point(|turn| *turn < seat.turn);
        group.turns.insert(place, seat.turn);
        group.members.insert(place, number(at));
        group.said.insert(place, said);
        self.quanta.add(asks.quanta(current));
        (seat, true)
    }

    /// Everybody is here once, with what he asks for, has and was counted for, and the turns go by
    /// age.
    #[cfg(test)]
    pub fn assert_is(&self, books: &Books, work: &[usize], seats: &Seats) {
        let turns: Vec<u32> = work.iter().map(|at| seats[*at].turn).collect();
        assert!(turns.is_sorted_by(|a, b| a < b), "turns by age");
        let (mut members, mut quanta) = (0, Quanta::default());
        for group in &self.groups {
            members += group.members.len();
            assert!(group.turns.is_sorted_by(|a, b| a < b));
            assert_eq!(group.said.each().count(), group.members.len());
        }
        assert_eq!((members, self.len), (work.len(), work.len()));
        for at in work {
            let group = &self.groups[seats[*at].group as usize];
            let place = group.turns.binary_search(&seats[*at].turn);
            let place = place.expect("a seat that is taken");
            let (member, said) = (group.members[place] as usize, group.said.each().nth(place));
            let request = &books.requests[*at];
            let known = (member, seats[*at].current, said);
            assert_eq!(known, (*at, request.current, Some(request.counted)));
            assert!(group.asks == Asks::of(books, *at), "what it asks for");
            quanta.add(group.asks.quanta(request.current));
        }
        assert_eq!(self.quanta, quanta);
    }

    fn group(&mut self, asks: Asks) -> u32 {
        if let Some(known) = self.group_of.get(&asks) {
            return *known;
        }
        let fresh = Group {
            asks,
            turns: Vec::new(),
            members: Vec::new(),
            said: Said::default(),
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            // Groups are no more than pieces of work, which have numbers of this size.
            u32::try_from(self.groups.len()).unwrap_or(UNREAD)
        });
        match self.groups.get_mut(at as usize) {
            Some(place) => *place = fresh,
            None => self.groups.push(fresh),
        }
        self.group_of.insert(asks, at);
        at
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
