//! All placements of live deployments, and what moves them.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId};

use crate::environment::{StandState, World};
use crate::events::{self, Note};
use crate::placement::{Hands, Placement};
use crate::status::{Destination, Phase, Reason, Status};
use crate::{admit, composite, step};

#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How long a request waits where it does not say (17).
    pub request_timeout_ms: u64,
    /// How long a process is given to end before its stop counts as failed.
    pub stop_timeout_ms: u64,
}

/// What a controller asks for (3.1).
#[derive(Debug, Clone)]
pub struct Order {
    pub uuid: String,
    pub deployment_id: String,
    pub processor_id: WorkId,
    pub destination_host: Destination,
    pub request_expiry_ms: Option<u64>,
    /// Also to a host outside the machines of the service.
    pub force: bool,
    pub timestamp: Timestamp,
    pub user: UserName,
    pub requested_by: String,
    /// Refuse rather than queue behind an action in flight.
    pub reject_if_busy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    Fresh(Placement),
    /// The same was asked before.
    Replay(Placement),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The uuid stands for something else (5.2).
    OtherBody,
    /// This one is in flight, or waits before it.
    Busy(String),
    NotFound,
    /// Too late to withdraw.
    Begun(Status),
}

#[derive(Debug, Default, Clone)]
pub struct Machine {
    all: BTreeMap<String, Placement>,
    /// Those that are not over.
    open: BTreeSet<String>,
    next_seq: u64,
    /// What differs from the rows.
    changed: BTreeSet<String>,
    /// Forced restarts whose processes may not have ended yet.
    forced: BTreeSet<String>,
    /// What is to be counted and was not asked for yet.
    notes: Vec<Note>,
}

