//! Reads wait for a revision (A11). Whoever serves them sees to it for all of them alike
//! (`hayward_publication::seen`), so it is described for all of them alike.

use utoipa::PartialSchema as _;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, Required};

use super::answers::takes;
use crate::http::limits::CHANGES;

/// The parameter.
pub const LEAST: &str = "min_revision";
/// Tells of the replica itself, on standby too.
const STATUS: &str = "/v1/status";

pub(super) fn add(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        if tells_what_is_there(path) {
            describe(item);
        }
    }
}

/// Whoever follows says since when, and waits for what comes after.
fn tells_what_is_there(path: &str) -> bool {
    let follows = path == CHANGES || path.ends_with("/publication");
    path.starts_with("/v1/") && path != STATUS && !follows
}

fn describe(item: &mut PathItem) {
    let Some(operation) = &mut item.get else {
        return;
    };
    if takes(operation, LEAST) {
        return;
    }
    let parameter = ParameterBuilder::new()
        .name(LEAST)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "Waits up to 5 seconds until this revision is visible.",
        ))
        .schema(Some(u64::schema()))
        .build();
    let all = operation.parameters.get_or_insert_default();
    all.push(parameter.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_reads_name_a_revision_and_those_who_follow_do_not() {
        for read in ["/v1/jobs", "/v1/jobs/{id}/explain", "/v1/invariants"] {
            assert!(tells_what_is_there(read), "{read}");
        }
        let others = [
            "/livez",
            "/v1/status",
            "/v1/changes",
            "/v1/nodes/publication",
        ];
        for other in others {
            assert!(!tells_what_is_there(other), "{other}");
        }
    }
}
