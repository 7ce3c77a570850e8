//! Accepts requests and advances the actions.

use hayward_vocabulary::{Timestamp, WorkId};

use crate::environment::Environment;
use crate::events::{self, PlacementEvent};
use crate::model::{PlacementRequest, Refusal, Rules, Submitted};
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{Phase, Reason, Status};
use crate::{admit, composite, step};

impl Placements {
    /// # Errors
    /// If the uuid belongs to another request, or the processor is busy and the request says to
    /// reject then.
    pub fn submit(
        &mut self,
        request: PlacementRequest,
        env: &impl Environment,
    ) -> Result<Submitted, Refusal> {
        if let Some(known) = self.all.get(&request.uuid) {
            let same = known.deployment_id == request.deployment_id
                && known.processor_id == request.processor_id
                && known.destination_host == request.destination_host
                && known.request_expiry_ms == request.request_expiry_ms
                && known.force == request.force;
            return if same {
                Ok(Submitted::Repeated(known.clone()))
            } else {
                Err(Refusal::UuidReused)
            };
        }
        if request.reject_if_busy
            && let Some(other) = self.blocked_by(&request.processor_id, env)
        {
            return Err(Refusal::Busy(other));
        }
        let placement = Placement {
            uuid: request.uuid,
            deployment_id: request.deployment_id,
            processor_id: request.processor_id,
            destination_host: request.destination_host,
            request_expiry_ms: request.request_expiry_ms,
            force: request.force,
            timestamp: request.timestamp,
            seq: self.next_sequence(),
            user: request.user,
            requested_by: request.requested_by,
            status_code: Status::Created,
            response_message: "queued".to_owned(),
            reason_code: None,
            queued_because: None,
            phase: None,
            resolved_host: None,
            source_host: None,
            final_host: None,
            recovery_host: None,
            parent_uuid: None,
            request_consumed_at: None,
            updated_at: env.now(),
            generation: 0,
            progress: Progress::default(),
        };
        self.put(placement.clone());
        Ok(Submitted::New(placement))
    }

    /// The action that a new request of this processor would wait for.
    fn blocked_by(&self, work: &WorkId, env: &impl Environment) -> Option<String> {
        let (_, other) = admit::blocking_action(self, work, None, env)?;
        let queued = || self.open().find(|it| it.processor_id == *work);
        other.or_else(|| queued().map(|it| it.uuid.clone()))
    }

    /// Starts a new term: actions that have changed nothing yet fail, the others continue.
    pub fn resume(&mut self, env: &mut impl Environment) {
        let reserving = |it: &&Placement| {
            let begun = it.phase == Some(Phase::Running) && !it.is_parent();
            begun && it.progress.epoch != env.epoch()
        };
        let lost: Vec<Placement> = self.active().filter(reserving).cloned().collect();
        for before in lost {
            let mut placement = before.clone();
            let message = "the manager was restarted before a place was granted; nothing was \
                           changed, submit it again";
            step::fail(
                &mut placement,
                Reason::ManagerRestarted,
                message.to_owned(),
                env,
            );
            self.events.extend(events::between(&before, &placement));
            self.put(placement);
        }
    }

    /// Takes all steps that are possible now.
    pub fn advance(&mut self, rules: &Rules, env: &mut impl Environment) {
        // Terminates: each pass but the last moves an action closer to its end.
        while self.pass(rules, env) {}
        self.report_forced_stops(rules, env);
    }

    /// Emits one event for each forced restart whose process did not end in time.
    fn report_forced_stops(&mut self, rules: &Rules, env: &impl Environment) {
        let forced_stops = std::mem::take(&mut self.forced_stops);
        for uuid in forced_stops {
            let Some(p) = self.all.get(&uuid) else {
                continue;
            };
            let Some(container) = step::predecessor(p, env) else {
                continue;
            };
            if step::stop_deadline(p, rules).is_some_and(|limit| env.now() > limit) {
                self.events.push(PlacementEvent::ForceStopFailed {
                    uuid,
                    processor: p.processor_id.clone(),
                    container,
                });
            } else {
                self.forced_stops.insert(uuid);
            }
        }
    }

    fn pass(&mut self, rules: &Rules, env: &mut impl Environment) -> bool {
        let mut moved = false;
        for uuid in self.in_order() {
            let Some(before) = self.all.get(&uuid).cloned() else {
                continue;
            };
            let after = match before.status_code {
                Status::Created => admit::admit(self, before.clone(), env),
                _ if before.is_parent() => composite::step(self, before.clone(), env),
                _ => step::step(before.clone(), rules, env),
            };
            if after != before {
                moved = true;
                self.events.extend(events::between(&before, &after));
                self.put(after);
            }
        }
        moved
    }

    /// The next time at which an action can step without a new fact.
    pub fn deadline(&self, rules: &Rules) -> Option<Timestamp> {
        let forced_stops = self
            .forced_stops
            .iter()
            .filter_map(|uuid| self.all.get(uuid));
        let forced_stops = forced_stops.filter_map(|it| step::stop_deadline(it, rules));
        self.active()
            .filter_map(|it| step::deadline(it, rules))
            .chain(forced_stops.map(|limit| limit.plus_ms(1)))
            .min()
    }

    /// Active actions, and by how many milliseconds each is past its deadline.
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
