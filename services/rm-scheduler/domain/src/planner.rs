//! The round of the fair-share planner, as a table of contents.

mod carry_over;

use hayward_vocabulary::WorkId;

use crate::{
    Planner, defragmentation, departures,
    entitlement::{self, deficit, fair_share::Parties, reachable},
    incremental::join::both,
    index::Register,
    input::{delta::News, snapshot::Snapshot},
    lending,
    output::plan::{Plan, ShareNews, Shares, Verdict, VerdictNews, Verdicts},
    placement::{
        self,
        serve_order::{self, lacking_in_turn},
    },
    preemption,
    report::Known,
    state::{Books, Desk},
};

use carry_over::carried;

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
    /// Without verdicts and shares.
    pub plan: Plan,
    pub verdicts: VerdictNews,
    /// Absent when everything was read anew, as after a change of policy: then no verdict is named,
    /// and all of [`Rounds::verdicts`] and [`Rounds::shares`] may differ.
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
        departures::faults(&mut books);
        // 3. What each piece of work could hold, and how much of it it may use now.
        reachable::measure(&mut books);
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
        let older = books.was_needy.older.take();
        let deficits = std::mem::take(&mut books.deficits);
        let (carry, grant) = (|| carried(&books, older, deficits), || books.grants());
        let (verdicts, shares, (carried, grants)) = if self.silent {
            let read = both(books.pending.len(), carry, grant);
            (Vec::new(), None, read)
        } else {
            self.known.tell(&books, || (carry(), grant()))
        };
        let (carried, needy) = carried;
        books.close(&mut self.desk, needy);
        let mut vacates = std::mem::take(&mut books.vacates);
        vacates.sort_unstable_by(|one, other| one.allocation.cmp(&other.allocation));
        let plan = Plan {
            round: snapshot.round,
            at: snapshot.now,
            grants,
            carried,
            receipts: books.receipts,
            vacates,
            ..Plan::default()
        };
        ended(Phase::Tell);
        let gone = self.register.withdrawn.clone();
        Decided {
            plan,
            verdicts,
            shares,
            gone,
        }
    }

    /// One for every piece of work in the demand of the last round, made to be read: what was kept
    /// of them is numbers.
    pub fn verdicts(&self) -> Verdicts {
        self.known.verdicts(&self.register)
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
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
    pub(crate) fn outcomes(&self) -> &[crate::incremental::idle_trees::Outcome] {
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
    entitlement::count(books, tree);
    books.renew_claims(tree);
    ended(Phase::Count);
    serve_order::renew(books, tree);
    if books.begin_tree(tree) {
        return;
    }
    // 5. On which nodes.
    let turns = placement::place_counted(books, tree);
    ended(Phase::Place);
    // 6. Who has to make room.
    preemption::evict(books, tree, &turns);
    ended(Phase::Evict);
    // 7. Room that is there but split.
    let taken = books.receipts.len();
    defragmentation::mend(books, tree, &turns);
    if books.settings.evict_for_somebody && books.receipts.len() > taken {
        // Who gave for that gets its own back in the same round, where others have more than their
        // counts.
        preemption::evict(books, tree, &lacking_in_turn(books, tree));
    }
    defragmentation::exchange(books, tree);
    ended(Phase::Mend);
    // 8. What nobody is due is lent.
    if books.settings.lend_idle {
        lending::lend_idle(books, tree);
    }
    books.end_tree(tree);
    ended(Phase::Lend);
}
