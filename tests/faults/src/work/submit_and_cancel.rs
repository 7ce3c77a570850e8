//! Submits and cancels work while faults happen. A request is repeated with the same idempotency
//! key until it is acknowledged. A job, service or reservation is then submitted once more, and the
//! answer must name the same id.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hayward_job_converter_api::submission::Submitted;
use hayward_service::Client;
use serde_json::Value;

use super::retry::retry_until_final;
use super::{
    Cancellation, Clients, Item, SharedLedger, collection_path, pool_owner, request_bodies,
};
use crate::plan::Work;

/// Submits item `index` and records the result.
pub async fn submit(clients: Clients, shared: SharedLedger, index: usize) {
    let item = shared.borrow().items[index].clone();
    shared.borrow_mut().in_flight += 1;
    let result = submit_until_acknowledged(&clients, &item).await;
    let mut ledger = shared.borrow_mut();
    ledger.in_flight -= 1;
    match result {
        Ok(id) => {
            ledger.acknowledged_count += 1;
            ledger.items[index].id = Some(id);
        }
        Err(reason) => ledger
            .broken_promises
            .push(format!("{}: {reason}", item.key)),
    }
}

async fn submit_until_acknowledged(clients: &Clients, item: &Item) -> Result<String, String> {
    fs::create_dir_all(&item.proofs).map_err(|error| error.to_string())?;
    // Work runs under another account, which must be able to write proofs.
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&item.proofs, mode).map_err(|error| error.to_string())?;
    let client = clients.for_work(item.work);
    let body = request_bodies::submission_body(item).map_err(|error| error.to_string())?;
    if let Work::Gang { .. } = item.work {
        return submit_gang(client, item, &body).await;
    }
    let path = format!("/v1/{}", collection_path(item.work));
    if let Work::Pool { .. } = item.work {
        let request = async || client.post::<_, Value>(&path, &body, Some(&item.key)).await;
        let created = retry_until_final(request).await?;
        return pool_owner::start(clients, item, &created);
    }
    let request = async || {
        client
            .post::<_, Submitted>(&path, &body, Some(&item.key))
            .await
    };
    let first = retry_until_final(request).await?;
    let second = retry_until_final(request).await?;
    if first.id != second.id {
        let (first_id, second_id) = (first.id, second.id);
        return Err(format!(
            "one key gave two answers: {first_id} and {second_id}"
        ));
    }
    Ok(first.id.to_string())
}

async fn submit_gang(client: &Client, item: &Item, body: &Value) -> Result<String, String> {
    let path = format!("/v1/applications/{}", item.key);
    retry_until_final(async || client.put::<_, Value>(&path, body).await).await?;
    // All tasks are added at once, because an application whose tasks have ended is completed and
    // takes no more.
    let path = format!("{path}/tasks");
    let members = request_bodies::gang_tasks(item);
    let key = format!("tasks-{}", item.key);
    let request = async || client.post::<_, Value>(&path, &members, Some(&key)).await;
    retry_until_final(request).await?;
    Ok(item.key.clone())
}

/// Cancels item `index`. Work that has ended already may refuse.
pub async fn cancel(clients: Clients, shared: SharedLedger, index: usize) {
    let item = shared.borrow().items[index].clone();
    let Some(path) = item.path() else { return };
    {
        let mut ledger = shared.borrow_mut();
        ledger.items[index].cancellation = Cancellation::Requested;
        ledger.in_flight += 1;
    }
    let client = clients.for_work(item.work);
    let result = match item.work {
        Work::Pool { .. } => {
            let path = format!("{path}/stop");
            let stop_request = serde_json::json!({ "status": "CANCELED" });
            let key = format!("stop-{}", item.key);
            let request = async || {
                client
                    .post::<_, Value>(&path, &stop_request, Some(&key))
                    .await
            };
            retry_until_final(request).await.map(drop)
        }
        Work::Gang { .. } => {
            let path = format!("{path}?force=true");
            let request = async || client.delete::<Value>(&path).await;
            retry_until_final(request).await.map(drop)
        }
        _ => {
            let request = async || client.delete::<Value>(&path).await;
            retry_until_final(request).await.map(drop)
        }
    };
    let mut ledger = shared.borrow_mut();
    ledger.in_flight -= 1;
    match result {
        Ok(()) => {
            ledger.acknowledged_count += 1;
            ledger.items[index].cancellation = Cancellation::Acknowledged;
        }
        Err(reason) => ledger
            .refusals
            .push(format!("cancel {}: {reason}", item.key)),
    }
}
