//! The round of the fair-share planner, as a table of contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_vocabulary::{NodeName, WorkId};

use crate::{
    Planner,
    beside::both,
    books::{Books, Desk},
    deficit, defrag,
    how_much::{self, fair::Parties},
    names::fetch,
    news::News,
    overage,
    plan::{Plan, ShareNews, Shares, Verdict},
    reach,
    register::Register,
    snapshot::{Carried, Snapshot},
    tell::Known,
    turns::{self, lacking_in_turn, reserved},
    vacate, what_of,
};

/// Weighted shares by class, user and job; fixed shares and reservations beside them.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairShare;

impl Planner for FairShare {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        let mut rounds = Rounds::default();
        let decided = rounds.decide(snapshot, &News::everything());
        rounds.whole(decided)
    }
}

/// Rounds of one fleet, one after the other: what is known of it and what was said of it is kept,
/// and brought up to date by news. What is decided depends on the snapshot alone, and is the same
/// as without any memory.
#[derive(Default)]
pub struct Rounds {
    register: Register,
    desk: Desk,
    known: Known,
    silent: bool,
}

/// What a round decided, and what it says otherwise than the round before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// With the verdicts that changed, and without shares.
    pub plan: Plan,
    /// Absent when everything was read anew, as after a change of policy: then the plan names no
    /// verdicts, and all of [`Rounds::verdicts`] and [`Rounds::shares`] may differ.
    pub shares: Option<ShareNews>,
    /// Work that is withdrawn, and has no verdict any more.
    pub gone: Vec<WorkId>,
}

/// The parts of a round, for whoever measures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Absorb,
    Open,
    Count,
    Place,
    Evict,
    Mend,
    Lend,
    Tell,
}

impl Rounds {
    /// For who only carries plans out: decides the same, and says of nothing why. There are no
    /// verdicts and no shares.
    pub fn silent() -> Self {
        Self {
            silent: true,
            ..Self::default()
        }
    }

    /// `news` names all that differs between this snapshot and the one before.
    pub fn decide(&mut self, snapshot: &Snapshot, news: &News) -> Decided {
        self.decide_watched(snapshot, news, &mut |_| {})
    }

    /// The same, saying when each part ends.
    pub fn decide_watched(
        &mut self,
        snapshot: &Snapshot,
        news: &News,
        ended: &mut dyn FnMut(Phase),
    ) -> Decided {
        // 1. Who asks, what is held where, which class serves whom, what is owed to whom.
        self.register.absorb(snapshot, news);
        ended(Phase::Absorb);
        let mut books = Books::open(&mut self.desk, &self.register, snapshot);
        deficit::settle(&mut books);
        // 2. What has to leave whatever anybody is due.
        vacate::faults(&mut books);
        // 3. What each piece of work could hold, and how much of it it may use now.
        reach::measure(&mut books);
        books.take_up();
        ended(Phase::Open);
        for tree in books.forest.roots().iter().copied() {
            plan_tree(&mut books, tree, ended);
        }
        deficit::note(&mut books);
        if books.register.anew {
            // Nowhere is more held in memory than here. What was counted first is counted anew as
            // soon as it is carried out, so its rows are missed the least.
            books.sets.parties = Parties::default();
        }
        books.follow_prospects();
        // 9. Why each has what it has, and what the next round has to know.
        let (carry, grant) = (|| carried(&books), || books.grants());
        let (verdicts, shares, (carried, grants)) = if self.silent {
            let read = both(books.pending.len(), carry, grant);
            (BTreeMap::new(), None, read)
        } else {
            self.known.tell(&books, || (carry(), grant()))
        };
        let (carried, needy) = carried;
        books.was_needy = needy;
        books.close(&mut self.desk, &carried.needy);
        let mut vacates = std::mem::take(&mut books.vacates);
        vacates.sort_unstable_by(|one, other| one.allocation.cmp(&other.allocation));
        let plan = Plan {
            round: snapshot.round,
            at: snapshot.now,
            verdicts,
            shares: Shares::default(),
            grants,
            carried,
            receipts: books.receipts,
            vacates,
            ..Plan::default()
        };
        ended(Phase::Tell);
        let gone = self.register.withdrawn.clone();
        Decided { plan, shares, gone }
    }

