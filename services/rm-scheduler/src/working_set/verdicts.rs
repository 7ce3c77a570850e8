//! Published verdicts, and changed verdicts that wait to be published.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::VerdictEntry;
use hayward_rm_scheduler_domain::{Verdict, Verdicts};
use hayward_vocabulary::WorkId;

pub(crate) struct PublishedVerdicts {
    published: BTreeMap<WorkId, VerdictEntry>,
    /// Verdicts that are compared with the published ones and published in this round or a later
    /// one.
    to_publish: Verdicts,
}

impl PublishedVerdicts {
    pub fn new(published: BTreeMap<WorkId, VerdictEntry>) -> Self {
        Self {
            published,
            to_publish: Verdicts::new(),
        }
    }

    pub fn get(&self, work: &WorkId) -> Option<&VerdictEntry> {
        self.published.get(work)
    }

    pub fn get_mut(&mut self, work: &WorkId) -> Option<&mut VerdictEntry> {
        self.published.get_mut(work)
    }

    pub fn works(&self) -> impl Iterator<Item = &WorkId> {
        self.published.keys()
    }

    pub fn insert(&mut self, work: WorkId, entry: VerdictEntry) {
        self.published.insert(work, entry);
    }

    /// Removes the verdict of a work. Returns true if it was published.
    pub fn remove(&mut self, work: &WorkId) -> bool {
        self.to_publish.remove(work);
        self.published.remove(work).is_some()
    }

    pub fn publish_later(&mut self, work: WorkId, verdict: Box<Verdict>) {
        self.to_publish.insert(work, verdict);
    }

    pub fn publish_all_later(
        &mut self,
        verdicts: impl IntoIterator<Item = (WorkId, Box<Verdict>)>,
    ) {
        self.to_publish.extend(verdicts);
    }

    /// Drops a verdict that waits to be published.
    pub fn cancel(&mut self, work: &WorkId) {
        self.to_publish.remove(work);
    }

    /// Takes the next verdict that waits to be published.
    pub fn next_to_publish(&mut self) -> Option<(WorkId, Box<Verdict>)> {
        self.to_publish.pop_first()
    }
}
