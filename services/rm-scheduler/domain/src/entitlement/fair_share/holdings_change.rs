//! Change of the quanta that users hold, caused by the decisions of this round.

use crate::{
    ids::{ClassIx, TypedVec, UserIx},
    state::RoundState,
};

/// Quanta of each user before and after the round, from all work whose number of processes changed.
pub(crate) struct HoldingsChange {
    by_class_and_user: TypedVec<ClassIx, TypedVec<UserIx, QuantaChange>>,
}

/// Quanta of the changed work of one user in one class.
#[derive(Clone, Copy, Default)]
struct QuantaChange {
    before: u128,
    after: u128,
}

impl HoldingsChange {
    pub fn new(state: &RoundState) -> Self {
        let users = TypedVec::filled(QuantaChange::default(), state.index.user_count());
        let mut by_class_and_user = TypedVec::filled(users, state.classes.len());
        for work in state.work.touched() {
            let work_state = &state.work[work];
            let (before, after) = (work_state.process_count_before, work_state.process_count());
            if let Some(class) = work_state.class.filter(|_| before != after) {
                let change = &mut by_class_and_user[class][state.work_record(work).user];
                change.before += u128::from(before.saturating_mul(work_state.process_quanta));
                change.after += u128::from(after.saturating_mul(work_state.process_quanta));
            }
        }
        Self { by_class_and_user }
    }

    /// Returns the holdings of a user after the round.
    pub fn apply(&self, class: ClassIx, user: UserIx, holdings: u128) -> u128 {
        let change = self.by_class_and_user[class][user];
        holdings + change.after - change.before
    }
}