    /// One for every piece of work in the demand of the last round, made to be read: what was kept
    /// of them is numbers.
    pub fn verdicts(&self) -> BTreeMap<WorkId, Verdict> {
        self.known.verdicts(&self.register)
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Verdict> {
        self.known.verdict(&self.register, work)
    }

    /// The arithmetic of the last round, down to each piece of work.
    pub fn shares(&self) -> Shares {
        self.known.shares(&self.register)
    }

    /// The same down to users, without their work.
    pub fn sums(&self) -> &Shares {
        &self.known.sums
    }

    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> &[crate::rest::Outcome] {
        self.desk.outcomes()
    }

    /// The whole plan of the last round.
    pub fn whole(&self, decided: Decided) -> Plan {
        Plan {
            verdicts: self.verdicts(),
            shares: self.shares(),
            ..decided.plan
        }
    }
}

/// Trees share nothing, so each is planned by itself.
fn plan_tree(books: &mut Books, tree: usize, ended: &mut dyn FnMut(Phase)) {
    // 4. How many processes each is due.
    how_much::count(books, tree);
    books.renew_claims(tree);
    ended(Phase::Count);
    turns::renew(books, tree);
    if books.begin_tree(tree) {
        return;
    }
    // 5. On which nodes.
    what_of::place_counted(books, tree);
    ended(Phase::Place);
    // 6. Who has to make room.
    overage::evict(books, tree, &lacking_in_turn(books, tree));
    ended(Phase::Evict);
    // 7. Room that is there but split.
    let taken = books.receipts.len();
    defrag::mend(books, tree);
    if books.settings.evict_for_somebody && books.receipts.len() > taken {
        // Who gave for that gets its own back in the same round, where others have more than their
        // counts.
        overage::evict(books, tree, &lacking_in_turn(books, tree));
    }
    defrag::exchange(books, tree);
    ended(Phase::Mend);
    // 8. What nobody is due is lent.
    if books.settings.lend_idle {
        what_of::lend_idle(books, tree);
    }
    books.end_tree(tree);
    ended(Phase::Lend);
}

/// 14.1. With the numbers of who is needy.
fn carried(books: &Books) -> (Carried, Vec<usize>) {
    let configured = books.snapshot.tunables.reserve_overage_bytes.is_some();
    let (needy, numbers) = needy(books);
    let mut carried = Carried {
        needy,
        deficits: books.deficits.clone(),
        claims: claims(books),
        last_hit: lately_hit(books),
        ..Carried::default()
    };
    if books.settings.churn_rounds.is_some() {
        let given = books.receipts.iter().map(|receipt| &receipt.work);
        let hit = given.filter(|work| books.register.request(work).is_some());
        let round = books.snapshot.round;
        carried
            .last_hit
            .extend(hit.map(|work| (work.clone(), round)));
    }
    let may_end = !books.settings.replace_lost || !books.snapshot.carried.ended.is_empty();
    if !may_end && !configured {
        return (carried, numbers);
    }
    for at in books.requests.written() {
        if books.requests[at].ended {
            carried.ended.insert(books.id(at).clone());
        }
    }
    for at in reserved(books).filter(|_| configured) {
        let request = &books.requests[at];
        if request.upgraded {
            carried.upgrades.insert(books.id(at).clone(), request.order);
        }
    }
    (carried, numbers)
}

/// Where the same are needy as before, they are not listed anew; where most are, those that
/// came and went are said of what was carried over.
fn needy(books: &Books) -> (Arc<BTreeSet<WorkId>>, Vec<usize>) {
    let of_trees = books.outcomes.iter().flat_map(|it| &it.needy);
    let mut now: Vec<usize> = of_trees.copied().collect();
    let mut before = books.was_needy.clone();
    // Mostly in order already.
    now.sort_unstable();
    before.sort_unstable();
    let carried = &books.snapshot.carried.needy;
    let (gone, come) = (not_among(&before, &now), not_among(&now, &before));
    if gone.is_empty() && come.is_empty() && carried.len() == before.len() {
        return (Arc::clone(carried), now);
    }
    let names = || now.iter().map(|at| books.id(*at));
    fetch(names().map(WorkId::as_str));
    let mut needy = BTreeSet::clone(carried);
    if needy.len() > before.len() {
        // Who asks for nothing any more has no number.
        needy.retain(|id| books.register.request(id).is_some());
    }
    let is_known = needy.len() == before.len();
    if !is_known || gone.len() + come.len() > now.len() / 4 {
        return (Arc::new(names().cloned().collect()), now);
    }
    for at in gone {
        needy.remove(books.id(at));
    }
    needy.extend(come.into_iter().map(|at| books.id(at).clone()));
    #[cfg(test)]
    assert!(needy.iter().eq(names().collect::<BTreeSet<_>>()));
    (Arc::new(needy), now)
}

/// Those of some numbers that are not among others, both in order.
fn not_among(some: &[usize], others: &[usize]) -> Vec<usize> {
    let mut others = others.iter().copied().peekable();
    let is_missing = |at: &usize| {
        while others.next_if(|other| other < at).is_some() {}
        others.peek() != Some(at)
    };
    some.iter().copied().filter(is_missing).collect()
}

/// W-14: room that was made is not cleared twice.
fn claims(books: &Books) -> BTreeMap<WorkId, Vec<NodeName>> {
    let mut claims: BTreeMap<WorkId, Vec<NodeName>> = BTreeMap::new();
    let written = books.machines.written();
    let spoken = written.filter(|at| !books.machines[*at].spoken.is_empty());
    let mut spoken: Vec<usize> = spoken.collect();
    // Nodes of one piece of work by name.
    spoken.sort_unstable();
    for at in spoken {
        for meant in &books.machines[at].spoken {
            let nodes = claims.entry(books.id(meant.request).clone()).or_default();
            nodes.push(books.station(at).name.clone());
        }
    }
    claims
}

/// W-32: when each piece of work last gave something up before, as long as that matters.
fn lately_hit(books: &Books) -> BTreeMap<WorkId, u64> {
    let Some(rounds) = books.settings.churn_rounds else {
        return BTreeMap::new();
    };
    let round = books.snapshot.round;
    let hits = books.snapshot.carried.last_hit.iter();
    hits.filter(|(_, last)| round.saturating_sub(**last) < rounds)
        .map(|(work, last)| (work.clone(), *last))
        .collect()
}
