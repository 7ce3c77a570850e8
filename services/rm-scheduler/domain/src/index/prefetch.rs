//! Prefetches the rows that a delta touches.

use super::{FleetIndex, lookup::OfWork};
use crate::{
    ids::WorkIx,
    incremental::prefetch::{fetch, fetch_rows},
};

impl FleetIndex {
    /// Prefetches the rows of this work, and the first and last work of its user.
    pub(super) fn fetch_work(&self, work: &[OfWork]) {
        let rows = || work.iter().filter_map(|it| Some(&self.work[it.row?]));
        fetch_rows(rows().map(|work_record| work_record.user ^ work_record.shape));
        fetch_rows(rows().map(|work_record| usize::from(work_record.usage.current > 0)));
        fetch(rows().map(|work_record| work_record.id.as_str()));
        let fellows = rows().filter_map(|work_record| {
            let users = &self.classes[work_record.class?].users;
            let work = users.get(work_record.user)?;
            Some((work.first()?, work.last()?))
        });
        fetch_rows(fellows.map(|(first, last)| {
            let owner = |work: WorkIx| self.work[work].user;
            owner(first) ^ owner(last)
        }));
    }
}
