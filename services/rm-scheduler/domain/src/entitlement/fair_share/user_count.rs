//! The work of one user in one class, as it is counted: by what it asks for, not one by one. It is
//! kept from round to round with the course its last count took: who is given the same again, step
//! by step, has the same counts.

use std::ops::Range;

use super::{
    count_pass::Course,
    count_runs::Run,
    work_groups::{Asks, Crowd, Quanta, Seat, Seats, number},
};
use crate::{
    collections::id_list::Numbers,
    entitlement::apportion::{self, Amounts, Band, Claims},
    index::Splice,
    input::snapshot::Standing,
    state::Books,
};

#[derive(Default)]
pub(super) struct Party {
    crowd: Crowd,
    /// All its work is in the crowd.
    is_known: bool,
    /// The crowd as it stands in this count, those of one group beside each other and by age.
    stretches: Vec<Stretch>,
    /// The steps of the count that it went through last.
    past: Vec<Step>,
    /// Steps of this count so far.
    steps: usize,
    /// The stretches went through the steps of this count, and not through those of one before it.
    is_live: bool,
    /// What is wanted in the beginning.
    wanted: Amounts,
    /// By what users are sorted.
    pub total: u64,
}

struct Step {
    /// Absent where it is all that is wanted.
    given: Option<Amounts>,
    /// What is wanted from then on, where limits moved.
    wants: Option<Amounts>,
}

/// Neighbours in a group that are counted alike.
#[derive(Clone, Copy)]
struct Stretch {
    group: u32,
    from: u32,
    len: u32,
    /// Processes each is counted for at most.
    limit: u64,
    counted: u64,
}

impl Stretch {
    fn asks<'c>(&self, crowd: &'c Crowd) -> &'c Asks {
        &crowd.groups[self.group as usize].asks
    }

    /// Of its first.
    fn place(&self) -> (u32, u32) {
        (self.group, self.from)
    }

    /// In the group.
    fn places(&self) -> Range<usize> {
        let from = self.from as usize;
        from..from + self.len as usize
    }
}

impl Party {
    pub fn quanta(&self) -> Quanta {
        self.crowd.quanta
    }

    /// Is it known that it has work?
    pub fn has_some(&self) -> bool {
        self.is_known && !self.crowd.is_empty()
    }

    pub fn splice(&mut self, splice: &Splice, seats: &mut Seats) {
        if !self.is_known {
            return;
        }
        self.past.clear();
        if !splice.joins {
            self.crowd.leave(splice.at, seats);
        } else if self.crowd.has_turn(splice.place) {
            self.crowd.sit(splice.at, seats);
        } else {
            // It is read anew, with turns for all.
            self.is_known = false;
        }
    }

