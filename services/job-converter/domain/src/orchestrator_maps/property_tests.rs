//! Properties of every history of maps: repeated, delayed and lost maps, several orchestrators, and
//! new lineages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{Entry, allocation_id, job, map, version};
use super::*;

fn entry() -> impl Strategy<Value = Entry> {
    let processes =
        prop::collection::btree_map((0..6_u8).prop_map(allocation_id), any::<bool>(), 0..4);
    (any::<bool>(), prop::bool::weighted(0.8), 0..3_u8, processes).prop_map(
        |(job, schedulable, size, processes)| Entry {
            job,
            schedulable,
            size,
            processes,
        },
    )
}

fn works() -> impl Strategy<Value = BTreeMap<String, Entry>> {
    prop::collection::btree_map("[a-d]", entry(), 1..5)
}

fn histories() -> impl Strategy<Value = Vec<BTreeMap<String, Entry>>> {
    prop::collection::vec(works(), 1..8)
}

fn map_of(lineage: &str, sequence: u64, works: &BTreeMap<String, Entry>) -> Map<Entry> {
    Map {
        works: works.clone(),
        ..map(version(lineage, sequence), &[])
    }
}

fn numbered_map(works: &BTreeMap<String, Entry>, sequence: usize) -> Map<Entry> {
    map_of("lineage", sequence as u64 + 1, works)
}

/// Model that applies only the steps: which work requests processes, and which allocations were
/// returned.
#[derive(Debug, Default, PartialEq)]
struct Mirror {
    requested: BTreeMap<String, Entry>,
    vacated: BTreeSet<(String, AllocationId)>,
}

