//! Takes requests in, and moves the actions on.

use hayward_vocabulary::{Timestamp, WorkId};

use crate::environment::World;
use crate::events::{self, Note};
use crate::model::{Order, Refusal, Rules, Submitted};
use crate::placement::{Hands, Placement};
use crate::placements::Machine;
use crate::status::{Phase, Reason, Status};
use crate::{admit, composite, step};

impl Machine {
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

    /// What a new request of this processor would have to wait for.
    fn in_the_way(&self, work: &WorkId, world: &impl World) -> Option<String> {
        let (_, other) = admit::in_flight(self, work, None, world)?;
        let queued = || self.open().find(|it| it.processor_id == *work);
        other.or_else(|| queued().map(|it| it.uuid.clone()))
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
}
