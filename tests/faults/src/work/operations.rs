//! Sends operations of operators and users on existing work and nodes while faults happen, and
//! withdraws the operations after the repairs.

use hayward_service::runtime::clock::fresh_uuid;
use http::Method;
use serde_json::{Value, json};

use super::retry::retry_until_final;
use super::{AcknowledgedOperation, Clients, SharedLedger, cancel, choose_class_node};
use crate::plan::{Choice, Operation, Service};

/// Sends an operation until it is acknowledged or refused, and records the result.
pub async fn execute_operation(clients: Clients, shared: SharedLedger, operation: Operation) {
    if let Operation::Cancel { choice } = operation {
        let index = shared.borrow().choose(choice, |_| true);
        if let Some(index) = index {
            cancel(clients, shared, index).await;
        }
        return;
    }
    shared.borrow_mut().in_flight += 1;
    let result = request_operation(&clients, &shared, operation).await;
    let mut ledger = shared.borrow_mut();
    ledger.in_flight -= 1;
    match result {
        Some(Ok(path)) => {
            ledger.acknowledged_count += 1;
            ledger
                .acknowledged_operations
                .push(AcknowledgedOperation { operation, path });
        }
        Some(Err(reason)) => ledger.refusals.push(format!("{operation:?}: {reason}")),
        None => {}
    }
}

/// Sends an operation. Returns the URL path of its state or the reason of a refusal, and `None` if
/// there is no target.
async fn request_operation(
    clients: &Clients,
    shared: &SharedLedger,
    operation: Operation,
) -> Option<Result<String, String>> {
    let operators = &clients.operators;
    let result = match operation {
        Operation::Cancel { .. } => return None,
        Operation::Block {
            agent,
            evacuate,
            graceful,
        } => {
            let mut body = json!({
                "type": "NODE", "identifier": agent.to_string(), "permanent": true,
                "action": if evacuate { "evacuate" } else { "mark" }, "cause": "faults",
            });
            if evacuate && graceful {
                body["evacuation"] = json!({ "policy": "GRACEFUL", "grace_ms": 3_000 });
            }
            let client = &operators[&Service::Blocklist];
            let request = async || {
                let call = client.call(Method::PUT, "/v1/blocklist/items");
                call.body(&body).send::<Value>().await
            };
            let path = format!("/v1/blocklist/items/node/{agent}");
            retry_until_final(request).await.map(|_| path)
        }
        Operation::Drain { agent } => {
            let body = json!({ "reason": "faults", "force": true });
            let path = format!("/v1/nodes/{agent}/drain");
            put_on_node(clients, &path, &body).await.map(|()| path)
        }
        Operation::MakeUnschedulable { agent } => {
            let body = json!({ "schedulable": false, "reason": "faults" });
            let path = format!("/v1/nodes/{agent}/schedulable");
            put_on_node(clients, &path, &body).await.map(|()| path)
        }
        Operation::Move { choice } => return move_process(clients, shared, choice).await,
    };
    Some(result)
}

async fn put_on_node(clients: &Clients, path: &str, body: &Value) -> Result<(), String> {
    let client = &clients.operators[&Service::NodeStatus];
    let request = async || {
        let call = client.call(Method::PUT, path).body(body);
        call.if_match_any().send::<Value>().await
    };
    retry_until_final(request).await.map(drop)
}

/// Requests to move a process of a service to a node.
async fn move_process(
    clients: &Clients,
    shared: &SharedLedger,
    choice: Choice,
) -> Option<Result<String, String>> {
    let index = shared.borrow().choose(choice, super::Item::is_service)?;
    let id = shared.borrow().items[index].id.clone()?;
    let uuid = fresh_uuid().to_string();
    let body = json!({
        "uuid": uuid, "processor_id": "0", "request_expiry_ms": 20_000,
        "destination_host": choose_class_node(choice).to_string(),
    });
    let path = format!("/v1/deployments/{id}/placements");
    let request = async || {
        let key = Some(uuid.as_str());
        clients.containers.post::<_, Value>(&path, &body, key).await
    };
    Some(
        retry_until_final(request)
            .await
            .map(|_| format!("{path}/{uuid}")),
    )
}

/// Withdraws an operation that keeps work from running: a block, a drain, or an unschedulable node.
/// Other operations are left as they are.
pub async fn withdraw(
    clients: &Clients,
    acknowledged: &AcknowledgedOperation,
) -> Result<(), String> {
    let operators = &clients.operators;
    match acknowledged.operation {
        Operation::Block { .. } => {
            let client = &operators[&Service::Blocklist];
            retry_until_final(async || client.delete::<Value>(&acknowledged.path).await).await?;
        }
        Operation::Drain { .. } => {
            let client = &operators[&Service::NodeStatus];
            let request = async || {
                let call = client.call(Method::DELETE, acknowledged.path.as_str());
                call.if_match_any().send::<Value>().await
            };
            retry_until_final(request).await?;
        }
        Operation::MakeUnschedulable { .. } => {
            let body = json!({ "schedulable": true });
            put_on_node(clients, &acknowledged.path, &body).await?;
        }
        Operation::Cancel { .. } | Operation::Move { .. } => {}
    }
    Ok(())
}
