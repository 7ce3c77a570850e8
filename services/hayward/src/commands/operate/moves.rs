//! `hayward move` and `restart`: move a process of a service to another node, or restart it in
//! place.

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

use crate::amounts;
use crate::commands::work;
use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::format::{clean, word};
use crate::output::{Cell, Renderer, Table, Tone, note, toned};

const PROCESSORS: Pages = Pages {
    list: "processors",
    next: "next_cursor",
};
/// Poll interval of a placement.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, clap::Args)]
pub struct Move {
    /// `SERVICE.N`, or the id of a container.
    #[arg(value_name = "PROCESS", value_parser = name)]
    pub process: String,
    /// A host; `any`, or `standby`: the host of one that stands by for it.
    #[arg(value_name = "HOST")]
    pub to: String,
    /// Also to a host that the machines of the service leave out.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub how: MoveOptions,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Restart {
    /// `SERVICE.N`
    #[arg(value_name = "PROCESS", value_parser = name)]
    pub process: String,
    /// End it first and start it after, where its host has no room for both at one time.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub how: MoveOptions,
}

#[derive(Debug, Clone, clap::Args)]
pub struct MoveOptions {
    /// Wait for the end of it, and show how far it is. The exit status is 0 when it went well.
    #[arg(long)]
    pub wait: bool,
    /// Give up when no place is found for so long, as 30s.
    #[arg(long, value_name = "DURATION", value_parser = amounts::duration_ms)]
    pub expiry: Option<u64>,
    /// Refuse it while another move of the process is on its way. Default: wait for its turn.
    #[arg(long)]
    pub now: bool,
}

/// Checks a name. The character set of names is safe in a path.
fn name(text: &str) -> Result<String, hayward_vocabulary::BadName> {
    NodeName::new(text).map(String::from)
}

pub async fn start_move(session: Session, order: Move) -> anyhow::Result<ExitCode> {
    let to = match order.to.as_str() {
        "any" => "ANY_HOST".to_owned(),
        "standby" => "STANDBY".to_owned(),
        _ => order.to,
    };
    let wanted = Wanted {
        to,
        force: order.force,
    };
    place(&session, &order.process, wanted, &order.how).await
}

pub async fn restart(session: Session, order: Restart) -> anyhow::Result<ExitCode> {
    let to = if order.force {
        "FORCE_RESTART_LAST_SEEN"
    } else {
        "LAST_SEEN"
    };
    let wanted = Wanted {
        to: to.to_owned(),
        force: false,
    };
    place(&session, &order.process, wanted, &order.how).await
}

/// Requested destination of a process.
struct Wanted {
    to: String,
    /// True if nodes outside the node list of the service are allowed.
    force: bool,
}

