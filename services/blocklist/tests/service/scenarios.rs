//! Scenarios of the blocklist specification. Effects on allocations are tested in rm-scheduler,
//! which follows the publication.

#[path = "scenarios/additions.rs"]
mod additions;
#[path = "scenarios/automatic_blocks.rs"]
mod automatic_blocks;
#[path = "scenarios/expiry.rs"]
mod expiry;
#[path = "scenarios/owners.rs"]
mod owners;
#[path = "scenarios/restart_and_disable.rs"]
mod restart_and_disable;
#[path = "scenarios/workers_and_evacuations.rs"]
mod workers_and_evacuations;

use hayward_blocklist_api::{BlockBatchAnswer, EffectiveBlock};
use serde_json::{Value, json};

use crate::fixture::{Fixture, ROOT_PATH};

fn mark_body(duration_ms: u64) -> Value {
    json!({ "action": "MARK_BLOCKLISTED", "cause": "disk slow", "duration_ms": duration_ms })
}

fn with_merge(mut body: Value) -> Value {
    body["allow_merge"] = json!(true);
    body
}

fn evacuate_body() -> Value {
    json!({
        "action": "MARK_BLOCKED_AND_EVACUATE_TASKS", "cause": "ECC errors", "duration_ms": 600_000
    })
}

async fn read_effective_block(fixture: &Fixture, worker: &str) -> EffectiveBlock {
    let path = format!("{ROOT_PATH}/workers/{worker}?effective=true");
    fixture.viewer().get(&path).await.unwrap()
}

/// Adds one item as an owner. The source names the program that found the fault.
async fn add_as_owner(fixture: &Fixture, source: &str, item: Value) -> BlockBatchAnswer {
    let body = json!({ "items": [item], "source": source });
    let path = format!("{ROOT_PATH}/items");
    fixture.owner().post(&path, &body, None).await.unwrap()
}

fn item_body(node: &str) -> Value {
    json!({ "type": "NODE", "identifier": node, "action": "mark", "cause": "io wait" })
}