impl Mirror {
    fn apply(&mut self, outcome: &Outcome, state: &MapState<Entry>) {
        let Outcome::Applied { steps, .. } = outcome else {
            return;
        };
        for step in steps {
            match step {
                Step::Vacated { work, allocation } => {
                    self.vacated.insert((work.clone(), allocation.clone()));
                }
                Step::Completed { work, .. } => {
                    assert!(self.requested.remove(work).is_some() || state.get(work).is_none());
                }
                Step::Arrived { work } => {
                    let entry = state.get(work).unwrap().entry.clone();
                    assert!(self.requested.insert(work.clone(), entry).is_none());
                }
                Step::Updated { work } => {
                    let entry = state.get(work).unwrap().entry.clone();
                    if let Some(requested) = self.requested.get_mut(work) {
                        *requested = entry;
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_repeated_map_changes_nothing(history in histories()) {
        let mut state = MapState::default();
        for (index, works) in history.iter().enumerate() {
            state.accept(numbered_map(works, index));
            let before = state.clone();
            let repeated = state.accept(numbered_map(works, index));
            let is_unchanged = matches!(repeated, Outcome::Applied { ref steps, repeated: true, .. }
                if steps.is_empty());
            prop_assert!(is_unchanged, "{repeated:?}");
            prop_assert_eq!(&state, &before);
        }
    }

    /// Maps may arrive repeatedly and in any order. Only a map that is newer than all maps before
    /// it is applied. After the newest map, exactly the work of this map is known.
    #[test]
    fn delayed_and_repeated_maps_end_as_the_newest(
        history in histories(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let mut arrivals: Vec<usize> = order.iter().map(|it| it.index(history.len())).collect();
        arrivals.push(history.len() - 1);
        arrivals.extend(order.iter().map(|it| it.index(history.len())));
        let (mut state, mut mirror) = (MapState::default(), Mirror::default());
        let (mut in_order, mut newest) = (MapState::default(), None);
        for index in arrivals {
            let outcome = state.accept(numbered_map(&history[index], index));
            mirror.apply(&outcome, &state);
            if newest.is_none_or(|newest| index > newest) {
                in_order.accept(numbered_map(&history[index], index));
                newest = Some(index);
            }
        }
        prop_assert_eq!(&state, &in_order);
        let last = history.last().unwrap();
        let known: BTreeMap<_, _> =
            state.works().iter().map(|(id, it)| (id.clone(), it.entry.clone())).collect();
        prop_assert_eq!(&known, last);
        // The steps alone give the same work, and no work requests more than its map does.
        let requested: Vec<_> =
            state.works().iter().filter(|(_, work)| work.end_reason.is_none()).collect();
        prop_assert_eq!(mirror.requested.len(), requested.len());
        for (id, known) in requested {
            prop_assert_eq!(mirror.requested.get(id), Some(&known.entry));
            prop_assert!(known.entry.schedulable);
        }
        for (id, entry) in last {
            for (allocation, is_complete) in &entry.processes {
                let is_returned = mirror.vacated.contains(&(id.clone(), allocation.clone()));
                prop_assert!(!is_complete || is_returned, "{allocation} of {id} is complete");
            }
        }
    }

    /// Several orchestrators use the same ids at the same time.
    #[test]
    fn the_maps_of_one_orchestrator_never_change_the_work_of_another(
        first_history in histories(),
        second_history in histories(),
        choices in prop::collection::vec(any::<bool>(), 16),
    ) {
        let mut states: BTreeMap<&str, MapState<Entry>> = BTreeMap::new();
        let mut next = BTreeMap::from([("one", 0), ("two", 0)]);
        for is_first in choices {
            let (name, history, other) = if is_first {
                ("one", &first_history, "two")
            } else {
                ("two", &second_history, "one")
            };
            let index = next[name];
            let Some(works) = history.get(index) else { continue };
            next.insert(name, index + 1);
            let before = states.get(other).cloned();
            states.entry(name).or_default().accept(numbered_map(works, index));
            prop_assert_eq!(states.get(other).cloned(), before);
        }
        for (name, history) in [("one", &first_history), ("two", &second_history)] {
            let mut alone = MapState::default();
            for (index, works) in history.iter().take(next[name]).enumerate() {
                alone.accept(numbered_map(works, index));
            }
            prop_assert_eq!(states.get(name).cloned().unwrap_or_default(), alone);
        }
    }

    /// However often an orchestrator loses its memory, maps of its older lineages change nothing.
    #[test]
    fn maps_of_older_lineages_change_nothing(
        lineages in prop::collection::vec(works(), 1..6),
        late in prop::collection::vec((any::<prop::sample::Index>(), 1..4_u64), 0..12),
    ) {
        let mut state = MapState::default();
        for (number, works) in lineages.iter().enumerate() {
            let name = format!("lineage {number}");
            state.accept(Map { works: works.clone(), ..map(version(&name, 1), &[]) });
            for (lineage, sequence) in &late {
                let lineage = lineage.index(lineages.len());
                if lineage < number {
                    let before = state.clone();
                    let old_version = version(&format!("lineage {lineage}"), *sequence);
                    let old = map(old_version, &[("a", job())]);
                    let ignored = state.accept(old);
                    prop_assert_eq!(ignored, Outcome::Ignored(IgnoredReason::Superseded));
                    prop_assert_eq!(&state, &before);
                }
            }
        }
    }

    /// The first maps of a new lineage may be empty or lost. The first map that is not empty and
    /// arrives takes over.
    #[test]
    fn the_next_map_of_a_new_lineage_takes_over(
        before in works(),
        maps in prop::collection::vec((works(), any::<bool>(), any::<bool>()), 0..6),
        last in works(),
    ) {
        let mut state = MapState::default();
        state.accept(map_of("old", 40, &before));
        for (index, (works, empty, lost)) in maps.iter().enumerate() {
            let sequence = index as u64 + 1;
            if *empty {
                state.accept(map(version("new", sequence), &[]));
            } else if !lost {
                state.accept(map_of("new", sequence, works));
            }
        }
        let new = map_of("new", maps.len() as u64 + 1, &last);
        let applied = matches!(state.accept(new), Outcome::Applied { repeated: false, .. });
        prop_assert!(applied);
        let known: BTreeMap<_, _> =
            state.works().iter().map(|(id, it)| (id.clone(), it.entry.clone())).collect();
        prop_assert_eq!(&known, &last);
    }
}
