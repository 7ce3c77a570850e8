//! The work of one user in one class, as it is counted. It is kept from round to round with the
//! course its last count took: who is given the same again, step by step, has the same counts.

use rustc_hash::FxHashMap;

use super::Course;
use crate::{
    apportion::{Alike, Amounts, Claims, as_holes},
    books::Books,
    register::Splice,
    snapshot::Standing,
};

/// By class and the number of the user.
#[derive(Default)]
pub(crate) struct Parties {
    by_class: Vec<Vec<Party>>,
}

/// What divides the grant of a user among its work.
#[derive(Default)]
pub(super) struct Tools {
    claims: Claims,
    alike: Alike,
    counts: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Party {
    /// By age.
    rows: Vec<Row>,
    /// There is a row for all its work.
    is_known: bool,
    /// The steps of the count that the rows went through last.
    past: Vec<Step>,
    /// Steps of this count so far.
    steps: usize,
    /// The rows went through the steps of this count, and not through those of one before it.
    is_live: bool,
    /// What is wanted in the beginning.
    wanted: Amounts,
    /// By what users are sorted.
    pub total: u64,
    /// Of all rows.
    quanta: Quanta,
}

/// What work may use and what it has, in quanta.
#[derive(Default, Clone, Copy)]
pub(crate) struct Quanta {
    pub wants: u128,
    pub has: u128,
}

/// What users of a class had, and have now, of work that does not have what it had. In quanta.
pub(crate) struct Moved(FxHashMap<(usize, usize), (u128, u128)>);

impl Moved {
    pub fn of(books: &Books) -> Self {
        let mut moved = FxHashMap::<_, (u128, u128)>::default();
        for at in books.requests.written() {
            let request = &books.requests[at];
            let (had, has) = (request.had, request.has());
            if let Some(class) = request.class.filter(|_| had != has) {
                let user = books.demand(at).user_at;
                let of_user = moved.entry((class, user)).or_default();
                of_user.0 += u128::from(had.saturating_mul(request.order));
                of_user.1 += u128::from(has.saturating_mul(request.order));
            }
        }
        Self(moved)
    }
}

impl Quanta {
    fn of(row: &Row) -> Self {
        Self {
            wants: u128::from(row.now.saturating_mul(row.order)),
            has: u128::from(row.current.saturating_mul(row.order)),
        }
    }

    fn add(&mut self, other: Self) {
        self.wants += other.wants;
        self.has += other.has;
    }

    fn remove(&mut self, other: Self) {
        self.wants -= other.wants;
        self.has -= other.has;
    }
}

struct Step {
    given: Amounts,
    /// What is wanted from then on, where limits moved.
    wants: Option<Amounts>,
}

/// One piece of work while it is counted.
#[derive(Default)]
struct Row {
    at: usize,
    order: u64,
    base: u64,
    steady: u64,
    now: u64,
    /// Has when the count begins.
    current: u64,
    /// Outside the tables.
    resting: u64,
    /// Processes it is counted for at most.
    limit: u64,
    counted: u64,
    /// What the books know of it.
    said: Option<u64>,
}

impl Parties {
    pub fn splice(&mut self, splices: &[Splice]) {
        for splice in splices {
            let class = self.by_class.get_mut(splice.class);
            let party = class.and_then(|users| users.get_mut(splice.user_at));
            let Some(party) = party.filter(|party| party.is_known) else {
                continue;
            };
            party.past.clear();
            if let Some(at) = splice.joins {
                let row = Row {
                    at,
                    ..Row::default()
                };
                party.rows.insert(splice.place, row);
            } else {
                let gone = party.rows.remove(splice.place);
                party.quanta.remove(Quanta::of(&gone));
            }
        }
    }

