//! The work of one user in one class, in groups that ask for the same. Each has a turn by its age,
//! so nobody has to be moved when others come and go.

use super::{
    count_pass::Course,
    count_runs::{Run, Said},
};
use crate::{entitlement::apportion::Member, incremental::prefetch::fetch_rows, state::Books};

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Shares outside the tables that are counted too.
    fn outside(&self) -> u64 {
        self.resting.min(self.now)
    }

    /// Of a piece of work that has so many.
    fn quanta(&self, current: u64) -> Quanta {
        Quanta {
            wants: u128::from(self.now.saturating_mul(self.order)),
            has: u128::from(current.saturating_mul(self.order)),
        }
    }
}

/// Work that asks for the same.
pub(super) struct Group {
    pub asks: Asks,
    /// By age; whoever comes and goes is found with one look at memory.
    pub members: Vec<Member>,
}

impl Group {
    /// Where the one with this turn is or would be.
    fn place(&self, turn: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&turn, |one| one.turn)
    }
}

#[derive(Default)]
pub(super) struct Crowd {
    /// Some may be empty.
    pub groups: Vec<Group>,
    /// What they are counted for.
    said: Said,
    /// Groups that are not empty, by what they ask for.
    by_asks: Vec<u32>,
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
    pub fn of(books: &Books, work: impl Iterator<Item = usize>, seats: &mut Seats) -> Self {
        let mut crowd = Self::default();
        if seats.len() < books.requests.len() {
            seats.resize(books.requests.len(), Seat::default());
        }
        for (turn, at) in (0..).zip(work) {
            let (asks, current) = (Asks::of(books, at), books.requests[at].current);
            let group = crowd.group(asks);
            seats[at] = Seat {
                group,
                turn,
                current,
            };
            let who = number(at);
            crowd.groups[group as usize]
                .members
                .push(Member { turn, who });
            crowd.quanta.add(asks.quanta(current));
            (crowd.next, crowd.len) = (turn + 1, crowd.len + 1);
        }
        let each = (0..).zip(&crowd.groups).flat_map(|(at, group)| {
            let counted = move |one: &Member| (at, books.requests[one.who as usize].counted);
            group.members.iter().map(counted)
        });
        crowd.said = Said::of(each);
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

    /// Has the memory of all groups come.
    pub fn fetch(&self) {
        fetch_rows(self.groups.iter().map(|group| group.members.len()));
    }

    /// Returns what it was counted for.
    fn take_out(&mut self, seat: Seat) -> Option<u64> {
        let group = self.groups.get_mut(seat.group as usize)?;
        let place = group.place(seat.turn).ok()?;
        group.members.remove(place);
        self.quanta.remove(group.asks.quanta(seat.current));
        if group.members.is_empty() {
            self.by_asks.retain(|other| *other != seat.group);
            self.vacant.push(seat.group);
        }
        self.said.remove(seat.group, number(place))
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
        self.enter(at, seat, said);
        self.quanta.add(asks.quanta(current));
        (seat, true)
    }

    /// Takes work into the group where it has its seat.
    fn enter(&mut self, at: usize, seat: Seat, counted: u64) {
        let group = &mut self.groups[seat.group as usize];
        let (Ok(place) | Err(place)) = group.place(seat.turn);
        let (turn, who) = (seat.turn, number(at));
        group.members.insert(place, Member { turn, who });
        self.said.insert((seat.group, number(place)), counted);
    }

    /// Says what they are counted for inside the tables, by group and age, and tells of whom that
    /// is something else than before, with what he has outside.
    pub fn say(
        &mut self,
        inside: impl ExactSizeIterator<Item = Run>,
        mut tell: impl FnMut(usize, u64),
    ) {
        // Of who comes later something else is said at first.
        let mut runs = Vec::with_capacity(inside.len() + 2);
        runs.extend(inside.map(|run| {
            let asks = &self.groups[run.group as usize].asks;
            let counted = run.counted + asks.outside();
            Run { counted, ..run }
        }));
        let groups = &self.groups;
        self.said.renew(runs, |(group, place), counted| {
            let member = groups[group as usize].members[place as usize];
            tell(member.who as usize, counted);
        });
    }

    /// Everybody is here once, with what he asks for, has and was counted for, and the turns go by
    /// age.
    #[cfg(test)]
    pub fn assert_is(&self, books: &Books, work: &[usize], seats: &Seats) {
        let turns: Vec<u32> = work.iter().map(|at| seats[*at].turn).collect();
        assert!(turns.is_sorted_by(|a, b| a < b), "turns by age");
        let (mut members, mut quanta) = (0, Quanta::default());
        for (at, group) in (0..).zip(&self.groups) {
            members += group.members.len();
            assert!(group.members.is_sorted_by(|a, b| a.turn < b.turn));
            assert_eq!(group.members.len(), self.said.each(at).count());
        }
        let asks = |at: &u32| self.groups[*at as usize].asks;
        assert!(
            self.by_asks.is_sorted_by_key(asks),
            "groups by what they ask for"
        );
        assert_eq!((members, self.len), (work.len(), work.len()));
        for at in work {
            let number = seats[*at].group;
            let group = &self.groups[number as usize];
            let place = group.place(seats[*at].turn);
            let place = place.expect("a seat that is taken");
            let member = group.members[place].who as usize;
            let request = &books.requests[*at];
            let known = (
                member,
                seats[*at].current,
                self.said.each(number).nth(place),
            );
            assert_eq!(known, (*at, request.current, Some(request.counted)));
            assert!(group.asks == Asks::of(books, *at), "what it asks for");
            quanta.add(group.asks.quanta(request.current));
        }
        assert_eq!(self.quanta, quanta);
    }

    fn group(&mut self, asks: Asks) -> u32 {
        let asks_of = |at: &u32| self.groups[*at as usize].asks;
        let place = match self.by_asks.binary_search_by_key(&asks, asks_of) {
            Ok(place) => return self.by_asks[place],
            Err(place) => place,
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            let members = Vec::new();
            self.groups.push(Group { asks, members });
            number(self.groups.len() - 1)
        });
        self.groups[at as usize].asks = asks;
        self.by_asks.insert(place, at);
        at
    }
}

/// Has the memory come in which all these sit and ask for something.
pub(super) fn fetch(books: &Books, seats: &Seats, work: impl Iterator<Item = usize>) {
    fetch_rows(work.map(|at| {
        let (asks, current) = (Asks::of(books, at), books.requests[at].current);
        usize::from(asks.base ^ asks.resting ^ current == 0) ^ seats[at].turn as usize
    }));
}

/// Places and groups are no more than pieces of work, which have numbers of this size.
pub(super) fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// What work may use and what it has, in quanta.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quanta {
    pub wants: u128,
    pub has: u128,
}

impl Quanta {
    pub fn add(&mut self, other: Self) {
        self.wants += other.wants;
        self.has += other.has;
    }

    pub fn remove(&mut self, other: Self) {
        self.wants -= other.wants;
        self.has -= other.has;
    }
}
