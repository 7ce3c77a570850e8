//! `hayward move` and `restart`: move a process of a service to another node, or restart it on its
//! node. Both request a placement from container-manager.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use hayward_container_manager_api::placements::{
    IfBusy, MoveOrder, PlacementList, PlacementOrder, PlacementStatus, PlacementView, ProcessorList,
};
use hayward_service::Client;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::NodeName;
use serde_json::{Value, json};

use crate::commands::work;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, sanitize};
use crate::output::{Cell, Renderer, Table, Tone, note, toned};
use crate::value_parsers;

const PROCESSOR_PAGES: PageFields = PageFields {
    list: "processors",
    next: "next_cursor",
};
/// Poll interval of a placement.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, clap::Args)]
pub struct MoveArguments {
    /// The process, as `SERVICE.N` or by the id of its container.
    #[arg(value_name = "PROCESS", value_parser = parse_process)]
    pub process: String,
    /// Target: a host, `any`, or `standby` for the host of one of its standbys.
    #[arg(value_name = "HOST")]
    pub to: String,
    /// Allow hosts that are not in the node list of the service.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub options: MoveOptions,
}

#[derive(Debug, Clone, clap::Args)]
pub struct RestartArguments {
    /// The process, as `SERVICE.N`.
    #[arg(value_name = "PROCESS", value_parser = parse_process)]
    pub process: String,
    /// End the process before it is started again, if its host has no space for both.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub options: MoveOptions,
}

#[derive(Debug, Clone, clap::Args)]
pub struct MoveOptions {
    /// Wait for the end of the move, and show its progress. The exit status is 0 if it succeeded.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait for space, as 30s.
    #[arg(long, value_name = "DURATION", value_parser = value_parsers::parse_duration_ms)]
    pub expiry: Option<u64>,
    /// Refuse the move while another move of the process is in flight. Default: wait for the other
    /// move.
    #[arg(long)]
    pub now: bool,
}

/// Checks the name of a process. Processes and nodes have the same character set, which is safe in
/// a path.
fn parse_process(text: &str) -> Result<String, hayward_vocabulary::BadName> {
    NodeName::new(text).map(String::from)
}

pub async fn start_move(session: Session, arguments: MoveArguments) -> anyhow::Result<ExitCode> {
    let to = match arguments.to.as_str() {
        "any" => "ANY_HOST".to_owned(),
        "standby" => "STANDBY".to_owned(),
        _ => arguments.to,
    };
    let destination = Destination {
        to,
        allows_unlisted_nodes: arguments.force,
    };
    request_placement(
        &session,
        &arguments.process,
        destination,
        &arguments.options,
    )
    .await
}

pub async fn restart(session: Session, arguments: RestartArguments) -> anyhow::Result<ExitCode> {
    let to = if arguments.force {
        "FORCE_RESTART_LAST_SEEN"
    } else {
        "LAST_SEEN"
    };
    let destination = Destination {
        to: to.to_owned(),
        allows_unlisted_nodes: false,
    };
    request_placement(
        &session,
        &arguments.process,
        destination,
        &arguments.options,
    )
    .await
}

/// Requested destination of a process.
struct Destination {
    /// Name of a node, or a word of the API such as `ANY_HOST`, `STANDBY` or `LAST_SEEN`.
    to: String,
    /// True if nodes outside the node list of the service are allowed.
    allows_unlisted_nodes: bool,
}

