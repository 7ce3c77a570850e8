//! The work of each user in a class, by time and id.

use hayward_vocabulary::Timestamp;

use super::{DepartedWork, FleetIndex, WorkListEdit};
use crate::{collections::id_list::IdList, ids::WorkIx};

impl FleetIndex {
    pub(super) fn leave_class(&mut self, work: WorkIx) {
        let work_record = &self.work[work];
        let Some(class) = work_record.class else {
            return;
        };
        let user_at = work_record.user;
        self.departed.push(DepartedWork {
            work,
            class,
            user: work_record.user_name.clone(),
            work_id: work_record.id.clone(),
        });
        let users = &mut self.classes[class].users;
        let Some(group) = users.get_mut(user_at) else {
            return;
        };
        let guess = guess(group, |other| self.work[other].submitted_at, work);
        let Some(position) = position_of(group, work, guess) else {
            return;
        };
        group.remove(position);
        if group.is_empty() {
            users.remove(user_at);
        }
        self.work_list_edits.push(WorkListEdit {
            class,
            user: user_at,
            position,
            work,
            joins: false,
        });
    }

    pub(super) fn join_class(&mut self, work: WorkIx) {
        let work_record = &self.work[work];
        let Some(class) = work_record.class else {
            return;
        };
        let user_at = work_record.user;
        let users = &mut self.classes[class].users;
        let position = if let Some(group) = users.get_mut(user_at) {
            let key = |work: WorkIx| (self.work[work].submitted_at, &self.work[work].id);
            // Mostly the new work is the youngest, so the end is tried first.
            let position = if group.last().is_none_or(|last| key(last) < key(work)) {
                group.len()
            } else {
                group.partition_point(|other| key(other) < key(work))
            };
            group.insert(position, work);
            position
        } else {
            let name = work_record.user_name.clone();
            users.insert(name, user_at, IdList::from_iter([work]));
            0
        };
        self.work_list_edits.push(WorkListEdit {
            class,
            user: user_at,
            position,
            work,
            joins: true,
        });
    }
}

/// Estimates the position of work among that of its user by interpolation, because most users
/// submit evenly.
fn guess(
    group: &IdList<WorkIx>,
    submitted_at: impl Fn(WorkIx) -> Timestamp,
    work: WorkIx,
) -> usize {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return 0;
    };
    let since_first = |other: WorkIx| submitted_at(other).ms_since(submitted_at(first));
    let part = u128::from(since_first(work)) * (group.len() as u128 - 1);
    let position = part / u128::from(since_first(last).max(1));
    usize::try_from(position).unwrap_or(0).min(group.len() - 1)
}

/// Returns the position of a number, searched from the guess to both sides.
fn position_of(group: &IdList<WorkIx>, work: WorkIx, guess: usize) -> Option<usize> {
    let is_there = |position: &usize| group.get(*position) == Some(work);
    let farther = |far: usize| {
        let before = guess.checked_sub(far).filter(is_there);
        before.or_else(|| Some(guess + far).filter(is_there))
    };
    (0..group.len()).find_map(farther)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ix;

    #[test]
    fn a_position_is_found_from_any_guess() {
        let group = IdList::from_iter([7, 3, 9, 4, 1].map(WorkIx::new));
        for guess in 0..group.len() {
            for (position, work) in group.iter().enumerate() {
                assert_eq!(position_of(&group, work, guess), Some(position));
            }
            assert_eq!(position_of(&group, WorkIx::new(5), guess), None);
        }
    }

    #[test]
    fn a_guess_lies_between_the_neighbours_in_time() {
        let times = [10, 20, 20, 40, 110];
        let guessed = |at| {
            guess(
                &(0..5).map(WorkIx::new).collect(),
                |other| Timestamp::from_unix_ms(times[other.index()]),
                WorkIx::new(at),
            )
        };
        assert_eq!([0, 1, 3, 4].map(guessed), [0, 0, 1, 4]);
        let only = WorkIx::new(3);
        assert_eq!(
            guess(
                &IdList::from_iter([only]),
                |_| Timestamp::from_unix_ms(5),
                only
            ),
            0
        );
    }
}
