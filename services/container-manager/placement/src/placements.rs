//! The set of all stored placements, open and final.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

use crate::events::PlacementEvent;
use crate::placement::Placement;

#[derive(Debug, Default, Clone)]
pub struct Placements {
    pub(crate) by_uuid: BTreeMap<String, Placement>,
    /// Ids of placements without a final status.
    open: BTreeSet<String>,
    /// Sequence number of the next submitted placement.
    next_seq: u64,
    /// Ids of placements that changed since the last [`Self::take_changed`].
    changed: BTreeSet<String>,
    /// Ids of forced restarts whose processes may not have ended yet.
    pub(crate) forced_stops: BTreeSet<String>,
    /// Events since the last [`Self::take_events`].
    pub(crate) events: Vec<PlacementEvent>,
}

impl Placements {
    pub fn from_rows(placements: impl IntoIterator<Item = Placement>) -> Self {
        let mut result = Self::default();
        for placement in placements {
            result.next_seq = result.next_seq.max(placement.seq + 1);
            result.insert(placement);
        }
        result.changed.clear();
        result
    }

    pub fn get(&self, uuid: &str) -> Option<&Placement> {
        self.by_uuid.get(uuid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Placement> {
        self.by_uuid.values()
    }

    /// Returns the placements without a final status.
    pub fn open(&self) -> impl Iterator<Item = &Placement> {
        self.open.iter().filter_map(|uuid| self.by_uuid.get(uuid))
    }

    /// Returns the placements that were accepted and have no final status.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Placement> {
        self.open().filter(|it| it.status_code.is_active())
    }

    /// Returns the placements that changed since the last call, in order of uuid.
    pub fn take_changed(&mut self) -> Vec<Placement> {
        let changed = std::mem::take(&mut self.changed);
        let placements = changed.iter().filter_map(|uuid| self.by_uuid.get(uuid));
        placements.cloned().collect()
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<PlacementEvent> {
        std::mem::take(&mut self.events)
    }

    pub fn remove(&mut self, uuid: &str) {
        self.by_uuid.remove(uuid);
        self.open.remove(uuid);
        self.changed.remove(uuid);
        self.forced_stops.remove(uuid);
    }

    /// Inserts or replaces a placement.
    pub(crate) fn insert(&mut self, mut placement: Placement) {
        let uuid = placement.uuid.clone();
        if let Some(before) = self.by_uuid.get(&uuid) {
            placement.generation = before.generation + 1;
        }
        if placement.is_forced_stop() {
            self.forced_stops.insert(uuid.clone());
        }
        if placement.status_code.is_final() {
            self.open.remove(&uuid);
        } else {
            self.open.insert(uuid.clone());
        }
        self.changed.insert(uuid.clone());
        self.by_uuid.insert(uuid, placement);
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// Returns the ids of open placements in order of client timestamp, then of arrival.
    pub(crate) fn open_uuids_in_order(&self) -> Vec<String> {
        let mut open: Vec<&Placement> = self.open().collect();
        open.sort_by_key(|it| (it.timestamp, it.seq));
        open.into_iter().map(|it| it.uuid.clone()).collect()
    }

    /// Returns the number of placements with a final status that are still stored.
    pub fn finished_count(&self) -> usize {
        self.by_uuid.len() - self.open.len()
    }

    /// Returns the active action that has this open request for an allocation.
    pub fn find_by_request(&self, request: &str) -> Option<&Placement> {
        self.active()
            .find(|it| it.request().is_some_and(|open| open.id == request))
    }

    /// Returns whether an active action replaces this allocation.
    pub fn replaces(&self, allocation: &AllocationId) -> bool {
        self.active()
            .any(|it| it.progress.predecessor.as_ref() == Some(allocation))
    }
}
