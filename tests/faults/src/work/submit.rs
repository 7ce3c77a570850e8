//! Submits and cancels through every fault. A request is repeated with the same key until it is
//! acknowledged, and once more after that. The last attempt must give the same answer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hayward_job_converter_api::submission::Submitted;
use hayward_service::{Client, ClientError, Code};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{Cancelled, Doors, Item, Shared, bodies, collection, owner};
use crate::fleet::PATIENCE;
use crate::plan::Work;

const AGAIN: Duration = Duration::from_millis(200);

/// Repeats a request until its answer is final.
pub async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, ClientError>) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if is_final(&error) || Instant::now() >= deadline {
            return Err(text_of(&error));
        }
        sleep_until(Instant::now() + AGAIN).await;
    }
}

fn text_of(error: &ClientError) -> String {
    match error.problem() {
        Some(problem) => format!(
            "{:?}: {} {:?}",
            problem.code, problem.detail, problem.errors
        ),
        None => format!("{error:?}"),
    }
}

/// Returns whether a retry is useless. A stepped clock refuses valid tokens for a while.
fn is_final(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| {
        let passing = problem.retryable || problem.retry_after_ms.is_some();
        problem.status().is_client_error() && !passing && problem.code != Code::Unauthenticated
    })
}

/// Submits item `at` and records the result.
pub async fn submit(doors: Doors, shared: Shared, at: usize) {
    let item = shared.borrow().items[at].clone();
    shared.borrow_mut().open += 1;
    let done = acknowledged(&doors, &item).await;
    let mut ledger = shared.borrow_mut();
    ledger.open -= 1;
    match done {
        Ok(id) => {
            ledger.acknowledged += 1;
            ledger.items[at].id = Some(id);
        }
        Err(why) => ledger.broken.push(format!("{}: {why}", item.key)),
    }
}

async fn acknowledged(doors: &Doors, item: &Item) -> Result<String, String> {
    fs::create_dir_all(&item.proofs).map_err(|error| error.to_string())?;
    // Work runs under another account.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&item.proofs, open).map_err(|error| error.to_string())?;
    let client = doors.of_work(item.work);
    let body = bodies::body(item).map_err(|error| error.to_string())?;
    if let Work::Gang { .. } = item.work {
        return gang(client, item, &body).await;
    }
    let path = format!("/v1/{}", collection(item.work));
    if let Work::Pool { .. } = item.work {
        let ask = async || client.post::<_, Value>(&path, &body, Some(&item.key)).await;
        let created = insist(ask).await?;
        return owner::begin(doors, item, &created);
    }
    let ask = async || {
        client
            .post::<_, Submitted>(&path, &body, Some(&item.key))
            .await
    };
    let first = insist(ask).await?;
    let second = insist(ask).await?;
    if first.id != second.id {
        let (one, two) = (first.id, second.id);
        return Err(format!("one key gave two answers: {one} and {two}"));
    }
    Ok(first.id.to_string())
}

async fn gang(client: &Client, item: &Item, body: &Value) -> Result<String, String> {
    let path = format!("/v1/applications/{}", item.key);
    insist(async || client.put::<_, Value>(&path, body).await).await?;
    // All tasks are added at once, because an application whose tasks have ended is completed and
    // takes no more.
    let path = format!("{path}/tasks");
    let members = bodies::members(item);
    let key = format!("tasks-{}", item.key);
    let ask = async || client.post::<_, Value>(&path, &members, Some(&key)).await;
    insist(ask).await?;
    Ok(item.key.clone())
}

/// Cancels item `at`. Work that has ended already may refuse.
pub async fn cancel(doors: Doors, shared: Shared, at: usize) {
    let item = shared.borrow().items[at].clone();
    let Some(path) = item.path() else { return };
    {
        let mut ledger = shared.borrow_mut();
        ledger.items[at].cancelled = Cancelled::Asked;
        ledger.open += 1;
    }
    let client = doors.of_work(item.work);
    let done = match item.work {
        Work::Pool { .. } => {
            let path = format!("{path}/stop");
            let stop = serde_json::json!({ "status": "CANCELED" });
            let key = format!("stop-{}", item.key);
            let ask = async || client.post::<_, Value>(&path, &stop, Some(&key)).await;
            insist(ask).await.map(drop)
        }
        Work::Gang { .. } => {
            let path = format!("{path}?force=true");
            let ask = async || client.delete::<Value>(&path).await;
            insist(ask).await.map(drop)
        }
        _ => {
            let ask = async || client.delete::<Value>(&path).await;
            insist(ask).await.map(drop)
        }
    };
    let mut ledger = shared.borrow_mut();
    ledger.open -= 1;
    match done {
        Ok(()) => {
            ledger.acknowledged += 1;
            ledger.items[at].cancelled = Cancelled::Acknowledged;
        }
        Err(why) => ledger.refused.push(format!("cancel {}: {why}", item.key)),
    }
}
