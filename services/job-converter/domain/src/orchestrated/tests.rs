//! One test per rule of the work map.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub job: bool,
    pub wants: bool,
    pub size: u8,
    pub processes: BTreeMap<AllocationId, bool>,
}

impl Piece for Entry {
    fn schedulable(&self) -> bool {
        self.wants
    }
    fn is_job(&self) -> bool {
        self.job
    }
    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)> {
        self.processes.iter().map(|(share, over)| (share, *over))
    }
}

pub(super) fn share(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

pub(super) fn job() -> Entry {
    Entry {
        job: true,
        wants: true,
        size: 1,
        processes: BTreeMap::new(),
    }
}

impl Entry {
    fn with(mut self, number: u8, over: bool) -> Self {
        self.processes.insert(share(number), over);
        self
    }
    fn ended(mut self) -> Self {
        self.wants = false;
        self
    }
    fn service(mut self) -> Self {
        self.job = false;
        self
    }
}

pub(super) fn mark(lineage: &str, sequence: u64) -> Mark {
    Mark {
        lineage: lineage.to_owned(),
        sequence,
    }
}

pub(super) fn map(mark: Mark, works: &[(&str, Entry)]) -> Map<Entry> {
    let works = works.iter();
    let works = works.map(|(id, entry)| ((*id).to_owned(), entry.clone()));
    Map {
        mark,
        works: works.collect(),
        bad: BTreeSet::new(),
        leaving: BTreeSet::new(),
    }
}

fn steps(outcome: Outcome) -> Vec<Step> {
    match outcome {
        Outcome::Applied { steps, .. } => steps,
        Outcome::Ignored(why) => panic!("ignored: {why:?}"),
    }
}

fn ignored(outcome: &Outcome) -> &Ignored {
    match outcome {
        Outcome::Ignored(why) => why,
        applied @ Outcome::Applied { .. } => panic!("{applied:?}"),
    }
}

fn arrived(work: &str) -> Step {
    let work = work.to_owned();
    Step::Arrived { work }
}

fn refreshed(work: &str) -> Step {
    let work = work.to_owned();
    Step::Refreshed { work }
}

fn completed(work: &str, gone: bool) -> Step {
    let work = work.to_owned();
    Step::Completed { work, gone }
}

fn vacated(work: &str, number: u8) -> Step {
    Step::Vacated {
        work: work.to_owned(),
        share: share(number),
    }
}

#[test]
fn r7_1_empty_and_old_maps_are_ignored() {
    let mut book = Book::default();
    assert_eq!(
        ignored(&book.accept(map(mark("a", 1), &[]))),
        &Ignored::Empty
    );
    steps(book.accept(map(mark("a", 7), &[("x", job())])));
    let before = book.clone();
    let old = book.accept(map(mark("a", 6), &[("y", job())]));
    assert_eq!(ignored(&old), &Ignored::Stale { accepted: 7 });
    assert_eq!(
        ignored(&book.accept(map(mark("a", 8), &[]))),
        &Ignored::Empty
    );
    let other = book.accept(map(mark("a", 7), &[("y", job())]));
    assert_eq!(ignored(&other), &Ignored::SequenceUsed);
    assert_eq!(book, before);
}

#[test]
fn r7_2_new_gone_changed_and_no_longer_schedulable() {
    let mut book = Book::default();
    let first = [("new", job()), ("over", job().ended())];
    assert_eq!(
        steps(book.accept(map(mark("a", 1), &first))),
        [arrived("new")]
    );
    let larger = Entry { size: 2, ..job() };
    let second = [("new", larger.clone()), ("next", job())];
    let found = steps(book.accept(map(mark("a", 2), &second)));
    assert_eq!(
        found,
        [completed("over", true), refreshed("new"), arrived("next")]
    );
    let third = [("new", larger.ended()), ("next", job())];
    let found = steps(book.accept(map(mark("a", 3), &third)));
    assert_eq!(found, [completed("new", false)]);
    let fourth = [("new", job()), ("next", job())];
    let found = steps(book.accept(map(mark("a", 4), &fourth)));
    assert_eq!(found, [arrived("new")], "asked for anew");
}

#[test]
fn r7_6_processes_that_complete_or_vanish_vacate_their_shares() {
    let mut book = Book::default();
    let entry = job().with(1, false).with(2, false).with(3, false);
    steps(book.accept(map(mark("a", 1), &[("x", entry)])));
    let entry = job().with(1, true).with(3, false);
    let found = steps(book.accept(map(mark("a", 2), &[("x", entry.clone())])));
    assert_eq!(found, [vacated("x", 1), vacated("x", 2), refreshed("x")]);
    // Reported once.
    let entry = Entry { size: 9, ..entry };
    let found = steps(book.accept(map(mark("a", 3), &[("x", entry)])));
    assert_eq!(found, [refreshed("x")]);
}

#[test]
fn r7_6_what_is_no_job_ends_with_its_process() {
    let mut book = Book::default();
    let runs = job().service().with(1, false);
    steps(book.accept(map(mark("a", 1), &[("s", runs.clone())])));
    let over = job().service().with(1, true);
    let found = steps(book.accept(map(mark("a", 2), &[("s", over)])));
    assert_eq!(found, [vacated("s", 1), completed("s", false)]);
    let again = steps(book.accept(map(mark("a", 3), &[("s", runs)])));
    assert_eq!(again, [refreshed("s")], "it does not begin again");
    assert_eq!(book.get("s").unwrap().over, Some(Over::ProcessEnded));
}

#[test]
fn r13_3_a_process_that_ended_as_it_was_told_to_does_not_end_its_work() {
    for confirmed in [job().service().with(1, true), job().service()] {
        let mut book = Book::default();
        let runs = job().service().with(1, false);
        steps(book.accept(map(mark("a", 1), &[("s", runs)])));
        let leaving = BTreeSet::from([share(1)]);
        let told = Map {
            leaving,
            ..map(mark("a", 2), &[("s", confirmed)])
        };
        assert_eq!(steps(book.accept(told)), [vacated("s", 1), refreshed("s")]);
        // Its successor has a process of its own, whose end is the end of the work.
        let next = job().service().with(2, false);
        steps(book.accept(map(mark("a", 3), &[("s", next.clone())])));
        assert_eq!(book.get("s").unwrap().over, None);
        let over = job().service().with(2, true);
        let found = steps(book.accept(map(mark("a", 4), &[("s", over)])));
        assert_eq!(found, [vacated("s", 2), completed("s", false)]);
    }
}

#[test]
fn a_bad_entry_leaves_what_was_there_and_harms_no_neighbour() {
    let mut book = Book::default();
    steps(book.accept(map(mark("a", 1), &[("x", job()), ("y", job())])));
    let mut second = map(mark("a", 2), &[("z", job())]);
    second.bad.insert("x".to_owned());
    let found = steps(book.accept(second));
    assert_eq!(found, [completed("y", true), arrived("z")]);
    assert!(book.get("x").is_some());
}

#[test]
fn a_new_lineage_takes_over_and_the_old_one_is_fenced_off() {
    let mut book = Book::default();
    let held = job().with(1, false).with(2, false);
    steps(book.accept(map(mark("a", 40), &[("x", held), ("y", job())])));
    // Processes named as ended have ended; processes it does not name were not observed yet.
    let takes_over = book.accept(map(mark("b", 2), &[("x", job().with(1, true))]));
    assert!(matches!(
        takes_over,
        Outcome::Applied { takeover: true, .. }
    ));
    let found = steps(takes_over);
    assert_eq!(
        found,
        [vacated("x", 1), completed("y", true), refreshed("x")]
    );

    for sequence in [1, 40, 41] {
        let old = book.accept(map(mark("a", sequence), &[("x", job())]));
        assert_eq!(ignored(&old), &Ignored::Superseded);
    }
}

#[test]
fn what_the_scheduler_refused_is_tried_again_when_it_is_different() {
    let mut book = Book::default();
    steps(book.accept(map(mark("a", 1), &[("x", job())])));
    book.refuse("x");
    assert_eq!(steps(book.accept(map(mark("a", 2), &[("x", job())]))), []);
    let other = Entry { size: 3, ..job() };
    let found = steps(book.accept(map(mark("a", 3), &[("x", other)])));
    assert_eq!(found, [arrived("x")]);
}
