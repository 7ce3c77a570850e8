//! What a round says: of work that waits always anew, of the rest only what became different.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;
use rustc_hash::FxHashMap;

use crate::{
    beside::both,
    books::Books,
    explain::{Explainer, Near},
    marks::Marks,
    names::by_name,
    plan::{Reason, ShareNews, Shares, Verdict},
    register::Register,
    shares::{self, Told},
    snapshot::Policy,
    verdict::{self, Finding},
};

/// As many small things is it to tell of one piece of work.
const TO_TELL: usize = 8;

/// By shape.
type Nearest = FxHashMap<usize, Option<Near>>;

/// What was said last, by the number of the work. Names and sentences are made when it is read.
#[derive(Default)]
pub(crate) struct Known {
    bases: Vec<Option<verdict::Basis>>,
    findings: Vec<Option<Finding>>,
    /// By tree: work of which something is said in every round in which its tree does not rest.
    unsettled: BTreeMap<Option<usize>, Vec<usize>>,
    /// By work that waits: what for, when it was told.
    waits: Vec<Option<Reason>>,
    nearest: Nearest,
    /// Memory for the work that is known to be told of.
    seen: Marks,
    told: Told,
    pools: shares::Pools,
    /// Of the fleet, its classes and users, without work.
    pub sums: Shares,
}

impl Known {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs. What else is read off the books is read by whoever has less to do meanwhile.
    pub fn tell<T: Send>(
        &mut self,
        books: &Books,
        else_read: impl FnOnce() -> T + Send,
    ) -> (BTreeMap<WorkId, Verdict>, Option<ShareNews>, T) {
        let register = books.register;
        if register.anew {
            let read = self.tell_all(books, else_read);
            return (BTreeMap::new(), None, read);
        }
        self.bases.resize(books.requests.len(), None);
        self.findings.resize(books.requests.len(), None);
        self.waits.resize(books.requests.len(), None);
        for at in register.touched.iter().chain(&register.refreshed) {
            self.bases[*at] = None;
        }
        for at in &register.vacated {
            self.findings[*at] = None;
        }
        let moved = self.moved(books);
        let Self {
            findings,
            told,
            pools,
            sums,
            ..
        } = self;
        let tell_shares = || {
            let told = (told, pools);
            shares::renew(books, told, sums, &moved)
        };
        let tell_verdicts = || (changed_verdicts(books, findings, &moved), else_read());
        let (news, (changed, read)) = both(moved.len() * TO_TELL, tell_shares, tell_verdicts);
        (changed, Some(news), read)
    }

    /// Live work of which something else may be to be said: who waits where it does not rest, and
    /// who is stirred and rests on something else than before.
    fn moved(&mut self, books: &Books) -> Vec<usize> {
        let rests = |tree: Option<usize>| tree.is_some_and(|tree| books.outcomes[tree].is_kept);
        let mut known = std::mem::take(&mut self.seen);
        known.extend(books.register.touched.iter().copied());
        let mut all = Vec::new();
        let mut same = Same::new(&self.nearest, &mut self.waits);
        for (tree, waiting) in &mut self.unsettled {
            if rests(*tree) {
                continue;
            }
            waiting.retain(|at| {
                let gone = known.contains(*at);
                let stays = !gone && same.is_told(books, *at);
                if !gone && !stays {
                    all.push(*at);
                }
                stays
            });
        }
        self.nearest = same.now;
        known.clear();
        for at in all.iter().copied() {
            known.insert(at);
            self.bases[at] = verdict::basis(books, at);
        }
        let stirred = books.requests.stirred();
        for at in stirred.filter(|at| !known.contains(*at) && books.register.is_live(*at)) {
            let now = verdict::basis(books, at);
            if now.is_none() || now != self.bases[at] {
                all.push(at);
            }
            self.bases[at] = now;
        }
        for at in all.iter().copied().filter(|at| self.bases[*at].is_none()) {
            self.waits[at] = books.wait_of(at);
            let waiting = self.unsettled.entry(books.tree_of(at)).or_default();
            waiting.push(at);
        }
        known.clear();
        self.seen = known;
        all
    }

