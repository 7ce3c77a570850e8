//! Who could give (12.3): asked for the first work of a kind that is mended, and for the next ones
//! only of what has changed since.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::donors::{is_rich, was_hit_lately};
use crate::{
    input::snapshot::Policy,
    state::{ClassState, RoundState},
};

/// By what it depends on who could give: the priority of a class, and its pool.
#[derive(Default)]
pub(super) struct DonorCandidates {
    known: BTreeMap<Kind, Found>,
}

type Kind = (i64, usize);

#[derive(Default)]
struct Found {
    rich: Vec<usize>,
    poor: Vec<usize>,
    /// How much of this round's writing it knows.
    then: usize,
}

impl DonorCandidates {
    /// the rich, and the poor that the request outranks. In no order.
    pub fn of(&mut self, state: &RoundState, work: usize) -> (&[usize], &[usize]) {
        let class = state.work[work].class;
        let class = class.map(|class| &state.classes[class]);
        let Some(kind) =
            class.and_then(|class_state| Some((class_state.class.priority, class_state.pool?)))
        else {
            return (&[], &[]);
        };
        let found = self.known.entry(kind);
        let found = found.or_insert_with(|| Found::of(state, kind));
        found.follow(state, kind);
        (&found.rich, &found.poor)
    }
}

impl Found {
    fn of(state: &RoundState, kind: Kind) -> Self {
        let mut found = Self {
            then: state.work.now(),
            ..Self::default()
        };
        let is_below = |class_state: &ClassState| kind.0 < class_state.class.priority;
        // Peers give only what is beyond the threshold, so few of them matter.
        for donor in state.derived.large_holders.donors(state) {
            if class_of(state, donor).is_some_and(|class_state| !is_below(class_state)) {
                found.enter(state, kind, donor);
            }
        }
        let below = state
            .classes
            .iter()
            .filter(|class_state| is_below(class_state));
        for donor in below.flat_map(ClassState::requests) {
            found.enter(state, kind, donor);
        }
        found
    }

    fn follow(&mut self, state: &RoundState, kind: Kind) {
        if self.then == state.work.now() {
            return;
        }
        let changed: FxHashSet<usize> = state.work.since(self.then).collect();
        self.then = state.work.now();
        for donors in [&mut self.rich, &mut self.poor] {
            donors.retain(|donor| !changed.contains(donor));
        }
        for donor in changed {
            self.enter(state, kind, donor);
        }
    }

    fn enter(&mut self, state: &RoundState, (priority, home): Kind, donor: usize) {
        let (forest, class_state) = (state.forest, class_of(state, donor));
        let is_related = |pool: usize| forest.is_within(pool, home) || forest.is_within(home, pool);
        let gives = |class_state: &&ClassState| {
            let fair = class_state.class.policy == Policy::FairShare;
            fair && class_state.class.priority >= priority
                && class_state.pool.is_some_and(is_related)
        };
        let Some(class_state) = class_state.filter(gives) else {
            return;
        };
        if is_rich(state, donor) {
            self.rich.push(donor);
        } else if priority < class_state.class.priority
            && state.work[donor].has() > 0
            && !was_hit_lately(state, donor)
        {
            self.poor.push(donor);
        }
    }
}

fn class_of<'b>(state: &'b RoundState, donor: usize) -> Option<&'b ClassState<'b>> {
    let class = state.work[donor].class?;
    Some(&state.classes[class])
}
