//! `hayward node drain`: previews and starts a drain, then shows its progress. Without flags it
//! shows the current drain.

mod preview;
mod progress;

use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_vocabulary::NodeName;
use http::Method;
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::value_parsers;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person sets or not"
)]
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Start the drain for this reason, which is shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Time, as 30m, after which the remaining work moves without regard to disruption limits.
    #[arg(long, value_name = "DURATION", value_parser = value_parsers::parse_duration_ms)]
    pub deadline: Option<u64>,
    /// Start the drain even if too little of the pool would remain.
    #[arg(long)]
    pub force: bool,
    /// Change nothing; show the work that would move or stay, its users, and the expected time.
    #[arg(long, conflicts_with_all = ["pause", "resume", "cancel", "wait"])]
    pub preview: bool,
    /// Pause the drain: no more work moves, and the node still takes no new work.
    #[arg(long, conflicts_with_all = ["resume", "cancel"])]
    pub pause: bool,
    /// Continue a paused drain.
    #[arg(long, conflicts_with = "cancel")]
    pub resume: bool,
    /// End the drain: the node takes work again.
    #[arg(long, conflicts_with_all = ["reason", "deadline", "force", "wait"])]
    pub cancel: bool,
    /// Watch the drain until the node is empty, or the drain has failed or is cancelled.
    #[arg(long)]
    pub wait: bool,
}

pub async fn run(session: &Session, arguments: Arguments) -> anyhow::Result<()> {
    let path = format!("/v1/nodes/{}/drain", arguments.node);
    if arguments.preview {
        return preview::run(session, &arguments.node).await;
    }
    if arguments.cancel {
        let client = session.client(Service::NodeStatus, Role::Operator)?;
        let cancel = client.call(Method::DELETE, &path).if_match_any();
        let response: Value = cancel.send().await?;
        return print_drain(session, response);
    }
    let response: Value = if let Some(request) = drain_request(&arguments) {
        let client = session.client(Service::NodeStatus, Role::Operator)?;
        let call = client.call(Method::PUT, &path).body(&request);
        call.if_match_any().send().await?
    } else {
        let client = session.client(Service::NodeStatus, Role::Reader)?;
        client.get(&path).await?
    };
    if arguments.wait {
        return progress::watch(session, &path).await;
    }
    print_drain(session, response)
}

/// Returns the requested change. Returns `None` without flags.
fn drain_request(arguments: &Arguments) -> Option<DrainRequest> {
    let paused = match (arguments.pause, arguments.resume) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let deadline = arguments.deadline;
    let request = DrainRequest {
        reason: arguments.reason.clone(),
        deadline_ms: deadline.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        deadline: None,
        paused,
        force: arguments.force,
    };
    (request != DrainRequest::default()).then_some(request)
}

fn print_drain(session: &Session, response: Value) -> anyhow::Result<()> {
    session
        .out
        .print_response(response, |view: &DrainView, renderer| {
            progress::render(view, renderer)
        })
}