    /// Verdicts and shares are read off the same books and know nothing of each other, so each has
    /// a thread of its own.
    fn tell_all<T: Send>(&mut self, books: &Books, else_read: impl FnOnce() -> T + Send) -> T {
        // Read anew, work is numbered by id.
        let all = 0..books.requests.len();
        let findings = || verdict::on(books, all.clone()).map(Some).collect();
        let pools = &mut self.pools;
        let tell_shares = || {
            let bases = all.clone().map(|at| verdict::basis(books, at));
            let mut told = Told::of(books);
            let sums = shares::sums(books, pools, &mut told);
            ((bases.collect(), told, sums), else_read())
        };
        // What was said before is in the way of what is said now.
        (self.findings, self.told) = <(Vec<_>, Told)>::default();
        let (findings, (shares, read)) = both(all.len(), findings, tell_shares);
        (self.findings, (self.bases, self.told, self.sums)) = (findings, shares);
        self.unsettled.clear();
        self.nearest.clear();
        for at in all.filter(|at| self.bases[*at].is_none()) {
            let waiting = self.unsettled.entry(books.tree_of(at)).or_default();
            waiting.push(at);
        }
        read
    }

    pub fn verdict(&self, register: &Register, work: &WorkId) -> Option<Verdict> {
        let finding = self.findings.get(register.request(work)?)?.as_ref()?;
        Some(finding.told(register))
    }

    pub fn verdicts(&self, register: &Register) -> BTreeMap<WorkId, Verdict> {
        let said = self.findings.iter().enumerate();
        let said = said.filter_map(|(at, finding)| {
            let verdict = finding.as_ref()?.told(register);
            Some((register.requests[at].id.clone(), verdict))
        });
        said.collect()
    }

    pub fn shares(&self, register: &Register) -> Shares {
        self.told.whole(register, &self.sums)
    }
}

/// Of this work what is found otherwise than before.
fn changed_verdicts(
    books: &Books,
    known: &mut [Option<Finding>],
    work: &[usize],
) -> BTreeMap<WorkId, Verdict> {
    let mut changed: Vec<usize> = Vec::with_capacity(work.len());
    for (at, finding) in work.iter().zip(verdict::on(books, work.iter().copied())) {
        let known = &mut known[*at];
        if known.as_ref() != Some(&finding) {
            *known = Some(finding);
            changed.push(*at);
        }
    }
    // Names are sorted sooner than verdicts, and those come as the map wants them.
    let named = by_name(changed.iter().map(|at| (books.id(*at), *at)));
    let mut told = Vec::with_capacity(named.len());
    told.extend(named.into_iter().filter_map(|it| {
        let verdict = known[it.at].as_ref()?.told(books.register);
        Some((it.id.clone(), verdict))
    }));
    told.into_iter().collect()
}

/// Work that waits is told the same as before while it is not stirred, waits for the same, and no
/// node is another or comes nearer to its shape.
struct Same<'k> {
    before: &'k Nearest,
    waits: &'k mut [Option<Reason>],
    now: Nearest,
    explainer: Explainer,
}

impl<'k> Same<'k> {
    fn new(before: &'k Nearest, waits: &'k mut [Option<Reason>]) -> Self {
        Self {
            before,
            waits,
            now: Nearest::default(),
            explainer: Explainer::default(),
        }
    }

    fn is_told(&mut self, books: &Books, at: usize) -> bool {
        let wait = books.wait_of(at);
        let waited = std::mem::replace(&mut self.waits[at], wait);
        // Of other work it depends on more than that.
        let is_plain = books.policy(at) == Some(Policy::FairShare)
            && !books.demand(at).is_picky()
            && books.brake_on(at).is_none();
        // What keeps it out for good is said with its numbers.
        let has_host = books.requests[at].reach > 0 && wait != Some(Reason::NoHostLargeEnough);
        if !is_plain || !has_host || books.register.nodes_moved {
            return false;
        }
        let shape = books.requests[at].shape;
        let nearest = self.now.entry(shape);
        let nearest = *nearest.or_insert_with(|| self.explainer.nearest(books, at));
        wait == waited
            && self.before.get(&shape) == Some(&nearest)
            && !books.requests.is_stirred(at)
    }
}
