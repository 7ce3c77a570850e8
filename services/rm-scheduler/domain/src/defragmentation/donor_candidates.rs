//! Work that could give up processes to needy work. The lists are built once in a round for each
//! priority and pool of needy work. Later they are updated from the rows written since.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::donors::{gave_recently, is_preferred_donor};
use crate::{
    ids::{PoolIx, WorkIx},
    input::snapshot::Policy,
    state::{ClassState, RoundState},
};

/// Lists of candidates, by priority and pool of the class of the needy work.
#[derive(Default)]
pub(super) struct DonorCandidates {
    by_key: BTreeMap<PriorityAndPool, CandidateLists>,
}

/// Priority and pool of the class of needy work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PriorityAndPool {
    priority: i64,
    home: PoolIx,
}

#[derive(Default)]
struct CandidateLists {
    /// Work with at least `fragmentation_threshold` processes.
    preferred: Vec<WorkIx>,
    /// Other work, of lower priority than the needy work.
    last_resort: Vec<WorkIx>,
    /// Position in the log of written work rows up to which the lists are current.
    position: usize,
}

impl PriorityAndPool {
    fn new(class_state: &ClassState) -> Option<Self> {
        Some(Self {
            priority: class_state.class.priority,
            home: class_state.pool?,
        })
    }
}

impl DonorCandidates {
    /// Returns the preferred donors, and donors of lower priority below the threshold. Both lists
    /// are unordered.
    pub fn donors_for(&mut self, state: &RoundState, work: WorkIx) -> (&[WorkIx], &[WorkIx]) {
        let class = state.work[work].class;
        let class = class.map(|class| &state.classes[class]);
        let Some(key) = class.and_then(PriorityAndPool::new) else {
            return (&[], &[]);
        };
        let lists = self.by_key.entry(key);
        let lists = lists.or_insert_with(|| CandidateLists::new(state, key));
        lists.update(state, key);
        (&lists.preferred, &lists.last_resort)
    }
}

impl CandidateLists {
    fn new(state: &RoundState, key: PriorityAndPool) -> Self {
        let mut lists = Self {
            position: state.work.journal_position(),
            ..Self::default()
        };
        let has_lower_priority =
            |class_state: &ClassState| key.priority < class_state.class.priority;
        // Work of equal or higher priority gives only what exceeds the threshold.
        for donor in state.derived.large_holders.donors(state) {
            if class_of(state, donor).is_some_and(|class_state| !has_lower_priority(class_state)) {
                lists.add(state, key, donor);
            }
        }
        let lower_classes = state
            .classes
            .iter()
            .filter(|class_state| has_lower_priority(class_state));
        for donor in lower_classes.flat_map(ClassState::work) {
            lists.add(state, key, donor);
        }
        lists
    }

    /// Removes and adds again the work that was written since the last update.
    fn update(&mut self, state: &RoundState, key: PriorityAndPool) {
        if self.position == state.work.journal_position() {
            return;
        }
        let changed: FxHashSet<WorkIx> = state.work.written_since(self.position).collect();
        self.position = state.work.journal_position();
        for donors in [&mut self.preferred, &mut self.last_resort] {
            donors.retain(|donor| !changed.contains(donor));
        }
        for donor in changed {
            self.add(state, key, donor);
        }
    }

    /// Adds work to the list that it belongs to, if it may donate.
    fn add(
        &mut self,
        state: &RoundState,
        PriorityAndPool { priority, home }: PriorityAndPool,
        donor: WorkIx,
    ) {
        let (forest, class_state) = (state.forest, class_of(state, donor));
        let is_related =
            |pool: PoolIx| forest.is_within(pool, home) || forest.is_within(home, pool);
        let may_donate = |class_state: &&ClassState| {
            let is_fair_share = class_state.class.policy == Policy::FairShare;
            is_fair_share
                && class_state.class.priority >= priority
                && class_state.pool.is_some_and(is_related)
        };
        let Some(class_state) = class_state.filter(may_donate) else {
            return;
        };
        if is_preferred_donor(state, donor) {
            self.preferred.push(donor);
        } else if priority < class_state.class.priority
            && state.work[donor].process_count() > 0
            && !gave_recently(state, donor)
        {
            self.last_resort.push(donor);
        }
    }
}

fn class_of<'b>(state: &'b RoundState, donor: WorkIx) -> Option<&'b ClassState<'b>> {
    let class = state.work[donor].class?;
    Some(&state.classes[class])
}
