//! Events of placement actions for metrics, derived from what a step changed.

use hayward_vocabulary::WorkId;

use crate::container_access::LiveContainer;
use crate::placement::Placement;
use crate::status::{Reason, Status};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementEvent {
    /// An allocation was requested. `names_host` is true if the request names a host.
    Requested { names_host: bool },
    /// The requested allocation was granted.
    Matched { names_host: bool },
    /// The request expired.
    Expired { names_host: bool },
    /// An action failed.
    Failed(Reason),
    /// `FORCE_STOP_FAILED`: the process of a forced restart has not ended in time.
    ForceStopFailed {
        uuid: String,
        processor: WorkId,
        container: LiveContainer,
    },
}

/// Returns the events of a step from `before` to `after`.
pub fn events_between(before: &Placement, after: &Placement) -> Vec<PlacementEvent> {
    let names_host = after.progress.host.is_some();
    let mut events = Vec::new();
    if after.progress.request_count > before.progress.request_count {
        events.push(PlacementEvent::Requested { names_host });
    }
    if after.progress.reserved.is_some() && before.progress.reserved != after.progress.reserved {
        events.push(PlacementEvent::Matched { names_host });
    }
    if after.status_code == Status::Failed && before.status_code != Status::Failed {
        let reason = after.reason_code.unwrap_or(Reason::JobEnded);
        if reason == Reason::RequestExpired {
            events.push(PlacementEvent::Expired { names_host });
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
    fn a_request_a_grant_and_an_expiry_emit_events() {
        let mut fleet = TestFleet::standard();
        fleet.request("first", "1", "d");
        assert_eq!(
            fleet.take_events(),
            [PlacementEvent::Requested { names_host: true }]
        );
        fleet.grant_requests();
        fleet.advance();
        fleet.advance();
        assert_eq!(
            fleet.take_events(),
            [PlacementEvent::Matched { names_host: true }]
        );
        fleet.env.capacity.insert(host("c"), 0);
        fleet.env.wait_reason = Some("the host is full".to_owned());
        fleet.request("second", "0", "c");
        fleet.advance_ms(5_001);
        fleet.advance();
        let expired = PlacementEvent::Expired { names_host: true };
        let failed = PlacementEvent::Failed(Reason::RequestExpired);
        let requested = PlacementEvent::Requested { names_host: true };
        assert_eq!(fleet.take_events(), [requested, expired, failed]);
        let message = &fleet.placement("second").response_message;
        assert!(message.contains("the host is full"), "{message}");
    }

    #[test]
    fn a_failed_forced_stop_emits_one_event() {
        let mut fleet = TestFleet::standard();
        fleet.request("first", "1", "FORCE_RESTART_LAST_SEEN");
        assert_eq!(fleet.placement("first").status_code, Status::Succeeded);
        assert_eq!(fleet.take_events(), []);
        fleet.advance_ms(1_000_000);
        let events = fleet.take_events();
        assert!(
            matches!(&*events, [PlacementEvent::ForceStopFailed { uuid, .. }] if uuid == "first"),
            "{events:?}"
        );
        fleet.advance_ms(1_000_000);
        assert_eq!(fleet.take_events(), []);
        // A process that ends in time emits no event.
        fleet.request("second", "0", "FORCE_RESTART_LAST_SEEN");
        let stopped = fleet.env.stops.last().cloned().expect("a stop was ordered");
        fleet.end_container(&stopped);
        fleet.advance_ms(1_000_000);
        assert_eq!(fleet.take_events(), []);
    }
}
