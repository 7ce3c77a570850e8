//! `PUT /v1/nodes/{node}/heartbeat`, the one route that is called all the time.
//!
//! A heartbeat that says what the last one said is parsed only as far as needed to see that, and
//! touches a number in memory. Anything else goes to the ledger.

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
use crate::command::Command;

/// S27: labels of one node.
const LABELS: usize = 64;
const RUNTIMES: usize = 16;
/// Bytes of a name, a label or an instance.
const TEXT: usize = 256;

/// The heartbeat as far as it has to be read to know that it is no news.
#[derive(Deserialize)]
struct Glance<'a> {
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

impl Glance<'_> {
    fn digest(&self, app: &App) -> u64 {
        app.context.pulses.digest(&[
            self.boot_id.get().as_bytes(),
            self.agent_instance.get().as_bytes(),
            self.inventory.get().as_bytes(),
            &[u8::from(self.quiesced)],
            self.quiesce_reason.map_or(&[], |why| why.get().as_bytes()),
        ])
    }
}

/// An agent says that its node is there, and how it is.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/heartbeat", operation_id = "put_heartbeat", tag = "agents",
    params(("node" = NodeName, Path, description = "name of the node")),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "what node-status makes of it", body = HeartbeatAnswer),
        NotItsAgent,
        (status = 409, description = "another agent is this node", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "an inventory that cannot be", body = Problem,
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
    let glance = serde_json::from_slice::<Glance>(&body).ok();
    let digest = glance.as_ref().map_or(0, |glance| glance.digest(&app));
    if let Some(answer) = glance.and_then(|glance| nothing_new(&app, &node, digest, glance)) {
        return Ok(Json(answer));
    }
    let beat: Heartbeat = parse(&body)?;
    check(&beat)?;
    let beat = Box::new(beat);
    let command = |reply| Command::Heartbeat {
        node,
        beat,
        digest,
        reply,
    };
    Ok(Json(app.handle.ask(command).await?.value?))
}

fn nothing_new(
    app: &App,
    node: &NodeName,
    digest: u64,
    glance: Glance<'_>,
) -> Option<HeartbeatAnswer> {
    let pulse = app.context.pulses.get(node.as_str())?;
    let schedulable = pulse.knows(digest)?;
    pulse.touch(app.context.pulses.now_ms());
    pulse.feels(glance.metrics);
    Some(HeartbeatAnswer {
        health: if glance.quiesced {
            Health::Quiesced
        } else {
            Health::Healthy
        },
        schedulable,
        heartbeat_ms: app.context.period_ms(),
        lease_ms: Some(app.context.lease_ms),
    })
}

/// S15, S27: what an agent claims is bounded. All faults at once.
fn check(beat: &Heartbeat) -> Result<(), Problem> {
    let Inventory {
        pool,
        labels,
        runtimes,
        version,
        ..
    } = &beat.inventory;
    let mut faults: Vec<(&str, String)> = Vec::new();
    let long = format!("takes 1 to {TEXT} bytes without control characters");
    let plain =
        |text: &str| (1..=TEXT).contains(&text.len()) && !text.chars().any(char::is_control);
    if !plain(&beat.boot_id) {
        faults.push(("/boot_id", long.clone()));
    }
    if !plain(&beat.agent_instance) {
        faults.push(("/agent_instance", long.clone()));
    }
    if beat
        .quiesce_reason
        .as_deref()
        .is_some_and(|why| !plain(why))
    {
        faults.push(("/quiesce_reason", long.clone()));
    }
    if pool.as_deref().is_some_and(|pool| !plain(pool)) {
        faults.push(("/inventory/pool", long.clone()));
    }
    if version.len() > TEXT {
        faults.push(("/inventory/version", long.clone()));
    }
    if labels.len() > LABELS {
        faults.push(("/inventory/labels", format!("takes up to {LABELS} labels")));
    }
    if labels
        .iter()
        .any(|(name, value)| !plain(name) || value.len() > TEXT)
    {
        faults.push((
            "/inventory/labels",
            format!("each name {long}, each value up to as many"),
        ));
    }
    if runtimes.len() > RUNTIMES || !runtimes.iter().all(|runtime| plain(runtime)) {
        faults.push((
            "/inventory/runtimes",
            format!("takes up to {RUNTIMES}, each of which {long}"),
        ));
    }
    if faults.is_empty() {
        return Ok(());
    }
    let problem = Problem::new(Code::Invalid, "this is not an inventory we can believe");
    Err(faults
        .into_iter()
        .fold(problem, |problem, (pointer, detail)| {
            problem.at(pointer, detail)
        }))
}