    /// The users of a class by name.
    pub(super) fn take(&mut self, books: &Books, class: usize) -> Vec<Party> {
        let users = books.register.users();
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, Vec::new);
        }
        let parties = &mut self.by_class[class];
        if parties.len() < users {
            parties.resize_with(users, Party::default);
        }
        let by_name = books.classes[class].users.values();
        by_name
            .map(|work| std::mem::take(&mut parties[books.demand(work[0]).user_at]))
            .collect()
    }

    /// What the users of a class want and have after all that is decided, by name.
    pub fn quanta(&self, books: &Books, class: usize, moved: &Moved) -> Vec<Quanta> {
        let quanta = |work: &Vec<usize>| {
            let user = books.demand(work[0]).user_at;
            let mut quanta = self.by_class[class][user].quanta;
            if let Some((had, has)) = moved.0.get(&(class, user)) {
                quanta.has = quanta.has + has - had;
            }
            quanta
        };
        books.classes[class].users.values().map(quanta).collect()
    }

    pub(super) fn put_back(&mut self, books: &Books, class: usize, users: Vec<Party>) {
        let by_name = books.classes[class].users.values();
        for (work, party) in by_name.zip(users) {
            self.by_class[class][books.demand(work[0]).user_at] = party;
        }
    }
}

impl Row {
    fn of(books: &Books, at: usize, said: Option<u64>) -> Self {
        let request = &books.requests[at];
        Self {
            at,
            order: request.order,
            base: request.cap.base,
            steady: request.cap.steady,
            now: request.cap.now,
            current: request.current,
            resting: request.resting,
            limit: 0,
            counted: 0,
            said,
        }
    }

    fn asks_as(&self, other: &Self) -> bool {
        let asks = |row: &Self| (row.order, row.base, row.steady, row.now, row.resting);
        asks(self) == asks(other)
    }

    /// What is left of a cap after the shares that rest outside the tables.
    fn allowance(&self, cap: u64) -> u64 {
        cap.saturating_sub(self.resting)
    }
}

impl Party {
    /// Takes up what all its work asks for.
    pub fn learn(&mut self, books: &Books, work: &[usize]) {
        if self.is_known {
            return;
        }
        self.rows.clear();
        let rows = work.iter().map(|at| Row::of(books, *at, None));
        self.rows.extend(rows);
        for row in &self.rows {
            self.quanta.add(Quanta::of(row));
        }
        self.is_known = true;
    }

    /// Takes up what some of its work asks for now.
    pub fn renew(&mut self, books: &Books, stirred: impl Fn(usize) -> bool) {
        for row in self.rows.iter_mut().filter(|row| stirred(row.at)) {
            let now = Row::of(books, row.at, row.said);
            self.quanta.remove(Quanta::of(row));
            self.quanta.add(Quanta::of(&now));
            if row.asks_as(&now) {
                row.current = now.current;
            } else {
                *row = now;
                self.past.clear();
            }
        }
    }

    /// Users are sorted by what they want in all; what is wanted moves with what is held, so where
    /// counts are to stand still they are sorted by what could be used at all.
    pub fn begin(&mut self, course: &Course) {
        self.steps = 0;
        self.is_live = self.past.is_empty();
        if self.is_live {
            self.first_limits(course);
            let most = |row: &Row| if course.steady { row.base } else { row.limit };
            self.total = self.rows.iter().map(most).fold(0, u64::saturating_add);
            self.wanted = wanted(&self.rows);
        }
    }

    fn first_limits(&mut self, course: &Course) {
        for row in &mut self.rows {
            row.limit = if course.steady {
                row.allowance(row.steady)
            } else {
                row.now
            };
        }
    }

    pub fn wants(&self) -> &Amounts {
        wants_after(&self.wanted, &self.past[..self.steps])
    }

    /// Divides what is given among its work, and then holds work to its cap; true when it wants
    /// something else from now on.
    pub fn step(&mut self, course: &Course, tools: &mut Tools, given: Amounts) -> bool {
        let at = self.steps;
        self.steps += 1;
        if !self.is_live {
            let known = self.past.get(at).filter(|step| step.given == given);
            if let Some(step) = known {
                return step.wants.is_some();
            }
            self.go_back(course, tools, at);
        }
        let moved = self.advance(course, tools, at, &given);
        let wants = moved.then(|| wanted(&self.rows));
        self.past.push(Step { given, wants });
        moved
    }