/// Sends the request, and follows the placement to its end if requested.
async fn request_placement(
    session: &Session,
    process: &str,
    destination: Destination,
    options: &MoveOptions,
) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::ContainerManager, Role::User)?;
    let uuid = fresh_uuid().to_string();
    // A name with a dot is a processor. Otherwise it is a container.
    let response: Value = if let Some((service, _)) = process.split_once('.') {
        let request = PlacementOrder {
            uuid: Some(uuid.clone()),
            processor_id: process.to_owned(),
            destination_host: destination.to,
            request_expiry_ms: options.expiry,
            force: destination.allows_unlisted_nodes,
            timestamp: None,
            if_busy: if options.now {
                IfBusy::Reject
            } else {
                IfBusy::Queue
            },
        };
        let path = format!("/v1/deployments/{service}/placements");
        client.post(&path, &request, Some(&uuid)).await?
    } else {
        let request = MoveOrder {
            uuid: Some(uuid.clone()),
            destination_host: destination.to,
            request_expiry_ms: options.expiry,
            force: destination.allows_unlisted_nodes,
        };
        let path = format!("/v1/containers/{process}/moves");
        client.post(&path, &request, Some(&uuid)).await?
    };
    let response = if options.wait {
        follow_placement(&client, response).await?
    } else {
        response
    };
    let view = parse_view(&response)?;
    session
        .out
        .print_response(response, |view: &PlacementView, _| status_text(view))?;
    let failed = [PlacementStatus::Failed, PlacementStatus::BadRequest];
    Ok(if failed.contains(&view.status_code) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn parse_view(response: &Value) -> anyhow::Result<PlacementView> {
    serde_json::from_value(response.clone()).context("an answer of another version")
}

/// Polls until the placement has ended, and prints each step once.
async fn follow_placement(client: &Client, first: Value) -> anyhow::Result<Value> {
    let (mut response, mut last) = (first, String::new());
    loop {
        let view = parse_view(&response)?;
        if view.status_code.is_final() {
            return Ok(response);
        }
        let step = status_text(&view);
        if step != last {
            note(step.trim_end());
            last = step;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let (deployment, uuid) = (&view.deployment_id, &view.uuid);
        let path = format!("/v1/deployments/{deployment}/placements/{uuid}");
        response = client.get(&path).await?;
    }
}

fn status_text(view: &PlacementView) -> String {
    let status = enum_text(&view.status_code)
        .to_lowercase()
        .replace('_', " ");
    let reason = view.reason_code.as_ref().map(enum_text);
    let reason = reason.map_or_else(String::new, |reason| {
        format!(" ({})", reason.to_lowercase().replace('_', " "))
    });
    let message = sanitize(&view.response_message);
    format!("{}: {status}{reason}: {message}\n", view.processor_id)
}

/// Runs `hayward service placements`: lists the nodes of the processes, and the requested moves.
pub async fn list(session: Session, arg: work::IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::ContainerManager, Role::User)?;
    let base = format!("/v1/deployments/{}", arg.id);
    let processors =
        pages::read_all(&client, &format!("{base}/processors"), PROCESSOR_PAGES).await?;
    let placements: Value = client.get(&format!("{base}/placements?limit=1000")).await?;
    let overview = json!({ "processors": processors, "placements": placements });
    session
        .out
        .print_response(overview, |overview: &PlacementOverview, renderer| {
            overview_text(overview, renderer)
        })
}

#[derive(Debug, serde::Deserialize)]
struct PlacementOverview {
    processors: ProcessorList,
    placements: PlacementList,
}

fn overview_text(overview: &PlacementOverview, renderer: &Renderer) -> String {
    let mut table = Table::new(["process", "state", "node", "container", "in flight"]);
    for entry in &overview.processors.processors {
        let optional_cell =
            |value: Option<String>| Cell::from(value.unwrap_or_else(|| "-".to_owned()));
        table.push_row([
            Cell::from(entry.id.to_string()),
            Cell::from(enum_text(&entry.state).to_lowercase()),
            optional_cell(entry.host.as_ref().map(ToString::to_string)),
            optional_cell(entry.resource_id.as_ref().map(ToString::to_string)),
            optional_cell(entry.in_flight.clone()),
        ]);
    }
    let mut text = table.render(renderer);
    let mut table = Table::new(["process", "to", "status", "message", "changed"]);
    for entry in &overview.placements.placements {
        let tone = match entry.status_code {
            PlacementStatus::Succeeded => Tone::Good,
            PlacementStatus::Failed | PlacementStatus::BadRequest => Tone::Bad,
            _ => Tone::Plain,
        };
        let status = enum_text(&entry.status_code)
            .to_lowercase()
            .replace('_', " ");
        table.push_row([
            Cell::from(entry.processor_id.to_string()),
            Cell::from(entry.destination_host.clone()),
            toned(status, tone),
            Cell::from(sanitize(&entry.response_message)),
            Cell::from(renderer.ago(entry.updated_at)),
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        text.push_str(&table.render(renderer));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_step_is_printed_on_one_line() {
        let view = json!({
            "uuid": "u", "deployment_id": "d", "processor_id": "svc_1.0", "destination_host": "n2",
            "timestamp": "2026-11-22T00:00:00Z", "status_code": "FAILED",
            "reason_code": "REQUEST_EXPIRED", "response_message": "no place on n2 within 5000 ms",
            "updated_at": "2026-11-22T00:00:00Z", "requested_by": "ann", "seq": 1
        });
        assert_eq!(
            status_text(&parse_view(&view).unwrap()),
            "svc_1.0: failed (request expired): no place on n2 within 5000 ms\n"
        );
    }
}