async fn place(
    session: &Session,
    process: &str,
    wanted: Wanted,
    how: &MoveOptions,
) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::ContainerManager, Role::User)?;
    let uuid = fresh_uuid().to_string();
    let answer: Value = if let Some((service, _)) = process.split_once('.') {
        let order = PlacementOrder {
            uuid: Some(uuid.clone()),
            processor_id: process.to_owned(),
            destination_host: wanted.to,
            request_expiry_ms: how.expiry,
            force: wanted.force,
            timestamp: None,
            if_busy: if how.now {
                IfBusy::Reject
            } else {
                IfBusy::Queue
            },
        };
        let path = format!("/v1/deployments/{service}/placements");
        client.post(&path, &order, Some(&uuid)).await?
    } else {
        let order = MoveOrder {
            uuid: Some(uuid.clone()),
            destination_host: wanted.to,
            request_expiry_ms: how.expiry,
            force: wanted.force,
        };
        let path = format!("/v1/containers/{process}/moves");
        client.post(&path, &order, Some(&uuid)).await?
    };
    let answer = if how.wait {
        follow(&client, answer).await?
    } else {
        answer
    };
    let view = read(&answer)?;
    session
        .out
        .answer(answer, |view: &PlacementView, _| status_text(view))?;
    let bad = [PlacementStatus::Failed, PlacementStatus::BadRequest];
    Ok(if bad.contains(&view.status_code) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn read(answer: &Value) -> anyhow::Result<PlacementView> {
    serde_json::from_value(answer.clone()).context("an answer of another version")
}

/// Polls until the placement has ended, and prints each step once.
async fn follow(client: &Client, first: Value) -> anyhow::Result<Value> {
    let (mut answer, mut last) = (first, String::new());
    loop {
        let view = read(&answer)?;
        if view.status_code.is_final() {
            return Ok(answer);
        }
        let step = status_text(&view);
        if step != last {
            note(step.trim_end());
            last = step;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let (deployment, uuid) = (&view.deployment_id, &view.uuid);
        let path = format!("/v1/deployments/{deployment}/placements/{uuid}");
        answer = client.get(&path).await?;
    }
}

fn status_text(view: &PlacementView) -> String {
    let status = word(&view.status_code).to_lowercase().replace('_', " ");
    let reason = view.reason_code.as_ref().map(word);
    let reason = reason.map_or_else(String::new, |reason| {
        format!(" ({})", reason.to_lowercase().replace('_', " "))
    });
    let message = clean(&view.response_message);
    format!("{}: {status}{reason}: {message}\n", view.processor_id)
}

/// Runs `hayward service placements`: lists the nodes of the processes, and the ordered moves.
pub async fn list(session: Session, arg: work::IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::ContainerManager, Role::User)?;
    let base = format!("/v1/deployments/{}", arg.id);
    let processors = pages::all(&client, &format!("{base}/processors"), PROCESSORS).await?;
    let placements: Value = client.get(&format!("{base}/placements?limit=1000")).await?;
    let both = json!({ "processors": processors, "placements": placements });
    session
        .out
        .answer(both, |both: &Both, renderer| shown(both, renderer))
}

#[derive(Debug, serde::Deserialize)]
struct Both {
    processors: ProcessorList,
    placements: PlacementList,
}

fn shown(both: &Both, renderer: &Renderer) -> String {
    let mut table = Table::new(["process", "state", "node", "container", "in flight"]);
    for it in &both.processors.processors {
        let text = |value: Option<String>| Cell::from(value.unwrap_or_else(|| "-".to_owned()));
        table.row([
            Cell::from(it.id.to_string()),
            Cell::from(word(&it.state).to_lowercase()),
            text(it.host.as_ref().map(ToString::to_string)),
            text(it.resource_id.as_ref().map(ToString::to_string)),
            text(it.in_flight.clone()),
        ]);
    }
    let mut text = table.text(renderer);
    let mut table = Table::new(["process", "to", "status", "said", "changed"]);
    for it in &both.placements.placements {
        let tone = match it.status_code {
            PlacementStatus::Succeeded => Tone::Good,
            PlacementStatus::Failed | PlacementStatus::BadRequest => Tone::Bad,
            _ => Tone::Plain,
        };
        let status = word(&it.status_code).to_lowercase().replace('_', " ");
        table.row([
            Cell::from(it.processor_id.to_string()),
            Cell::from(it.destination_host.clone()),
            toned(status, tone),
            Cell::from(clean(&it.response_message)),
            Cell::from(renderer.ago(it.updated_at)),
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        text.push_str(&table.text(renderer));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line() {
        let view = json!({
            "uuid": "u", "deployment_id": "d", "processor_id": "svc_1.0", "destination_host": "n2",
            "timestamp": "2026-11-22T00:00:00Z", "status_code": "FAILED",
            "reason_code": "REQUEST_EXPIRED", "response_message": "no place on n2 within 5000 ms",
            "updated_at": "2026-11-22T00:00:00Z", "requested_by": "ann", "seq": 1
        });
        assert_eq!(
            status_text(&read(&view).unwrap()),
            "svc_1.0: failed (request expired): no place on n2 within 5000 ms\n"
        );
    }
}
