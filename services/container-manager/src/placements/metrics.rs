//! What is counted of placements (container placement, 17), and the one event that has no row.

use hayward_container_manager_placement::Note;
use hayward_service::metrics::catalogue::{
    PLACEMENT_EXPIRATIONS, PLACEMENT_FAILURES, PLACEMENT_FORCED_STOP_FAILURES, PLACEMENT_HOST,
    PLACEMENT_MATCHES, PLACEMENT_REASON, PLACEMENT_REQUESTS,
};

/// Attributes are words of closed lists, so the number of series is bounded.
pub fn count(note: &Note) {
    let host = |preferred: bool| {
        let word = if preferred { "preferred" } else { "any" };
        [PLACEMENT_HOST.is(word)]
    };
    match note {
        Note::Requested { preferred } => PLACEMENT_REQUESTS.add(1, &host(*preferred)),
        Note::Matched { preferred } => PLACEMENT_MATCHES.add(1, &host(*preferred)),
        Note::Expired { preferred } => PLACEMENT_EXPIRATIONS.add(1, &host(*preferred)),
        Note::Failed(reason) => {
            let reason = PLACEMENT_REASON.is(reason.as_str());
            PLACEMENT_FAILURES.add(1, &[reason]);
        }
        Note::ForceStopFailed {
            uuid,
            processor,
            stand,
        } => {
            PLACEMENT_FORCED_STOP_FAILURES.add(1, &[]);
            tracing::warn!(
                event = "FORCE_STOP_FAILED",
                placement = uuid,
                %processor,
                container = %stand.allocation,
                node = %stand.host,
                reason = stand.reason.as_deref(),
                "a forced restart told a process to end, and it has not"
            );
        }
    }
}
