//! `PUT /v1/nodes/{node}/heartbeat`, the most frequent request.
//!
//! An unchanged heartbeat is parsed only as far as the comparison needs, and the handler records
//! its time. Any other heartbeat is a command for the ledger.

use axum::body::Bytes;
use axum::extract::State;
use hayward_node_status_api::{Health, Heartbeat, HeartbeatAnswer, Inventory, Metrics};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path, parse};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{App, NotItsAgent};
use crate::command::{Command, ReceivedHeartbeat};

/// Maximum number of labels of a node (S27).
const MAX_LABELS: usize = 64;
const MAX_RUNTIMES: usize = 16;
/// Maximum length of a name, a label or an instance, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// A heartbeat that is parsed only as far as the comparison with the last one needs. The other
/// fields stay as raw JSON.
#[derive(Deserialize)]
struct HeartbeatPeek<'a> {
    #[serde(borrow)]
    boot_id: &'a RawValue,
    #[serde(borrow)]
    agent_instance: &'a RawValue,
    #[serde(borrow)]
    inventory: &'a RawValue,
    #[serde(default)]
    metrics: Metrics,
    #[serde(default)]
    quiesced: bool,
    #[serde(borrow, default)]
    quiesce_reason: Option<&'a RawValue>,
}

impl HeartbeatPeek<'_> {
    fn digest(&self, app: &App) -> u64 {
        app.context.heartbeats.digest(&[
            self.boot_id.get().as_bytes(),
            self.agent_instance.get().as_bytes(),
            self.inventory.get().as_bytes(),
            &[u8::from(self.quiesced)],
            self.quiesce_reason.map_or(&[], |why| why.get().as_bytes()),
        ])
    }
}

/// Reports that a node is alive, and its inventory and load.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/heartbeat", operation_id = "put_heartbeat", tag = "agents",
    params(("node" = NodeName, Path, description = "name of the node")),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "health and lease of the node", body = HeartbeatAnswer),
        NotItsAgent,
        (status = 409, description = "another agent represents this node", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid inventory", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn put_heartbeat(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<NodeName>,
    body: Bytes,
) -> Result<Json<HeartbeatAnswer>, Problem> {
    caller.require_agent(&node)?;
    app.publisher.leading()?;
    let peek = serde_json::from_slice::<HeartbeatPeek>(&body).ok();
    let digest = peek.as_ref().map_or(0, |peek| peek.digest(&app));
    if let Some(answer) = peek.and_then(|peek| answer_unchanged(&app, &node, digest, peek)) {
        return Ok(Json(answer));
    }
    let heartbeat: Heartbeat = parse(&body)?;
    validate(&heartbeat)?;
    let received = Box::new(ReceivedHeartbeat {
        node,
        heartbeat,
        digest,
    });
    let command = |reply| Command::Heartbeat { received, reply };
    Ok(Json(app.handle.execute(command).await?.value?))
}

/// Returns the response to a heartbeat that needs no new judgement, or `None` if it needs one.
fn answer_unchanged(
    app: &App,
    node: &NodeName,
    digest: u64,
    peek: HeartbeatPeek<'_>,
) -> Option<HeartbeatAnswer> {
    let heartbeat = app.context.heartbeats.get(node.as_str())?;
    let schedulable = heartbeat.schedulable_if_unchanged(digest)?;
    heartbeat.record(app.context.heartbeats.now_ms());
    heartbeat.set_metrics(peek.metrics);
    Some(HeartbeatAnswer {
        health: if peek.quiesced {
            Health::Quiesced
        } else {
            Health::Healthy
        },
        schedulable,
        heartbeat_ms: app.context.period_ms(),
        lease_ms: Some(app.context.lease_ms),
    })
}

/// Checks the sizes of all fields, and reports all faults (S27).
fn validate(heartbeat: &Heartbeat) -> Result<(), Problem> {
    let Inventory {
        pool,
        labels,
        runtimes,
        version,
        ..
    } = &heartbeat.inventory;
    let mut faults: Vec<(&str, String)> = Vec::new();
    let text_limit = format!("takes 1 to {MAX_TEXT_BYTES} bytes without control characters");
    let is_valid = |text: &str| {
        (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    if !is_valid(&heartbeat.boot_id) {
        faults.push(("/boot_id", text_limit.clone()));
    }
    if !is_valid(&heartbeat.agent_instance) {
        faults.push(("/agent_instance", text_limit.clone()));
    }
    if heartbeat
        .quiesce_reason
        .as_deref()
        .is_some_and(|why| !is_valid(why))
    {
        faults.push(("/quiesce_reason", text_limit.clone()));
    }
    if pool.as_deref().is_some_and(|pool| !is_valid(pool)) {
        faults.push(("/inventory/pool", text_limit.clone()));
    }
    if version.len() > MAX_TEXT_BYTES {
        faults.push(("/inventory/version", text_limit.clone()));
    }
    if labels.len() > MAX_LABELS {
        let detail = format!("takes up to {MAX_LABELS} labels");
        faults.push(("/inventory/labels", detail));
    }
    let is_invalid =
        |(name, value): (&String, &String)| !is_valid(name) || value.len() > MAX_TEXT_BYTES;
    if labels.iter().any(is_invalid) {
        let detail = format!("each name {text_limit}, each value up to as many");
        faults.push(("/inventory/labels", detail));
    }
    if runtimes.len() > MAX_RUNTIMES || !runtimes.iter().all(|runtime| is_valid(runtime)) {
        faults.push((
            "/inventory/runtimes",
            format!("takes up to {MAX_RUNTIMES}, each of which {text_limit}"),
        ));
    }
    if faults.is_empty() {
        return Ok(());
    }
    let problem = Problem::new(Code::Invalid, "invalid inventory");
    Err(faults
        .into_iter()
        .fold(problem, |problem, (pointer, detail)| {
            problem.at(pointer, detail)
        }))
}
