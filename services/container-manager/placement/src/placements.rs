//! All placements of live deployments.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::AllocationId;

use crate::events::PlacementEvent;
use crate::model::Refusal;
use crate::placement::Placement;
use crate::status::Status;

#[derive(Debug, Default, Clone)]
pub struct Placements {
    pub(crate) all: BTreeMap<String, Placement>,
    /// Ids of placements that are not final.
    open: BTreeSet<String>,
    next_seq: u64,
    /// Ids of placements that differ from their rows.
    changed: BTreeSet<String>,
    /// Forced restarts whose processes may not have ended yet.
    pub(crate) forced_stops: BTreeSet<String>,
    /// Events not yet taken by [`Self::take_events`].
    pub(crate) events: Vec<PlacementEvent>,
}

impl Placements {
    pub fn loaded(placements: impl IntoIterator<Item = Placement>) -> Self {
        let mut loaded = Self::default();
        for placement in placements {
            loaded.next_seq = loaded.next_seq.max(placement.seq + 1);
            loaded.put(placement);
        }
        loaded.changed.clear();
        loaded
    }

    pub fn get(&self, uuid: &str) -> Option<&Placement> {
        self.all.get(uuid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Placement> {
        self.all.values()
    }

    /// Placements that are not final.
    pub fn open(&self) -> impl Iterator<Item = &Placement> {
        self.open.iter().filter_map(|uuid| self.all.get(uuid))
    }

    /// Placements that were accepted and are not final.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Placement> {
        self.open().filter(|it| it.status_code.is_active())
    }

    /// Placements that changed since the last call, by uuid.
    pub fn take_changed(&mut self) -> Vec<Placement> {
        let changed = std::mem::take(&mut self.changed);
        let found = changed.iter().filter_map(|uuid| self.all.get(uuid));
        found.cloned().collect()
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<PlacementEvent> {
        std::mem::take(&mut self.events)
    }

    pub fn forget(&mut self, uuid: &str) {
        self.all.remove(uuid);
        self.open.remove(uuid);
        self.changed.remove(uuid);
        self.forced_stops.remove(uuid);
    }

    pub(crate) fn put(&mut self, mut placement: Placement) {
        let uuid = placement.uuid.clone();
        if let Some(before) = self.all.get(&uuid) {
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
        self.all.insert(uuid, placement);
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// Withdraws a queued request.
    ///
    /// # Errors
    /// If there is none, or it has started.
    pub fn withdraw(&mut self, uuid: &str) -> Result<(), Refusal> {
        let known = self.all.get(uuid).ok_or(Refusal::NotFound)?;
        match known.status_code {
            Status::Created if known.parent_uuid.is_none() => {
                self.forget(uuid);
                Ok(())
            }
            other => Err(Refusal::AlreadyStarted(other)),
        }
    }

    /// Ids of open placements by client timestamp, then by arrival.
    pub(crate) fn in_order(&self) -> Vec<String> {
        let mut open: Vec<&Placement> = self.open().collect();
        open.sort_by_key(|it| (it.timestamp, it.seq));
        open.into_iter().map(|it| it.uuid.clone()).collect()
    }

    /// Number of final placements that are still stored.
    pub fn finished_count(&self) -> usize {
        self.all.len() - self.open.len()
    }

    /// The active action with this open request.
    pub fn by_request(&self, request: &str) -> Option<&Placement> {
        self.active()
            .find(|it| it.request().is_some_and(|open| open.id == request))
    }

    /// Whether an active action replaces this allocation.
    pub fn replaces(&self, allocation: &AllocationId) -> bool {
        self.active()
            .any(|it| it.progress.predecessor.as_ref() == Some(allocation))
    }
}
