//! State of a publishing service, for `/readyz` and `/v1/status`.

use std::time::Duration;

use hayward_service::health::{FollowerStatus, ServiceState};

use crate::update::WAIT_SECONDS;
use crate::{CommitError, Publisher};

/// Time without a response after which a neighbour is stale: two waits and some slack.
const STALE_AFTER: Duration = Duration::from_secs(2 * WAIT_SECONDS + 5);

/// Returns the state, which is ready while this replica leads. A neighbour that is down does not
/// make it unready, because the service still accepts requests.
pub fn service_state(publisher: &Publisher) -> ServiceState {
    let leading = publisher.leading();
    let followers = publisher
        .neighbours()
        .into_iter()
        .map(|(publication, neighbour)| {
            let since_response = neighbour.responded_at.map(|at| at.elapsed());
            FollowerStatus {
                publication: publication.to_owned(),
                lag_ms: since_response
                    .map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
                stale: since_response.is_none_or(|since_response| since_response > STALE_AFTER),
                cursor: neighbour.cursor,
                fault: neighbour.fault,
            }
        })
        .collect();
    ServiceState {
        not_ready: leading
            .as_ref()
            .err()
            .map(CommitError::to_string)
            .into_iter()
            .collect(),
        epoch: leading.as_ref().ok().copied(),
        leader: leading.is_ok(),
        revision: Some(publisher.revision()),
        followers,
        insecure_modes: Vec::new(),
    }
}
