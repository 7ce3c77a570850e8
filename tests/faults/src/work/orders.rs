//! Gives orders of operators and users through every fault, and withdraws them in the calm.

use hayward_service::runtime::clock::fresh_uuid;
use http::Method;
use serde_json::{Value, json};

use super::submit::insist;
use super::{Doors, Given, Shared, cancel, other_host};
use crate::plan::{Chosen, Order, Service};

pub async fn carry_out(doors: Doors, shared: Shared, order: Order) {
    if let Order::Cancel { chosen } = order {
        let at = shared.borrow().choose(chosen, |_| true);
        if let Some(at) = at {
            cancel(doors, shared, at).await;
        }
        return;
    }
    shared.borrow_mut().open += 1;
    let done = give(&doors, &shared, order).await;
    let mut ledger = shared.borrow_mut();
    ledger.open -= 1;
    match done {
        Some(Ok(path)) => {
            ledger.acknowledged += 1;
            ledger.given.push(Given { order, path });
        }
        Some(Err(why)) => ledger.refused.push(format!("{order:?}: {why}")),
        None => {}
    }
}

/// Gives an order and returns its path, or `None` if there is no target.
async fn give(doors: &Doors, shared: &Shared, order: Order) -> Option<Result<String, String>> {
    let operators = &doors.operators;
    let done = match order {
        Order::Cancel { .. } => return None,
        Order::Block {
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
            let ask = async || {
                let call = client.call(Method::PUT, "/v1/blocklist/items");
                call.body(&body).send::<Value>().await
            };
            let path = format!("/v1/blocklist/items/node/{agent}");
            insist(ask).await.map(|_| path)
        }
        Order::Drain { agent } => {
            let body = json!({ "reason": "faults", "force": true });
            let path = format!("/v1/nodes/{agent}/drain");
            put_whatever(doors, &path, &body).await.map(|()| path)
        }
        Order::Vary { agent } => {
            let body = json!({ "schedulable": false, "reason": "faults" });
            let path = format!("/v1/nodes/{agent}/schedulable");
            put_whatever(doors, &path, &body).await.map(|()| path)
        }
        Order::Move { chosen } => return shift(doors, shared, chosen).await,
    };
    Some(done)
}

async fn put_whatever(doors: &Doors, path: &str, body: &Value) -> Result<(), String> {
    let client = &doors.operators[&Service::NodeStatus];
    let ask = async || {
        let call = client.call(Method::PUT, path).body(body);
        call.if_match_any().send::<Value>().await
    };
    insist(ask).await.map(drop)
}

/// Moves a process of a service.
async fn shift(doors: &Doors, shared: &Shared, chosen: Chosen) -> Option<Result<String, String>> {
    let at = shared.borrow().choose(chosen, super::Item::is_service)?;
    let id = shared.borrow().items[at].id.clone()?;
    let uuid = fresh_uuid().to_string();
    let body = json!({
        "uuid": uuid, "processor_id": "0", "request_expiry_ms": 20_000,
        "destination_host": other_host(chosen).to_string(),
    });
    let path = format!("/v1/deployments/{id}/placements");
    let ask = async || {
        let key = Some(uuid.as_str());
        doors.containers.post::<_, Value>(&path, &body, key).await
    };
    Some(insist(ask).await.map(|_| format!("{path}/{uuid}")))
}

/// Withdraws an order that hinders work.
pub async fn take_back(doors: &Doors, given: &Given) -> Result<(), String> {
    let operators = &doors.operators;
    match given.order {
        Order::Block { .. } => {
            let client = &operators[&Service::Blocklist];
            insist(async || client.delete::<Value>(&given.path).await).await?;
        }
        Order::Drain { .. } => {
            let client = &operators[&Service::NodeStatus];
            let ask = async || {
                let call = client.call(Method::DELETE, given.path.as_str());
                call.if_match_any().send::<Value>().await
            };
            insist(ask).await?;
        }
        Order::Vary { .. } => {
            let body = json!({ "schedulable": true });
            put_whatever(doors, &given.path, &body).await?;
        }
        Order::Cancel { .. } | Order::Move { .. } => {}
    }
    Ok(())
}
