//! Work that could give up processes. It is found once per kind of needy work in a round, and then
//! updated from the rows written since.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::donors::{gave_recently, is_rich};
use crate::{
    ids::{PoolIx, WorkIx},
    input::snapshot::Policy,
    state::{ClassState, RoundState},
};

/// Candidates by kind of the needy work: priority and pool of its class.
#[derive(Default)]
pub(super) struct DonorCandidates {
    known: BTreeMap<Kind, Found>,
}

/// Priority and pool of the class of needy work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    priority: i64,
    home: PoolIx,
}

#[derive(Default)]
struct Found {
    rich: Vec<WorkIx>,
    poor: Vec<WorkIx>,
    /// Position in the log of written work rows up to which the lists are current.
    then: usize,
}

impl Kind {
    fn new(class_state: &ClassState) -> Option<Self> {
        Some(Self {
            priority: class_state.class.priority,
            home: class_state.pool?,
        })
    }
}

impl DonorCandidates {
    /// Returns rich work, and poor work of lower priority, both unordered.
    pub fn of(&mut self, state: &RoundState, work: WorkIx) -> (&[WorkIx], &[WorkIx]) {
        let class = state.work[work].class;
        let class = class.map(|class| &state.classes[class]);
        let Some(kind) = class.and_then(Kind::new) else {
            return (&[], &[]);
        };
        let found = self.known.entry(kind);
        let found = found.or_insert_with(|| Found::new(state, kind));
        found.update(state, kind);
        (&found.rich, &found.poor)
    }
}

impl Found {
    fn new(state: &RoundState, kind: Kind) -> Self {
        let mut found = Self {
            then: state.work.journal_position(),
            ..Self::default()
        };
        let is_below = |class_state: &ClassState| kind.priority < class_state.class.priority;
        // Work of equal or higher priority gives only what exceeds the threshold.
        for donor in state.derived.large_holders.donors(state) {
            if class_of(state, donor).is_some_and(|class_state| !is_below(class_state)) {
                found.enter(state, kind, donor);
            }
        }
        let below = state
            .classes
            .iter()
            .filter(|class_state| is_below(class_state));
        for donor in below.flat_map(ClassState::work) {
            found.enter(state, kind, donor);
        }
        found
    }

    fn update(&mut self, state: &RoundState, kind: Kind) {
        if self.then == state.work.journal_position() {
            return;
        }
        let changed: FxHashSet<WorkIx> = state.work.written_since(self.then).collect();
        self.then = state.work.journal_position();
        for donors in [&mut self.rich, &mut self.poor] {
            donors.retain(|donor| !changed.contains(donor));
        }
        for donor in changed {
            self.enter(state, kind, donor);
        }
    }

    fn enter(&mut self, state: &RoundState, Kind { priority, home }: Kind, donor: WorkIx) {
        let (forest, class_state) = (state.forest, class_of(state, donor));
        let is_related =
            |pool: PoolIx| forest.is_within(pool, home) || forest.is_within(home, pool);
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
            && state.work[donor].process_count() > 0
            && !gave_recently(state, donor)
        {
            self.poor.push(donor);
        }
    }
}

fn class_of<'b>(state: &'b RoundState, donor: WorkIx) -> Option<&'b ClassState<'b>> {
    let class = state.work[donor].class?;
    Some(&state.classes[class])
}
