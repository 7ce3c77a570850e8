//! Acts as the owner of a worker pool: sets the size of the pool and reports its live workers
//! periodically.

use std::time::Duration;

use hayward_service::{Client, TokenSource};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Clients, Item, live_workers};
use crate::plan::Work;

const REPORT_INTERVAL: Duration = Duration::from_millis(700);

/// Starts the owner of a created pool, which runs until the pool is stopped. Returns the id of the
/// pool.
pub fn start(clients: &Clients, item: &Item, created: &Value) -> Result<String, String> {
    let id = created["pool"]["id"]
        .as_str()
        .ok_or("a pool without an id")?;
    let token = created["token"].as_str().ok_or("a pool without a token")?;
    let file = clients.token_folder.join(format!("{}.owner", item.key));
    std::fs::write(&file, token).map_err(|error| error.to_string())?;
    let client = Client::from_list(&clients.scheduler_urls, TokenSource::file(file));
    let client = client.map_err(|error| error.to_string())?;
    let owner = Owner {
        client,
        path: format!("/v1/pools/{id}"),
        item: item.clone(),
    };
    tokio::task::spawn_local(owner.report_periodically());
    Ok(id.to_owned())
}

struct Owner {
    client: Client,
    path: String,
    item: Item,
}

impl Owner {
    async fn report_periodically(self) {
        loop {
            // A failed report is repeated in the next period. The answer 410 means that the pool
            // was stopped.
            let is_stopped = self.report().await.is_err_and(|error| {
                error
                    .problem()
                    .is_some_and(|problem| problem.status() == http::StatusCode::GONE)
            });
            if is_stopped {
                return;
            }
            sleep_until(Instant::now() + REPORT_INTERVAL).await;
        }
    }

    async fn report(&self) -> Result<(), hayward_service::ClientError> {
        let Work::Pool { size } = self.item.work else {
            return Ok(());
        };
        // A pool has only one owner in this test, so the epoch never changes, and no worker calls
        // the address.
        let owner_report = json!({
            "epoch": 1, "address": "nowhere", "workers": live_workers(&self.item),
        });
        let response: Value = self
            .client
            .put(&format!("{}/owner", self.path), &owner_report)
            .await?;
        // A worker that returned with its node may be surplus, and only the owner may release it.
        let pool = &response["pool"];
        let is_above_size = pool["started"].as_u64() > Some(u64::from(size));
        if is_above_size || pool["designated"] != json!(size) {
            let connection = response["connection"].to_string();
            let call = self
                .client
                .call(http::Method::PUT, format!("{}/size", self.path));
            let call = call
                .header(http::HeaderName::from_static("x-owner-epoch"), "1")
                .header(http::HeaderName::from_static("x-connection"), &connection);
            call.if_match_any()
                .body(&json!({ "size": size, "release": true }))
                .send::<Value>()
                .await?;
        }
        Ok(())
    }
}
