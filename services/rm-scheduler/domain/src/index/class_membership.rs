//! Adds work to its class and removes it. In a class, each user has a list of work, sorted by
//! submission time, then by id.

use hayward_vocabulary::Timestamp;

use super::{DepartedWork, FleetIndex, WorkListEdit};
use crate::{collections::id_list::IdList, ids::WorkIx};

impl FleetIndex {
    /// Removes the work from the list of its user in its class.
    pub(super) fn leave_class(&mut self, work: WorkIx) {
        let work_record = &self.work[work];
        let Some(class) = work_record.class else {
            return;
        };
        let user = work_record.user;
        self.departed.push(DepartedWork {
            work,
            class,
            user: work_record.user_name.clone(),
            work_id: work_record.id.clone(),
        });
        let users = &mut self.classes[class].users;
        let Some(user_work) = users.get_mut(user) else {
            return;
        };
        let guess = estimate_position(user_work, |other| self.work[other].submitted_at, work);
        let Some(position) = find_position(user_work, work, guess) else {
            return;
        };
        user_work.remove(position);
        if user_work.is_empty() {
            users.remove(user);
        }
        self.work_list_edits.push(WorkListEdit {
            class,
            user,
            position,
            work,
            is_insertion: false,
        });
    }

    /// Inserts the work into the list of its user in its class.
    pub(super) fn join_class(&mut self, work: WorkIx) {
        let work_record = &self.work[work];
        let Some(class) = work_record.class else {
            return;
        };
        let user = work_record.user;
        let users = &mut self.classes[class].users;
        let position = if let Some(user_work) = users.get_mut(user) {
            let key = |work: WorkIx| (self.work[work].submitted_at, &self.work[work].id);
            // Mostly the new work is the youngest, so the end is tried first.
            let position = if user_work.last().is_none_or(|last| key(last) < key(work)) {
                user_work.len()
            } else {
                user_work.partition_point(|other| key(other) < key(work))
            };
            user_work.insert(position, work);
            position
        } else {
            let name = work_record.user_name.clone();
            users.insert(name, user, IdList::from_iter([work]));
            0
        };
        self.work_list_edits.push(WorkListEdit {
            class,
            user,
            position,
            work,
            is_insertion: true,
        });
    }
}

/// Estimates the position of work among that of its user by interpolation, because most users
/// submit evenly.
fn estimate_position(
    user_work: &IdList<WorkIx>,
    submitted_at: impl Fn(WorkIx) -> Timestamp,
    work: WorkIx,
) -> usize {
    let (Some(first), Some(last)) = (user_work.first(), user_work.last()) else {
        return 0;
    };
    let since_first = |other: WorkIx| submitted_at(other).ms_since(submitted_at(first));
    let part = u128::from(since_first(work)) * (user_work.len() as u128 - 1);
    let position = part / u128::from(since_first(last).max(1));
    usize::try_from(position)
        .unwrap_or(0)
        .min(user_work.len() - 1)
}

/// Returns the position of the work. The search begins at the guess and goes on in both directions.
fn find_position(user_work: &IdList<WorkIx>, work: WorkIx, guess: usize) -> Option<usize> {
    let is_match = |position: &usize| user_work.get(*position) == Some(work);
    let match_at = |distance: usize| {
        let before = guess.checked_sub(distance).filter(is_match);
        before.or_else(|| Some(guess + distance).filter(is_match))
    };
    (0..user_work.len()).find_map(match_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ix;

    #[test]
    fn a_position_is_found_from_any_guess() {
        let user_work = IdList::from_iter([7, 3, 9, 4, 1].map(WorkIx::new));
        for guess in 0..user_work.len() {
            for (position, work) in user_work.iter().enumerate() {
                assert_eq!(find_position(&user_work, work, guess), Some(position));
            }
            assert_eq!(find_position(&user_work, WorkIx::new(5), guess), None);
        }
    }

    #[test]
    fn an_estimated_position_lies_between_the_neighbours_in_time() {
        let times = [10, 20, 20, 40, 110];
        let estimated = |row| {
            estimate_position(
                &(0..5).map(WorkIx::new).collect(),
                |other| Timestamp::from_unix_ms(times[other.index()]),
                WorkIx::new(row),
            )
        };
        assert_eq!([0, 1, 3, 4].map(estimated), [0, 0, 1, 4]);
        let only = WorkIx::new(3);
        assert_eq!(
            estimate_position(
                &IdList::from_iter([only]),
                |_| Timestamp::from_unix_ms(5),
                only
            ),
            0
        );
    }
}