    /// Takes up what all its work asks for.
    pub fn learn<'w>(
        &mut self,
        books: &Books,
        work: impl FnOnce() -> &'w Numbers,
        seats: &mut Seats,
    ) {
        if !self.is_known {
            self.past.clear();
            self.crowd = Crowd::of(books, work().iter(), seats);
            self.is_known = true;
        }
    }

    /// Takes up what these pieces of its work ask for now; returns their seats.
    pub fn renew(
        &mut self,
        books: &Books,
        work: impl ExactSizeIterator<Item = usize>,
        seats: &Seats,
    ) -> impl Iterator<Item = (usize, Seat)> {
        if work.len() > 0 {
            self.crowd.fetch();
        }
        work.map(|at| {
            let (seat, is_another) = self.crowd.read(books, at, seats[at]);
            if is_another {
                self.past.clear();
            }
            (at, seat)
        })
    }

    /// What is kept is what reading all its work anew gives.
    #[cfg(test)]
    pub fn assert_known(&self, books: &Books, work: &Numbers, seats: &Seats) {
        let work: Vec<usize> = work.iter().collect();
        self.crowd.assert_is(books, &work, seats);
    }

    /// How much there is to look at before it begins.
    pub fn to_begin(&self) -> usize {
        if self.past.is_empty() {
            self.crowd.groups.len()
        } else {
            0
        }
    }

    /// Users are sorted by what they want in all; what is wanted moves with what is held, so where
    /// counts are to stand still they are sorted by what could be used at all.
    pub fn begin(&mut self, course: &Course) {
        self.steps = 0;
        self.is_live = self.past.is_empty();
        if self.is_live {
            self.start(course);
            self.total = 0;
            self.wanted.clear();
            for stretch in &self.stretches {
                let asks = stretch.asks(&self.crowd);
                let len = u64::from(stretch.len);
                let most = if course.steady {
                    asks.base
                } else {
                    stretch.limit
                };
                self.total = self.total.saturating_add(most.saturating_mul(len));
                self.wanted
                    .add(asks.order, stretch.limit.saturating_mul(len));
            }
        }
    }

    /// All work as a count begins.
    fn start(&mut self, course: &Course) {
        self.stretches.clear();
        let groups = (0..).zip(&self.crowd.groups);
        let groups = groups.filter(|(_, group)| !group.members.is_empty());
        self.stretches.extend(groups.map(|(at, group)| Stretch {
            group: at,
            from: 0,
            len: number(group.members.len()),
            limit: group.asks.first_limit(course),
            counted: 0,
        }));
    }

    /// How much there is to divide in a step.
    pub fn stretches(&self) -> usize {
        if self.is_live {
            self.stretches.len()
        } else {
            0
        }
    }

    fn add_limits(&self, want: &mut Amounts) {
        for stretch in &self.stretches {
            let count = stretch.limit.saturating_mul(stretch.len.into());
            want.add(stretch.asks(&self.crowd).order, count);
        }
    }

    pub fn wants(&self) -> &Amounts {
        let mut past = self.past[..self.steps].iter().rev();
        let moved = past.find_map(|step| step.wants.as_ref());
        moved.unwrap_or(&self.wanted)
    }

    /// Divides what is given among its work, or all that it wants, and then holds work to its cap;
    /// true when it wants something else from now on.
    pub fn step(&mut self, course: &Course, given: Option<Amounts>) -> bool {
        let given = given.filter(|given| given != self.wants());
        let at = self.steps;
        self.steps += 1;
        if !self.is_live {
            let known = self.past.get(at).filter(|step| step.given == given);
            if let Some(step) = known {
                return step.wants.is_some();
            }
            self.go_back(course, at);
        }
        let moved = self.advance(course, at, given.as_ref());
        let wants = moved.then(|| {
            let mut wants = Amounts::with_room(self.wanted.orders());
            self.add_limits(&mut wants);
            wants
        });
        self.past.push(Step { given, wants });
        moved
    }

    /// Puts the work where it was after so many steps.
    fn go_back(&mut self, course: &Course, steps: usize) {
        let past = std::mem::take(&mut self.past);
        self.is_live = true;
        self.start(course);
        for (at, step) in past.into_iter().take(steps).enumerate() {
            self.advance(course, at, step.given.as_ref());
            self.past.push(step);
        }
    }

    fn advance(&mut self, course: &Course, at: usize, given: Option<&Amounts>) -> bool {
        let before = at.checked_sub(1).map(|before| &self.past[before]);
        // The same limits and the same grant give the same counts.
        let is_same =
            before.is_some_and(|step| step.wants.is_none() && step.given.as_ref() == given);
        match given {
            _ if is_same => {}
            Some(given) => self.divide(course, given),
            // There is a hole of its size for every process.
            None => {
                let stretches = self.stretches.iter_mut();
                stretches.for_each(|stretch| stretch.counted = stretch.limit);
            }
        }
        let all = Course::holds_all(at);
        course.steady && (all || !is_same) && self.hold_to_caps(all)
    }

    /// Jobs by age, then id.
    fn divide(&mut self, course: &Course, given: &Amounts) {
        if course.manner.rivals {
            self.divide_among_rivals(course, given);
        } else {
            // What they were counted for before is nothing to what they are now.
            self.join_neighbours(|_| 0);
            let crowd = &self.crowd;
            let bands = self.stretches.iter().map(|stretch| {
                let group = &crowd.groups[stretch.group as usize];
                let place = (stretch.from, &group.members[stretch.places()]);
                Band::new(stretch.group, place, group.asks.order, stretch.limit)
            });
            let divided = apportion::divide(bands, given.as_holes(), course.manner.level);
            let stretches = divided.into_iter().map(|band| Stretch {
                group: band.owner,
                from: band.from,
                len: number(band.members.len()),
                limit: band.given + band.want,
                counted: band.given,
            });
            self.stretches.clear();
            self.stretches.extend(stretches);
        }
        self.join_neighbours(|stretch| stretch.counted);
    }

    fn divide_among_rivals(&mut self, course: &Course, given: &Amounts) {
        let groups = &self.crowd.groups;
        let each = self.stretches.iter().flat_map(|stretch| {
            let group = &groups[stretch.group as usize];
            stretch.places().map(|from| {
                let one = Stretch {
                    from: number(from),
                    len: 1,
                    ..*stretch
                };
                (group.members[from].turn, group.asks.order, one)
            })
        });
        let mut rows: Vec<(u32, u64, Stretch)> = each.collect();
        rows.sort_unstable_by_key(|(turn, ..)| *turn);
        let mut claims = Claims::default();
        for (_, order, row) in &rows {
            claims.enter(1, Standing::Even);
            claims.want(*order, row.limit);
        }
        claims.apportion(given.as_holes(), course.manner);
        let counted = rows.into_iter().zip(claims.processes());
        let counted = counted.map(|((.., row), counted)| Stretch { counted, ..row });
        self.stretches.clear();
        self.stretches.extend(counted);
        self.stretches.sort_unstable_by_key(Stretch::place);
    }

    /// Those who have the same limit and of whom the same is said.
    fn join_neighbours(&mut self, said: impl Fn(&Stretch) -> u64) {
        self.stretches.dedup_by(|next, before| {
            let says = |stretch: &Stretch| (stretch.group, stretch.limit, said(stretch));
            let same = says(next) == says(before);
            before.len += if same { next.len } else { 0 };
            same
        });
    }

    /// Holds whoever exceeds its cap to it, or everybody; true when that changes anything.
    fn hold_to_caps(&mut self, everybody: bool) -> bool {
        let mut exceeds = false;
        for stretch in &mut self.stretches {
            let asks = stretch.asks(&self.crowd);
            let cap = asks.allowance(asks.now);
            if stretch.counted > cap || everybody && stretch.limit > cap {
                stretch.limit = cap;
                exceeds = true;
            }
        }
        exceeds
    }

    /// The end of a count: writes what came of it into the books.
    pub fn end(&mut self, course: &Course, books: &mut Books) {
        if self.past.len() > self.steps {
            self.go_back(course, self.steps);
        }
        if !self.is_live {
            return;
        }
        self.stretches.sort_unstable_by_key(Stretch::place);
        let runs = self.stretches.iter().map(|stretch| Run {
            group: stretch.group,
            len: stretch.len,
            counted: stretch.counted,
        });
        self.crowd.say(runs, |at, counted| {
            books.requests.settle(at).counted = counted;
        });
    }
}