    /// Puts the rows where they were after so many steps.
    fn go_back(&mut self, course: &Course, tools: &mut Tools, steps: usize) {
        let past = std::mem::take(&mut self.past);
        self.is_live = true;
        self.first_limits(course);
        for (at, step) in past.into_iter().take(steps).enumerate() {
            self.advance(course, tools, at, &step.given);
            self.past.push(step);
        }
    }

    fn advance(&mut self, course: &Course, tools: &mut Tools, at: usize, given: &Amounts) -> bool {
        let before = at.checked_sub(1).map(|before| &self.past[before]);
        // The same limits and the same grant give the same counts.
        let is_same = before.is_some_and(|step| step.wants.is_none() && step.given == *given);
        let wants = wants_after(&self.wanted, &self.past[..at]);
        if !is_same && wants == given {
            // There is a hole of its size for every process.
            for row in &mut self.rows {
                row.counted = row.limit;
            }
        } else if !is_same {
            self.divide(course, tools, given);
        }
        let all = Course::holds_all(at);
        course.steady && (all || !is_same) && self.hold_to_caps(all)
    }

    /// Jobs by age, then id.
    fn divide(&mut self, course: &Course, tools: &mut Tools, given: &Amounts) {
        let rows = &mut self.rows;
        if course.manner.rivals {
            let claims = &mut tools.claims;
            claims.clear();
            for row in rows.iter() {
                claims.enter(1, Standing::Even);
                claims.want(row.order, row.limit);
            }
            claims.apportion(as_holes(given), course.manner);
            for (row, count) in rows.iter_mut().zip(claims.processes()) {
                row.counted = count;
            }
            return;
        }
        let mut counts = std::mem::take(&mut tools.counts);
        counts.clear();
        counts.resize(rows.len(), 0);
        let wanted = rows.iter().map(|row| (row.order, row.limit));
        let tell = |turn: usize, count| counts[turn] = count;
        tools
            .alike
            .divide(wanted, as_holes(given), course.manner.level, tell);
        for (row, count) in rows.iter_mut().zip(&counts) {
            row.counted = *count;
        }
        tools.counts = counts;
    }

    /// Holds whoever exceeds its cap to it, or everybody; true when that changes anything.
    fn hold_to_caps(&mut self, everybody: bool) -> bool {
        let mut exceeds = false;
        for row in &mut self.rows {
            let cap = row.allowance(row.now);
            if row.counted > cap || everybody && row.limit > cap {
                row.limit = cap;
                exceeds = true;
            }
        }
        exceeds
    }

    /// The end of a count: writes what came of it into the books.
    pub fn end(&mut self, course: &Course, tools: &mut Tools, books: &mut Books) {
        if self.past.len() > self.steps {
            self.go_back(course, tools, self.steps);
        }
        if !self.is_live {
            return;
        }
        for row in &mut self.rows {
            let counted = row.counted + row.resting.min(row.now);
            if row.said.replace(counted) != Some(counted) {
                books.requests.settle(row.at).counted = counted;
            }
        }
    }
}

fn wants_after<'w>(wanted: &'w Amounts, past: &'w [Step]) -> &'w Amounts {
    let moved = past.iter().rev().find_map(|step| step.wants.as_ref());
    moved.unwrap_or(wanted)
}

fn wanted(rows: &[Row]) -> Amounts {
    let mut want = Amounts::new();
    // Neighbours often are alike, so one place in the map is kept open.
    let mut last = (0, 0_u64);
    for row in rows {
        if row.order != last.0 {
            super::close(&mut want, last);
            last = (row.order, 0);
        }
        last.1 = last.1.saturating_add(row.limit);
    }
    super::close(&mut want, last);
    want
}
