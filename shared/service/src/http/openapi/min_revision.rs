//! The parameter `min_revision` of all reads. `hayward_publication::min_revision` implements it for
//! all reads, so this module describes it for all of them (A11).

use utoipa::PartialSchema as _;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, Required};

use super::common_responses::has_parameter;
use crate::http::limits::CHANGES_ROUTE;

/// Name of the parameter.
pub const MIN_REVISION: &str = "min_revision";
/// Route that describes the replica itself. It also works on a standby, so it has no such
/// parameter.
const STATUS_ROUTE: &str = "/v1/status";

pub(super) fn add(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        if is_read(path) {
            add_parameter(item);
        }
    }
}

/// Returns whether the route is a read. A long poll is not one: it names a revision itself and
/// waits for later ones.
fn is_read(path: &str) -> bool {
    let is_long_poll = path == CHANGES_ROUTE || path.ends_with("/publication");
    path.starts_with("/v1/") && path != STATUS_ROUTE && !is_long_poll
}

fn add_parameter(item: &mut PathItem) {
    let Some(operation) = &mut item.get else {
        return;
    };
    if has_parameter(operation, MIN_REVISION) {
        return;
    }
    let parameter = ParameterBuilder::new()
        .name(MIN_REVISION)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "Waits up to 5 seconds until this revision is visible.",
        ))
        .schema(Some(u64::schema()))
        .build();
    let parameters = operation.parameters.get_or_insert_default();
    parameters.push(parameter.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read can wait for one's own write (A11).
    #[test]
    fn reads_take_a_minimum_revision_and_long_polls_do_not() {
        for read in ["/v1/jobs", "/v1/jobs/{id}/explain", "/v1/invariants"] {
            assert!(is_read(read), "{read}");
        }
        let others = [
            "/livez",
            "/v1/status",
            "/v1/changes",
            "/v1/nodes/publication",
        ];
        for other in others {
            assert!(!is_read(other), "{other}");
        }
    }
}
