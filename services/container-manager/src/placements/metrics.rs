//! Counters of placement actions, and the log event `FORCE_STOP_FAILED`.

use hayward_container_manager_placement::PlacementEvent;
use hayward_service::metrics::catalogue::{
    PLACEMENT_EXPIRATIONS, PLACEMENT_FAILURES, PLACEMENT_FORCED_STOP_FAILURES, PLACEMENT_HOST,
    PLACEMENT_MATCHES, PLACEMENT_REASON, PLACEMENT_REQUESTS,
};

pub fn count_event(event: &PlacementEvent) {
    let host_attribute = |preferred: bool| {
        let value = if preferred { "preferred" } else { "any" };
        [PLACEMENT_HOST.with(value)]
    };
    match event {
        PlacementEvent::Requested { names_host } => {
            PLACEMENT_REQUESTS.add(1, &host_attribute(*names_host));
        }
        PlacementEvent::Matched { names_host } => {
            PLACEMENT_MATCHES.add(1, &host_attribute(*names_host));
        }
        PlacementEvent::Expired { names_host } => {
            PLACEMENT_EXPIRATIONS.add(1, &host_attribute(*names_host));
        }
        PlacementEvent::Failed(reason) => {
            let reason = PLACEMENT_REASON.with(reason.as_str());
            PLACEMENT_FAILURES.add(1, &[reason]);
        }
        PlacementEvent::ForceStopFailed {
            uuid,
            processor,
            container,
        } => {
            PLACEMENT_FORCED_STOP_FAILURES.add(1, &[]);
            tracing::warn!(
                event = "FORCE_STOP_FAILED",
                placement = uuid,
                %processor,
                container = %container.allocation,
                node = %container.host,
                reason = container.reason.as_deref(),
                "the process of a forced restart did not end in time"
            );
        }
    }
}
