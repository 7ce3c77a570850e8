//! `/v1/nodes/{node}/report` and `/output`: the agent of a node reports the state and the output of
//! its containers.

use std::collections::BTreeMap;

use axum::extract::State;
use hayward_container_manager_api::{
    CONTAINERS, ContainerEntry, OutputChunk, OutputReport, Report, ReportAnswer,
};
use hayward_container_manager_domain::Chunk;
use hayward_publication::Cursor;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Path};
use hayward_vocabulary::{AllocationId, NodeName};
use http::HeaderName;

use super::{Api, database_problem};
use crate::command::{Command, ForeignContainers, NodeReport};
use crate::store::output;

/// Maximum number of containers in one report.
const MAX_CONTAINERS: usize = 4096;
/// Maximum number of chunks of output in one report.
const MAX_CHUNKS: usize = 256;
/// Maximum bytes of text in one chunk.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Maximum bytes of text for one byte of output: a replaced byte becomes U+FFFD, which has 3 bytes.
const MAX_TEXT_BYTES_PER_OUTPUT_BYTE: u64 = 3;
/// Maximum length of `boot_id` and `agent_instance`.
const MAX_NAME_BYTES: usize = 128;

const REVISION_HEADER: HeaderName = HeaderName::from_static("hayward-revision");

/// Report all containers of a node. Repeated and late reports change nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/report", operation_id = "report_containers", tag = "nodes",
    params(("node" = NodeName, Path, description = "node of the agent")),
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
    let observed_revision = observed_revision(&api, report.cursor.as_deref());
    let report = NodeReport {
        node,
        observed_revision,
        report,
    };
    let command = |reply| Command::ApplyReport(report, reply);
    let committed = api.handle.execute(command).await?;
    let revision = committed.revision;
    committed
        .value
        .map_err(|foreign| foreign_problem("containers", &foreign))?;
    Ok((
        [(REVISION_HEADER, revision.to_string())],
        Json(ReportAnswer { revision }),
    ))
}

/// Creates the problem for a report that names containers of another node. Such a report is refused
/// as a whole (S14).
fn foreign_problem(list: &str, foreign: &ForeignContainers) -> Problem {
    let detail = "an agent may report only containers of its own node";
    let problem = Problem::new(Code::Forbidden, detail);
    foreign.0.iter().fold(problem, |problem, index| {
        let pointer = format!("/{list}/{index}/id");
        problem.at(pointer, "the container is on another node")
    })
}

/// Returns the revision of a cursor. `None` if the cursor is from another lineage.
fn observed_revision(api: &Api, cursor: Option<&str>) -> Option<u64> {
    let cursor = Cursor::parse(cursor?)?;
    (cursor.lineage == api.publisher().lineage()).then_some(cursor.revision)
}

fn check_report(report: &Report) -> Result<(), Problem> {
    let limit_problem = || Problem::new(Code::Invalid, "the report exceeds a limit");
    if report.containers.len() > MAX_CONTAINERS {
        return Err(limit_problem().at("/containers", format!("at most {MAX_CONTAINERS}")));
    }
    let names = [
        ("/boot_id", &report.boot_id),
        ("/agent_instance", &report.agent_instance),
    ];
    for (pointer, name) in names {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(limit_problem().at(
                pointer,
                format!("must have 1 to {MAX_NAME_BYTES} characters"),
            ));
        }
    }
    Ok(())
}

/// Append to the output of containers of a node. Repeated chunks change nothing.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/output", operation_id = "report_output", tag = "nodes",
    params(("node" = NodeName, Path, description = "node of the agent")),
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
    check_containers_on_node(&api, &node, &report.chunks)?;
    let mut chunks: BTreeMap<AllocationId, Vec<Chunk>> = BTreeMap::new();
    for reported in report.chunks {
        let chunk = Chunk {
            start: reported.offset,
            bytes: reported.bytes,
            text: reported.text,
        };
        chunks.entry(reported.id).or_default().push(chunk);
    }
    let grown_containers = output::append(&api.pool, &node, chunks).await;
    let revision = api.publisher().revision();
    // Readers wait for the output of one container, or of a whole work item: the part of the work
    // id before the dot.
    for (container, work) in grown_containers.map_err(database_problem)? {
        api.output_changed.notify(container.as_str(), revision);
        let work = work.split('.').next().unwrap_or(&work);
        api.output_changed.notify(work, revision);
    }
    Ok(http::StatusCode::NO_CONTENT)
}

fn check_containers_on_node(
    api: &Api,
    node: &NodeName,
    chunks: &[OutputChunk],
) -> Result<(), Problem> {
    let publisher = api.publisher();
    let is_foreign = |chunk: &OutputChunk| {
        let entry = publisher.get::<ContainerEntry>(CONTAINERS, "", chunk.id.as_str());
        entry.is_some_and(|entry| entry.node != *node)
    };
    let indexed = chunks.iter().enumerate();
    let foreign = indexed.filter(|(_, chunk)| is_foreign(chunk));
    let indices = foreign.map(|(index, _)| index).collect();
    ForeignContainers::check(indices).map_err(|foreign| foreign_problem("chunks", &foreign))
}

fn check_output(chunks: &[OutputChunk]) -> Result<(), Problem> {
    let limit_problem = || Problem::new(Code::Invalid, "the report exceeds a limit");
    if chunks.len() > MAX_CHUNKS {
        return Err(limit_problem().at("/chunks", format!("at most {MAX_CHUNKS}")));
    }
    for (index, chunk) in chunks.iter().enumerate() {
        if chunk.text.len() > MAX_TEXT_BYTES {
            let detail = format!("at most {MAX_TEXT_BYTES} bytes");
            return Err(limit_problem().at(format!("/chunks/{index}/text"), detail));
        }
        // Otherwise a chunk that claims few bytes could occupy much storage.
        if chunk.text.len() as u64 > chunk.bytes.saturating_mul(MAX_TEXT_BYTES_PER_OUTPUT_BYTE) {
            let detail = "must be at least a third of the length of the text";
            return Err(limit_problem().at(format!("/chunks/{index}/bytes"), detail));
        }
        if chunk
            .offset
            .checked_add(chunk.bytes)
            .is_none_or(|end| i64::try_from(end).is_err())
        {
            let detail = "offset plus bytes must be less than 2^63";
            return Err(limit_problem().at(format!("/chunks/{index}/offset"), detail));
        }
    }
    Ok(())
}
