//! Validates submitted requests, and their `If-Match` headers.

use axum::http::{HeaderMap, header};
use hayward_container_manager_api::placements::{IfBusy, MoveOrder, PlacementOrder, PlacementView};
use hayward_container_manager_placement::Destination;
use hayward_service::Caller;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::AllocationId;

use crate::command::{SubmittedRequest, Target};

/// Maximum time that a request may wait for an allocation: a day.
const MAX_EXPIRY_MS: u64 = 24 * 3_600_000;

pub fn parse_placement_request(
    deployment: String,
    order: PlacementOrder,
    caller: &Caller,
) -> Result<SubmittedRequest, Problem> {
    Ok(SubmittedRequest {
        uuid: parse_uuid(order.uuid)?,
        processor: Target::Processor {
            deployment,
            id: check_processor_id(order.processor_id)?,
        },
        destination: parse_destination(order.destination_host)?,
        request_expiry_ms: check_expiry(order.request_expiry_ms)?,
        force: order.force,
        timestamp: order.timestamp,
        requested_by: caller.name.clone(),
        reject_if_busy: order.if_busy == IfBusy::Reject,
    })
}

pub fn parse_move_request(
    container: AllocationId,
    order: MoveOrder,
    caller: &Caller,
) -> Result<SubmittedRequest, Problem> {
    Ok(SubmittedRequest {
        uuid: parse_uuid(order.uuid)?,
        processor: Target::Container(container),
        destination: parse_destination(order.destination_host)?,
        request_expiry_ms: check_expiry(order.request_expiry_ms)?,
        force: order.force,
        timestamp: None,
        requested_by: caller.name.clone(),
        reject_if_busy: true,
    })
}

fn invalid_request(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::Invalid, "invalid placement request").at(pointer, detail)
}

pub fn unknown_status_problem() -> Problem {
    let detail = "must be CREATED, ACCEPTED, IN_PROGRESS, SUCCEEDED, FAILED or BAD_REQUEST";
    Problem::new(Code::Invalid, "unknown status").at("/query/status", detail)
}

fn check_processor_id(id: String) -> Result<String, Problem> {
    if id.trim().is_empty() {
        let detail = "must be the id of a process of the service, such as `svc_….0`, or its number";
        return Err(invalid_request("/processor_id", detail));
    }
    Ok(id)
}

/// Parses a uuid, or generates one if it is absent.
fn parse_uuid(text: Option<String>) -> Result<String, Problem> {
    let Some(text) = text else {
        return Ok(fresh_uuid().to_string());
    };
    let parsed = text.parse::<uuid::Uuid>();
    let parsed = parsed.map_err(|_| invalid_request("/uuid", "must be a UUID, or absent"))?;
    Ok(parsed.to_string())
}

fn parse_destination(text: String) -> Result<Destination, Problem> {
    Destination::try_from(text).map_err(|error| invalid_request("/destination_host", error))
}

fn check_expiry(expiry_ms: Option<u64>) -> Result<Option<u64>, Problem> {
    match expiry_ms {
        Some(ms) if !(1..=MAX_EXPIRY_MS).contains(&ms) => Err(invalid_request(
            "/request_expiry_ms",
            format!("must be 1 to {MAX_EXPIRY_MS} milliseconds, or absent"),
        )),
        valid => Ok(valid),
    }
}

/// Returns the entity tag, which is the generation of the placement.
pub fn etag(view: &PlacementView) -> String {
    format!("\"{}\"", view.generation)
}

/// Returns the generation that `If-Match` requires. `None` if it accepts any.
pub fn parse_if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let parsed = text.trim_matches('"').parse();
    let invalid_header = || {
        let problem = Problem::new(Code::BadRequest, "invalid If-Match");
        problem.at(
            "/header/If-Match",
            "must be the ETag of the request, such as \"3\"",
        )
    };
    parsed.map(Some).map_err(|_| invalid_header())
}
