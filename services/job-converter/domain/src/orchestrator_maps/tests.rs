//! Which steps follow from one work map after another. `map` creates a map from its version, which
//! is lineage and sequence, and its entries.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub job: bool,
    /// Whether the entry requests processes.
    pub schedulable: bool,
    pub size: u8,
    /// Whether each process is complete, by allocation.
    pub processes: BTreeMap<AllocationId, bool>,
}

impl MapEntry for Entry {
    fn is_schedulable(&self) -> bool {
        self.schedulable
    }
    fn is_job(&self) -> bool {
        self.job
    }
    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)> {
        self.processes
            .iter()
            .map(|(allocation, is_complete)| (allocation, *is_complete))
    }
}

pub(super) fn allocation_id(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

pub(super) fn job() -> Entry {
    Entry {
        job: true,
        schedulable: true,
        size: 1,
        processes: BTreeMap::new(),
    }
}

impl Entry {
    fn with_process(mut self, number: u8, is_complete: bool) -> Self {
        self.processes.insert(allocation_id(number), is_complete);
        self
    }
    fn not_schedulable(mut self) -> Self {
        self.schedulable = false;
        self
    }
    fn not_a_job(mut self) -> Self {
        self.job = false;
        self
    }
}

pub(super) fn version(lineage: &str, sequence: u64) -> MapVersion {
    MapVersion {
        lineage: lineage.to_owned(),
        sequence,
    }
}

pub(super) fn map(version: MapVersion, works: &[(&str, Entry)]) -> Map<Entry> {
    let works = works.iter();
    let works = works.map(|(id, entry)| ((*id).to_owned(), entry.clone()));
    Map {
        version,
        works: works.collect(),
        refused_ids: BTreeSet::new(),
        leaving: BTreeSet::new(),
    }
}

fn applied_steps(outcome: Outcome) -> Vec<Step> {
    match outcome {
        Outcome::Applied { steps, .. } => steps,
        Outcome::Ignored(reason) => panic!("ignored: {reason:?}"),
    }
}

fn ignored_reason(outcome: &Outcome) -> &IgnoredReason {
    match outcome {
        Outcome::Ignored(reason) => reason,
        applied @ Outcome::Applied { .. } => panic!("{applied:?}"),
    }
}

fn arrived(work: &str) -> Step {
    let work = work.to_owned();
    Step::Arrived { work }
}

fn updated(work: &str) -> Step {
    let work = work.to_owned();
    Step::Updated { work }
}

fn completed(work: &str, gone: bool) -> Step {
    let work = work.to_owned();
    Step::Completed { work, gone }
}

fn vacated(work: &str, number: u8) -> Step {
    Step::Vacated {
        work: work.to_owned(),
        allocation: allocation_id(number),
    }
}

/// A map that is empty, or not newer than the last one, changes nothing.
#[test]
fn empty_and_stale_maps_are_ignored() {
    let mut state = MapState::default();
    assert_eq!(
        ignored_reason(&state.accept(map(version("a", 1), &[]))),
        &IgnoredReason::Empty
    );
    applied_steps(state.accept(map(version("a", 7), &[("x", job())])));
    let before = state.clone();
    let old = state.accept(map(version("a", 6), &[("y", job())]));
    assert_eq!(ignored_reason(&old), &IgnoredReason::Stale { accepted: 7 });
    assert_eq!(
        ignored_reason(&state.accept(map(version("a", 8), &[]))),
        &IgnoredReason::Empty
    );
    let other = state.accept(map(version("a", 7), &[("y", job())]));
    assert_eq!(ignored_reason(&other), &IgnoredReason::SequenceUsed);
    assert_eq!(state, before);
}

/// A map names all work: what it no longer names has ended.
#[test]
fn a_map_adds_removes_changes_and_completes_work() {
    let mut state = MapState::default();
    let first = [("new", job()), ("over", job().not_schedulable())];
    assert_eq!(
        applied_steps(state.accept(map(version("a", 1), &first))),
        [arrived("new")]
    );
    let larger = Entry { size: 2, ..job() };
    let second = [("new", larger.clone()), ("next", job())];
    let result = applied_steps(state.accept(map(version("a", 2), &second)));
    assert_eq!(
        result,
        [completed("over", true), updated("new"), arrived("next")]
    );
    let third = [("new", larger.not_schedulable()), ("next", job())];
    let result = applied_steps(state.accept(map(version("a", 3), &third)));
    assert_eq!(result, [completed("new", false)]);
    let fourth = [("new", job()), ("next", job())];
    let result = applied_steps(state.accept(map(version("a", 4), &fourth)));
    assert_eq!(result, [arrived("new")], "requested again");
}

/// A process that is complete, or no longer named, returns its allocation.
#[test]
fn processes_that_complete_or_vanish_vacate_their_allocations() {
    let mut state = MapState::default();
    let entry = job()
        .with_process(1, false)
        .with_process(2, false)
        .with_process(3, false);
    applied_steps(state.accept(map(version("a", 1), &[("x", entry)])));
    let entry = job().with_process(1, true).with_process(3, false);
    let result = applied_steps(state.accept(map(version("a", 2), &[("x", entry.clone())])));
    assert_eq!(result, [vacated("x", 1), vacated("x", 2), updated("x")]);
    // The step is reported only once.
    let entry = Entry { size: 9, ..entry };
    let result = applied_steps(state.accept(map(version("a", 3), &[("x", entry)])));
    assert_eq!(result, [updated("x")]);
}

/// Only a job continues without one of its processes.
#[test]
fn work_other_than_a_job_ends_with_its_process() {
    let mut state = MapState::default();
    let runs = job().not_a_job().with_process(1, false);
    applied_steps(state.accept(map(version("a", 1), &[("s", runs.clone())])));
    let ended = job().not_a_job().with_process(1, true);
    let result = applied_steps(state.accept(map(version("a", 2), &[("s", ended)])));
    assert_eq!(result, [vacated("s", 1), completed("s", false)]);
    let repeated = applied_steps(state.accept(map(version("a", 3), &[("s", runs)])));
    assert_eq!(
        repeated,
        [updated("s")],
        "work that has ended does not start again"
    );
    assert_eq!(
        state.get("s").unwrap().end_reason,
        Some(EndReason::ProcessEnded)
    );
}

/// A vacated process returns its allocation, and its work is served again.
#[test]
fn a_process_that_ended_on_request_does_not_end_its_work() {
    for confirmed in [job().not_a_job().with_process(1, true), job().not_a_job()] {
        let mut state = MapState::default();
        let runs = job().not_a_job().with_process(1, false);
        applied_steps(state.accept(map(version("a", 1), &[("s", runs)])));
        let leaving = BTreeSet::from([allocation_id(1)]);
        let result = Map {
            leaving,
            ..map(version("a", 2), &[("s", confirmed)])
        };
        assert_eq!(
            applied_steps(state.accept(result)),
            [vacated("s", 1), updated("s")]
        );
        // The next process is not vacated, so its end is the end of the work.
        let next = job().not_a_job().with_process(2, false);
        applied_steps(state.accept(map(version("a", 3), &[("s", next.clone())])));
        assert_eq!(state.get("s").unwrap().end_reason, None);
        let ended = job().not_a_job().with_process(2, true);
        let result = applied_steps(state.accept(map(version("a", 4), &[("s", ended)])));
        assert_eq!(result, [vacated("s", 2), completed("s", false)]);
    }
}

#[test]
fn a_refused_entry_stays_as_it_was_and_affects_no_other() {
    let mut state = MapState::default();
    applied_steps(state.accept(map(version("a", 1), &[("x", job()), ("y", job())])));
    let mut second = map(version("a", 2), &[("z", job())]);
    second.refused_ids.insert("x".to_owned());
    let result = applied_steps(state.accept(second));
    assert_eq!(result, [completed("y", true), arrived("z")]);
    assert!(state.get("x").is_some());
}

#[test]
fn a_new_lineage_takes_over_and_maps_of_the_old_one_are_ignored() {
    let mut state = MapState::default();
    let held = job().with_process(1, false).with_process(2, false);
    applied_steps(state.accept(map(version("a", 40), &[("x", held), ("y", job())])));
    // Process 1 has ended, because the map says so. Process 2 continues: the map does not name it,
    // because the new lineage has not observed it yet.
    let takes_over = state.accept(map(version("b", 2), &[("x", job().with_process(1, true))]));
    assert!(matches!(
        takes_over,
        Outcome::Applied { takeover: true, .. }
    ));
    let result = applied_steps(takes_over);
    assert_eq!(
        result,
        [vacated("x", 1), completed("y", true), updated("x")]
    );

    for sequence in [1, 40, 41] {
        let old = state.accept(map(version("a", sequence), &[("x", job())]));
        assert_eq!(ignored_reason(&old), &IgnoredReason::Superseded);
    }
}

#[test]
fn refused_work_is_tried_again_when_its_entry_changes() {
    let mut state = MapState::default();
    applied_steps(state.accept(map(version("a", 1), &[("x", job())])));
    state.refuse("x");
    assert_eq!(
        applied_steps(state.accept(map(version("a", 2), &[("x", job())]))),
        []
    );
    let other = Entry { size: 3, ..job() };
    let result = applied_steps(state.accept(map(version("a", 3), &[("x", other)])));
    assert_eq!(result, [arrived("x")]);
}
