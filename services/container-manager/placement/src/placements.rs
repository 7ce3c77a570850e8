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
    /// Those that are not over.
    open: BTreeSet<String>,
    next_seq: u64,
    /// What differs from the rows.
    changed: BTreeSet<String>,
    /// Forced restarts whose processes may not have ended yet.
    pub(crate) forced_stops: BTreeSet<String>,
    /// What is to be counted and was not asked for yet.
    pub(crate) events: Vec<PlacementEvent>,
}

impl Placements {
    pub fn loaded(placements: impl IntoIterator<Item = Placement>) -> Self {
        let mut placements = Self::default();
        for placement in placements {
            placements.next_seq = placements.next_seq.max(placement.seq + 1);
            placements.put(placement);
        }
        placements.changed.clear();
        placements
    }

    pub fn get(&self, uuid: &str) -> Option<&Placement> {
        self.all.get(uuid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Placement> {
        self.all.values()
    }

    /// Those that are not over.
    pub fn open(&self) -> impl Iterator<Item = &Placement> {
        self.open.iter().filter_map(|uuid| self.all.get(uuid))
    }

    /// Those that hold a place in flight, or will soon.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Placement> {
        self.open().filter(|it| it.status_code.is_active())
    }

    /// What has changed since this was asked last, by uuid.
    pub fn take_changed(&mut self) -> Vec<Placement> {
        let changed = std::mem::take(&mut self.changed);
        let found = changed.iter().filter_map(|uuid| self.all.get(uuid));
        found.cloned().collect()
    }

    /// What there is to count since this was asked last.
    pub fn take_events(&mut self) -> Vec<PlacementEvent> {
        std::mem::take(&mut self.events)
    }

    /// Drops one that nobody may read any more.
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

    /// Takes a request back that waits.
    ///
    /// # Errors
    /// When there is none, or it has begun.
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

    /// By the clock of the client, then as they came.
    pub(crate) fn in_order(&self) -> Vec<String> {
        let mut open: Vec<&Placement> = self.open().collect();
        open.sort_by_key(|it| (it.timestamp, it.seq));
        open.into_iter().map(|it| it.uuid.clone()).collect()
    }

    /// Those that are over and kept for readers.
    pub fn finished_count(&self) -> usize {
        self.all.len() - self.open.len()
    }

    /// The open action whose request this is.
    pub fn by_request(&self, request: &str) -> Option<&Placement> {
        self.active()
            .find(|it| it.request().is_some_and(|open| open.id == request))
    }

    /// An end of this allocation was wanted, or is made up for, by an action.
    pub fn replaces(&self, allocation: &AllocationId) -> bool {
        self.active()
            .any(|it| it.progress.predecessor.as_ref() == Some(allocation))
    }
}
