//! `hayward node on`: lets the node take work again and ends its drain. It also prints other causes
//! that keep work away, with their remedy.

use std::fmt::Write as _;

use hayward_blocklist_api::BlockView;
use hayward_node_status_api::{Health, NodeEntry};
use hayward_service::{Client, ClientError, Code};
use hayward_vocabulary::NodeName;
use http::Method;
use serde_json::Value;

use super::{VaryArguments, set_schedulable};
use crate::commands::operate::block::ROUTE;
use crate::connection::{Role, Service, Session};
use crate::output::format::sanitize;

pub async fn run(session: &Session, vary: VaryArguments) -> anyhow::Result<()> {
    let node = vary.node.clone();
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let had_drain = end_drain(&client, &node).await?;
    let response = set_schedulable(session, vary, true).await?;
    let block = read_block(session, &node).await;
    session
        .out
        .print_response(response, |entry: &NodeEntry, _| {
            render(entry, had_drain, block.as_ref())
        })
}

/// Ends the drain. Returns false if there was none.
async fn end_drain(client: &Client, node: &NodeName) -> anyhow::Result<bool> {
    let path = format!("/v1/nodes/{node}/drain");
    let cancel = client.call(Method::DELETE, path).if_match_any();
    match cancel.send::<Value>().await {
        Ok(_) => Ok(true),
        Err(error) if is_not_found(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_not_found(error: &ClientError) -> bool {
    error
        .problem()
        .is_some_and(|problem| problem.code == Code::NotFound)
}

/// Returns the block of the node. Returns `None` without a block, or if blocklist does not answer.
async fn read_block(session: &Session, node: &NodeName) -> Option<BlockView> {
    let client = session.client(Service::Blocklist, Role::Reader).ok()?;
    let view: BlockView = client.get(&format!("{ROUTE}/nodes/{node}")).await.ok()?;
    // A node on trial takes one allocation at a time, so its block does not keep all work away.
    (!view.item.canary).then_some(view)
}

fn render(entry: &NodeEntry, had_drain: bool, block: Option<&BlockView>) -> String {
    let node = &entry.node;
    let drain_text = if had_drain {
        ", and its drain is ended"
    } else {
        ""
    };
    let mut text = format!("{node} is on{drain_text}\n");
    if entry.health != Health::Healthy {
        let _ = writeln!(text, "it takes no work yet: {}", sanitize(&entry.reason));
    }
    if let Some(block) = block {
        let cause = sanitize(&block.item.cause);
        let remedy = format!("`hayward unblock {node}` removes the block");
        let _ = writeln!(
            text,
            "it takes no work yet: it is blocked: {cause}; {remedy}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_causes_that_keep_work_away_are_printed_with_their_remedy() {
        let entry = |health: &str| -> NodeEntry {
            serde_json::from_value(json!({
                "node": "n1", "pool": "default", "capacity": {}, "labels": {}, "runtimes": [],
                "health": health, "schedulable": true, "reason": "no heartbeat for 15 s",
                "since": "2026-01-01T00:00:00.000Z", "boot_id": "b", "agent_instance": "a",
            }))
            .unwrap()
        };
        let block: BlockView = serde_json::from_value(json!({
            "type": "NODE", "identifier": "n1", "action": "MARK_BLOCKLISTED", "cause": "hot",
            "start": "2026-01-01T00:00:00.000Z", "sources": [], "removal_no": 0,
        }))
        .unwrap();
        let healthy = entry("healthy");
        assert_eq!(render(&healthy, false, None), "n1 is on\n");
        assert_eq!(
            render(&healthy, true, None),
            "n1 is on, and its drain is ended\n"
        );
        let blocked = render(&healthy, false, Some(&block));
        assert!(
            blocked.contains("it is blocked: hot; `hayward unblock n1`"),
            "{blocked}"
        );
        let silent = render(&entry("suspect"), false, None);
        assert!(
            silent.contains("takes no work yet: no heartbeat for 15 s"),
            "{silent}"
        );
    }
}