impl Machine {
    pub fn loaded(placements: impl IntoIterator<Item = Placement>) -> Self {
        let mut machine = Self::default();
        for placement in placements {
            machine.next_seq = machine.next_seq.max(placement.seq + 1);
            machine.put(placement);
        }
        machine.changed.clear();
        machine
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
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Drops one that nobody may read any more.
    pub fn forget(&mut self, uuid: &str) {
        self.all.remove(uuid);
        self.open.remove(uuid);
        self.changed.remove(uuid);
        self.forced.remove(uuid);
    }

    pub(crate) fn put(&mut self, mut placement: Placement) {
        let uuid = placement.uuid.clone();
        if let Some(before) = self.all.get(&uuid) {
            placement.generation = before.generation + 1;
        }
        if placement.is_forced_stop() {
            self.forced.insert(uuid.clone());
        }
        if placement.status_code.is_final() {
            self.open.remove(&uuid);
        } else {
            self.open.insert(uuid.clone());
        }
        self.changed.insert(uuid.clone());
        self.all.insert(uuid, placement);
    }

    /// # Errors
    /// When the uuid stands for something else, or the processor is busy and that was not wanted.
    pub fn submit(&mut self, order: Order, world: &impl World) -> Result<Submitted, Refusal> {
        if let Some(known) = self.all.get(&order.uuid) {
            let same = known.deployment_id == order.deployment_id
                && known.processor_id == order.processor_id
                && known.destination_host == order.destination_host
                && known.request_expiry_ms == order.request_expiry_ms
                && known.force == order.force;
            return if same {
                Ok(Submitted::Replay(known.clone()))
            } else {
                Err(Refusal::OtherBody)
            };
        }
        if order.reject_if_busy
            && let Some(other) = self.in_the_way(&order.processor_id, world)
        {
            return Err(Refusal::Busy(other));
        }
        let placement = Placement {
            uuid: order.uuid,
            deployment_id: order.deployment_id,
            processor_id: order.processor_id,
            destination_host: order.destination_host,
            request_expiry_ms: order.request_expiry_ms,
            force: order.force,
            timestamp: order.timestamp,
            seq: self.number(),
            user: order.user,
            requested_by: order.requested_by,
            status_code: Status::Created,
            response_message: "it waits to be looked at".to_owned(),
            reason_code: None,
            queued_because: None,
            phase: None,
            resolved_host: None,
            source_host: None,
            final_host: None,
            recovery_host: None,
            parent_uuid: None,
            request_consumed_at: None,
            updated_at: world.now(),
            generation: 0,
            hands: Hands::default(),
        };
        self.put(placement.clone());
        Ok(Submitted::Fresh(placement))
    }

    pub(crate) fn number(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// What a new request of this processor would have to wait for.
    fn in_the_way(&self, work: &WorkId, world: &impl World) -> Option<String> {
        let (_, other) = admit::in_flight(self, work, None, world)?;
        let queued = || self.open().find(|it| it.processor_id == *work);
        other.or_else(|| queued().map(|it| it.uuid.clone()))
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
            other => Err(Refusal::Begun(other)),
        }
    }

    /// A new term: what had touched nothing yet fails, the rest goes on where it was (12.1).
    pub fn restarted(&mut self, world: &mut impl World) {
        let reserving = |it: &&Placement| {
            let begun = it.phase == Some(Phase::Running) && !it.is_parent();
            begun && it.hands.epoch != world.epoch()
        };
        let lost: Vec<Placement> = self.active().filter(reserving).cloned().collect();
        for before in lost {
            let mut placement = before.clone();
            let message = "the manager was restarted before the place was given; nothing was \
                           touched, ask again";
            step::fail(
                &mut placement,
                Reason::ManagerRestarted,
                message.to_owned(),
                world,
            );
            self.notes.extend(events::of(&before, &placement));
            self.put(placement);
        }
    }

    /// Everything that can happen now, happens.
    pub fn advance(&mut self, rules: &Rules, world: &mut impl World) {
        // Each pass brings something nearer to its end, or is the last.
        while self.pass(rules, world) {}
        self.watch_forced_stops(rules, world);
    }

    /// 6.7: that a forced restart did not end its process is told after the fact, once.
    fn watch_forced_stops(&mut self, rules: &Rules, world: &impl World) {
        let forced = std::mem::take(&mut self.forced);
        for uuid in forced {
            let Some(p) = self.all.get(&uuid) else {
                continue;
            };
            let Some(stand) = step::predecessor(p, world) else {
                continue;
            };
            if step::stop_limit(p, rules).is_some_and(|limit| world.now() > limit) {
                self.notes.push(Note::ForceStopFailed {
                    uuid,
                    processor: p.processor_id.clone(),
                    stand,
                });
            } else {
                self.forced.insert(uuid);
            }
        }
    }

    fn pass(&mut self, rules: &Rules, world: &mut impl World) -> bool {
        let mut moved = false;
        for uuid in self.in_order() {
            let Some(before) = self.all.get(&uuid).cloned() else {
                continue;
            };
            let after = match before.status_code {
                Status::Created => admit::look(self, before.clone(), world),
                _ if before.is_parent() => composite::step(self, before.clone(), world),
                _ => step::step(before.clone(), rules, world),
            };
            if after != before {
                moved = true;
                self.notes.extend(events::of(&before, &after));
                self.put(after);
            }
        }
        moved
    }

    /// By the clock of the client, then as they came.
    fn in_order(&self) -> Vec<String> {
        let mut open: Vec<&Placement> = self.open().collect();
        open.sort_by_key(|it| (it.timestamp, it.seq));
        open.into_iter().map(|it| it.uuid.clone()).collect()
    }

    /// When time alone moves something next.
    pub fn deadline(&self, rules: &Rules) -> Option<Timestamp> {
        let forced = self.forced.iter().filter_map(|uuid| self.all.get(uuid));
        let forced = forced.filter_map(|it| step::stop_limit(it, rules));
        self.active()
            .filter_map(|it| step::deadline(it, rules))
            .chain(forced.map(|limit| limit.plus_ms(1)))
            .min()
    }

    /// Actions that time alone should have moved on by now, and for how many milliseconds.
    pub fn overdue(
        &self,
        rules: &Rules,
        now: Timestamp,
    ) -> impl Iterator<Item = (&Placement, u64)> {
        let late = move |it: &Placement| {
            let deadline = step::deadline(it, rules);
            deadline.map_or(0, |deadline| now.ms_since(deadline))
        };
        self.active().map(move |it| (it, late(it)))
    }

    /// Those that are over and kept for readers.
    pub fn over(&self) -> usize {
        self.all.len() - self.open.len()
    }

    /// The open action whose request this is.
    pub fn asked_by(&self, request: &str) -> Option<&Placement> {
        self.active()
            .find(|it| it.request().is_some_and(|open| open.id == request))
    }

    /// An end of this allocation was wanted, or is made up for, by an action.
    pub fn replaces(&self, allocation: &AllocationId) -> bool {
        self.active()
            .any(|it| it.hands.predecessor.as_ref() == Some(allocation))
    }
}

/// Not running, or only on its way there.
pub(crate) fn is_up(world: &impl World, work: &WorkId) -> bool {
    let stands = world.stands(work);
    stands.iter().any(|it| it.state == StandState::Running)
}
