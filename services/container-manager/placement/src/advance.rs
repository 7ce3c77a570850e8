//! Submission of placement requests, and the loop that advances all actions as far as possible.

use hayward_vocabulary::{Timestamp, WorkId};

use crate::container_access::Environment;
use crate::events::{self, PlacementEvent};
use crate::model::{PlacementRequest, Refusal, Submitted, TimeLimits};
use crate::placement_request::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{Phase, Reason, Status};
use crate::{admit, step, takeover};

impl Placements {
    /// Adds a request, unless it was submitted before.
    ///
    /// # Errors
    /// Returns an error if the uuid belongs to another request, or if the processor is busy and
    /// `reject_if_busy` is set.
    pub fn submit(
        &mut self,
        request: PlacementRequest,
        env: &impl Environment,
    ) -> Result<Submitted, Refusal> {
        if let Some(existing) = self.by_uuid.get(&request.uuid) {
            let is_same = existing.deployment_id == request.deployment_id
                && existing.processor_id == request.processor_id
                && existing.destination_host == request.destination_host
                && existing.request_expiry_ms == request.request_expiry_ms
                && existing.force == request.force;
            return if is_same {
                Ok(Submitted::Repeated(existing.clone()))
            } else {
                Err(Refusal::UuidReused)
            };
        }
        if request.reject_if_busy
            && let Some(other) = self.find_blocking_request(&request.processor_id, env)
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
        self.insert(placement.clone());
        Ok(Submitted::New(placement))
    }

    /// Returns the action that a new request of this processor would wait for.
    fn find_blocking_request(&self, work: &WorkId, env: &impl Environment) -> Option<String> {
        let (_, action) = admit::blocking_action(self, work, None, env)?;
        let queued = || self.open().find(|it| it.processor_id == *work);
        action.or_else(|| queued().map(|it| it.uuid.clone()))
    }

    /// Starts a new term. Actions that have not stopped their process yet fail; the other actions
    /// continue.
    pub fn resume(&mut self, env: &mut impl Environment) {
        let is_before_stop = |it: &&Placement| {
            let waits_for_grant = it.phase == Some(Phase::Running) && !it.is_parent();
            waits_for_grant && it.progress.epoch != env.epoch()
        };
        let interrupted: Vec<Placement> = self.active().filter(is_before_stop).cloned().collect();
        for before in interrupted {
            let mut placement = before.clone();
            let message = "container-manager was restarted before an allocation was granted; \
                           nothing was changed; submit the request again";
            step::fail(
                &mut placement,
                Reason::ManagerRestarted,
                message.to_owned(),
                env,
            );
            self.events.extend(events::diff(&before, &placement));
            self.insert(placement);
        }
    }

    /// Takes all steps that are possible now, until no action changes.
    pub fn advance(&mut self, limits: &TimeLimits, env: &mut impl Environment) {
        // Terminates, because each pass except the last brings an action closer to its end.
        while self.step_all(limits, env) {}
        self.report_forced_stops(limits, env);
    }

    /// Emits one event for each forced restart whose process did not end in time.
    fn report_forced_stops(&mut self, limits: &TimeLimits, env: &impl Environment) {
        let forced_stops = std::mem::take(&mut self.forced_stops);
        for uuid in forced_stops {
            let Some(placement) = self.by_uuid.get(&uuid) else {
                continue;
            };
            let Some(container) = step::live_predecessor(placement, env) else {
                continue;
            };
            if step::stop_deadline(placement, limits).is_some_and(|limit| env.now() > limit) {
                self.events.push(PlacementEvent::ForceStopFailed {
                    uuid,
                    processor: placement.processor_id.clone(),
                    container,
                });
            } else {
                self.forced_stops.insert(uuid);
            }
        }
    }

    /// Steps every open placement once. Returns whether any placement changed.
    fn step_all(&mut self, limits: &TimeLimits, env: &mut impl Environment) -> bool {
        let mut has_changed = false;
        for uuid in self.open_uuids_in_order() {
            let Some(before) = self.by_uuid.get(&uuid).cloned() else {
                continue;
            };
            let after = match before.status_code {
                Status::Created => admit::admit(self, before.clone(), env),
                _ if before.is_parent() => takeover::step(self, before.clone(), env),
                _ => step::step(before.clone(), limits, env),
            };
            if after != before {
                has_changed = true;
                self.events.extend(events::diff(&before, &after));
                self.insert(after);
            }
        }
        has_changed
    }

    /// Returns the next time at which an action can step without a change of its environment.
    pub fn next_deadline(&self, limits: &TimeLimits) -> Option<Timestamp> {
        let forced_stops = self
            .forced_stops
            .iter()
            .filter_map(|uuid| self.by_uuid.get(uuid));
        let forced_stops = forced_stops.filter_map(|it| step::stop_deadline(it, limits));
        self.active()
            .filter_map(|it| step::deadline(it, limits))
            .chain(forced_stops.map(|limit| limit.plus_ms(1)))
            .min()
    }

    /// Returns the active actions, and by how many milliseconds each is past its deadline.
    pub fn active_with_lateness(
        &self,
        limits: &TimeLimits,
        now: Timestamp,
    ) -> impl Iterator<Item = (&Placement, u64)> {
        let late_ms = move |it: &Placement| {
            let deadline = step::deadline(it, limits);
            deadline.map_or(0, |deadline| now.ms_since(deadline))
        };
        self.active().map(move |it| (it, late_ms(it)))
    }
}
