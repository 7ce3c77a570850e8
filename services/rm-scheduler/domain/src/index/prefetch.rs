//! What news is about to touch, read in one go. It lies anywhere in memory, and what is found
//! through something else is waited for one by one otherwise.

use super::{Register, lookup::OfWork};
use crate::incremental::prefetch::{fetch, fetch_rows};

impl Register {
    /// Has the memory come of what is known of this work, all of which is written where it goes,
    /// and of who stands first and last among its fellows.
    pub(super) fn fetch_work(&self, work: &[OfWork]) {
        let rows = || work.iter().filter_map(|it| Some(&self.requests[it.at?]));
        fetch_rows(rows().map(|asked| asked.user_at ^ asked.shape));
        fetch_rows(rows().map(|asked| usize::from(asked.holding.current > 0)));
        fetch(rows().map(|asked| asked.id.as_str()));
        let fellows = rows().filter_map(|asked| {
            let users = &self.classes[asked.class?].users;
            let work = users.get(asked.user_at)?;
            Some((work.first()?, work.last()?))
        });
        fetch_rows(fellows.map(|(first, last)| {
            let whose = |at: usize| self.requests[at].user_at;
            whose(first) ^ whose(last)
        }));
    }
}
