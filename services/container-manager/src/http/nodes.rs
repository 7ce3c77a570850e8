//! `/v1/nodes/{node}`: reports of the agent of a node.

use std::collections::BTreeMap;

use axum::extract::State;
use hayward_container_manager_api::{
    CONTAINERS, ContainerEntry, OutputChunk, OutputReport, Report, ReportAnswer,
};
use hayward_container_manager_domain::Piece;
use hayward_publication::Cursor;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Path};
use hayward_vocabulary::{AllocationId, NodeName};
use http::HeaderName;

use super::{Api, read_failed};
use crate::command::{Command, ForeignContainers, NodeReport};
use crate::store::output;

/// Maximum number of containers in one report.
const CONTAINERS_LIMIT: usize = 4096;
/// Maximum number of pieces of output in one report.
const CHUNKS_LIMIT: usize = 256;
/// Maximum bytes of text in one piece.
const TEXT_LIMIT: usize = 64 * 1024;
/// Maximum bytes of text for one byte of output: a replaced byte becomes U+FFFD.
const WIDEST: u64 = 3;
/// Maximum length of `boot_id` and `agent_instance`.
const NAME_LIMIT: usize = 128;

const REVISION: HeaderName = HeaderName::from_static("hayward-revision");

/// Report all containers of a node. Repeated and late reports change nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/report", operation_id = "report_containers", tag = "nodes",
    params(("node" = NodeName, Path, description = "the agent's own node")),
    request_body = Report,
    responses(
        (status = 200, description = "applied; visible at this revision", body = ReportAnswer,
            headers(("Hayward-Revision" = u64, description = "the same revision"))),
        (status = 403, description = "only for the agent of that node and its own containers",
            body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the report exceeds a limit", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn report_containers(
    State(api): State<Api>,
    caller: Caller,
    Path(node): Path<NodeName>,
    Json(report): Json<Report>,
) -> Result<([(HeaderName, String); 1], Json<ReportAnswer>), Problem> {
    caller.require_agent(&node)?;
    check_report(&report)?;
    let answers = answered_revision(&api, report.cursor.as_deref());
    let report = NodeReport {
        node,
        answers,
        report,
    };
    let ask = |reply| Command::Report(report, reply);
    let taken = api.handle.ask(ask).await?;
    let revision = taken.revision;
    taken
        .value
        .map_err(|foreign| refused("containers", &foreign))?;
    Ok((
        [(REVISION, revision.to_string())],
        Json(ReportAnswer { revision }),
    ))
}

/// A report that names a container of another node is refused as a whole (S14).
fn refused(list: &str, foreign: &ForeignContainers) -> Problem {
    let detail = "an agent may report only containers of its own node";
    let problem = Problem::new(Code::Forbidden, detail);
    let places = foreign.0.iter();
    places.fold(problem, |problem, at| {
        let pointer = format!("/{list}/{at}/id");
        problem.at(pointer, "this container is on another node; omit it")
    })
}

/// The revision of a cursor; none if it is from another history.
fn answered_revision(api: &Api, cursor: Option<&str>) -> Option<u64> {
    let cursor = Cursor::parse(cursor?)?;
    (cursor.lineage == api.publisher().lineage()).then_some(cursor.revision)
}

fn check_report(report: &Report) -> Result<(), Problem> {
    let too_much = || Problem::new(Code::Invalid, "the report exceeds a limit");
    if report.containers.len() > CONTAINERS_LIMIT {
        return Err(too_much().at("/containers", format!("at most {CONTAINERS_LIMIT}")));
    }
    let names = [
        ("/boot_id", &report.boot_id),
        ("/agent_instance", &report.agent_instance),
    ];
    for (pointer, name) in names {
        if name.is_empty() || name.len() > NAME_LIMIT {
            return Err(too_much().at(pointer, format!("1 to {NAME_LIMIT} characters")));
        }
    }
    Ok(())
}

/// Append to the output of containers of a node. Repeated pieces change nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/output", operation_id = "report_output", tag = "nodes",
    params(("node" = NodeName, Path, description = "the agent's own node")),
    request_body = OutputReport,
    responses(
        (status = 204, description = "stored"),
        (status = 403, description = "only for the agent of that node and its own containers",
            body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the report exceeds a limit", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn report_output(
    State(api): State<Api>,
    caller: Caller,
    Path(node): Path<NodeName>,
    Json(report): Json<OutputReport>,
) -> Result<http::StatusCode, Problem> {
    caller.require_agent(&node)?;
    api.publisher().leading()?;
    check_output(&report.chunks)?;
    check_owner(&api, &node, &report.chunks)?;
    let mut pieces: BTreeMap<AllocationId, Vec<Piece>> = BTreeMap::new();
    for chunk in report.chunks {
        let piece = Piece {
            start: chunk.offset,
            bytes: chunk.bytes,
            text: chunk.text,
        };
        pieces.entry(chunk.id).or_default().push(piece);
    }
    let grown = output::add(&api.pool, &node, pieces).await;
    let revision = api.publisher().revision();
    for (container, work) in grown.map_err(read_failed)? {
        api.output_changed.notify(container.as_str(), revision);
        let work = work.split('.').next().unwrap_or(&work);
        api.output_changed.notify(work, revision);
    }
    Ok(http::StatusCode::NO_CONTENT)
}

fn check_owner(api: &Api, node: &NodeName, chunks: &[OutputChunk]) -> Result<(), Problem> {
    let publisher = api.publisher();
    let elsewhere = |chunk: &OutputChunk| {
        let entry = publisher.get::<ContainerEntry>(CONTAINERS, "", chunk.id.as_str());
        entry.is_some_and(|entry| entry.node != *node)
    };
    let all = chunks.iter().enumerate();
    let foreign = all.filter(|(_, chunk)| elsewhere(chunk)).map(|(at, _)| at);
    ForeignContainers::if_any(foreign.collect()).map_err(|foreign| refused("chunks", &foreign))
}

fn check_output(chunks: &[OutputChunk]) -> Result<(), Problem> {
    let too_much = || Problem::new(Code::Invalid, "the report exceeds a limit");
    if chunks.len() > CHUNKS_LIMIT {
        return Err(too_much().at("/chunks", format!("at most {CHUNKS_LIMIT}")));
    }
    for (at, chunk) in chunks.iter().enumerate() {
        if chunk.text.len() > TEXT_LIMIT {
            let detail = format!("at most {TEXT_LIMIT} bytes");
            return Err(too_much().at(format!("/chunks/{at}/text"), detail));
        }
        // Otherwise a small piece could occupy much storage.
        if chunk.text.len() as u64 > chunk.bytes.saturating_mul(WIDEST) {
            let detail = "too few for the length of the text";
            return Err(too_much().at(format!("/chunks/{at}/bytes"), detail));
        }
        if chunk
            .offset
            .checked_add(chunk.bytes)
            .is_none_or(|end| i64::try_from(end).is_err())
        {
            let detail = "too large";
            return Err(too_much().at(format!("/chunks/{at}/offset"), detail));
        }
    }
    Ok(())
}
