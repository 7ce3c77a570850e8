//! The loop that advances all placement actions as far as possible, and the resumption of actions
//! after a restart of container-manager.

use hayward_vocabulary::Timestamp;

use crate::container_access::Environment;
use crate::events::{self, PlacementEvent};
use crate::placement::Placement;
use crate::placements::Placements;
use crate::status::{Phase, Reason, Status};
use crate::{TimeLimits, action_step, start_queued_request, takeover};

impl Placements {
    /// Resumes the stored actions in a new term. An action that has not stopped its process yet
    /// fails, because it has changed nothing. All other actions continue.
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
            action_step::fail(
                &mut placement,
                Reason::ManagerRestarted,
                message.to_owned(),
                env,
            );
            self.events
                .extend(events::events_between(&before, &placement));
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
            let Some(container) = action_step::live_predecessor(placement, env) else {
                continue;
            };
            if action_step::stop_deadline(placement, limits).is_some_and(|limit| env.now() > limit)
            {
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
                Status::Created => start_queued_request::try_start(self, before.clone(), env),
                _ if before.is_parent() => takeover::step(self, before.clone(), env),
                _ => action_step::step(before.clone(), limits, env),
            };
            if after != before {
                has_changed = true;
                self.events.extend(events::events_between(&before, &after));
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
        let forced_stops = forced_stops.filter_map(|it| action_step::stop_deadline(it, limits));
        self.active()
            .filter_map(|it| action_step::deadline(it, limits))
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
            let deadline = action_step::deadline(it, limits);
            deadline.map_or(0, |deadline| now.ms_since(deadline))
        };
        self.active().map(move |it| (it, late_ms(it)))
    }
}
