//! What there is to count of placements (17), told by what a step changed.

use hayward_vocabulary::WorkId;

use crate::environment::LiveContainer;
use crate::placement::Placement;
use crate::status::{Reason, Status};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementEvent {
    /// A place was asked for: on a preferred host, or on any.
    Requested { preferred: bool },
    /// It was granted.
    Matched { preferred: bool },
    /// It was not, in its time.
    Expired { preferred: bool },
    /// An action failed.
    Failed(Reason),
    /// `FORCE_STOP_FAILED`: what a forced restart told to stop has not ended in time.
    ForceStopFailed {
        uuid: String,
        processor: WorkId,
        container: LiveContainer,
    },
}

pub fn between(before: &Placement, after: &Placement) -> Vec<PlacementEvent> {
    let preferred = after.progress.host.is_some();
    let mut events = Vec::new();
    if after.progress.requests > before.progress.requests {
        events.push(PlacementEvent::Requested { preferred });
    }
    if after.progress.reserved.is_some() && before.progress.reserved != after.progress.reserved {
        events.push(PlacementEvent::Matched { preferred });
    }
    if after.status_code == Status::Failed && before.status_code != Status::Failed {
        let reason = after.reason_code.unwrap_or(Reason::JobEnded);
        if reason == Reason::RequestExpired {
            events.push(PlacementEvent::Expired { preferred });
        }
        events.push(PlacementEvent::Failed(reason));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{TestFleet, host};

    #[test]
    fn an_action_is_counted_once_at_each_of_its_turns() {
        let mut fleet = TestFleet::standard();
        fleet.request("u1", "1", "d");
        assert_eq!(
            fleet.take_events(),
            [PlacementEvent::Requested { preferred: true }]
        );
        fleet.serve();
        fleet.tick();
        fleet.tick();
        assert_eq!(
            fleet.take_events(),
            [PlacementEvent::Matched { preferred: true }]
        );
        fleet.env.capacity.insert(host("c"), 0);
        fleet.env.wait_reason = Some("all of it is taken".to_owned());
        fleet.request("u2", "0", "c");
        fleet.advance_ms(5_001);
        fleet.tick();
        let expired = PlacementEvent::Expired { preferred: true };
        let failed = PlacementEvent::Failed(Reason::RequestExpired);
        let asked = PlacementEvent::Requested { preferred: true };
        assert_eq!(fleet.take_events(), [asked, expired, failed]);
        let message = &fleet.at("u2").response_message;
        assert!(message.contains("all of it is taken"), "{message}");
    }

    #[test]
    fn a_forced_stop_that_fails_is_told_once() {
        let mut fleet = TestFleet::standard();
        fleet.request("u1", "1", "FORCE_RESTART_LAST_SEEN");
        assert_eq!(fleet.at("u1").status_code, Status::Succeeded);
        assert_eq!(fleet.take_events(), []);
        fleet.advance_ms(1_000_000);
        let events = fleet.take_events();
        assert!(
            matches!(&*events, [PlacementEvent::ForceStopFailed { uuid, .. }] if uuid == "u1"),
            "{notes:?}"
        );
        fleet.advance_ms(1_000_000);
        assert_eq!(fleet.take_events(), []);
        // One that ended in time is not told of.
        fleet.request("u2", "0", "FORCE_RESTART_LAST_SEEN");
        let stopped = fleet.env.stops.last().cloned().expect("its stop");
        fleet.end(&stopped);
        fleet.advance_ms(1_000_000);
        assert_eq!(fleet.take_events(), []);
    }
}
