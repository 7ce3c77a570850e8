//! The table `node`.

use std::collections::BTreeMap;

use hayward_node_status_api::Inventory;
use hayward_node_status_domain::{AgentInstances, FlapCounter};
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use crate::model::Node;
use crate::state_conversions;

/// One row of the table.
#[derive(Debug)]
pub struct NodeRow {
    pool: String,
    inventory: String,
    boot_id: String,
    agent_instance: String,
    quiesced: bool,
    health: &'static str,
    health_reason: String,
    schedulable: bool,
    off_reason: String,
    since_ms: i64,
    quiesce_reason: String,
    /// JSON list, because `unnest` would flatten nested arrays.
    rivals: String,
    refused: String,
}

impl NodeRow {
    pub fn from_node(node: &Node, quiet_ms: u64, now_ms: u64) -> Self {
        let mut rivals = node.instances(quiet_ms, now_ms);
        rivals.retain(|instance| *instance != node.agent_instance);
        if node.agents.rivals(quiet_ms, now_ms).is_empty() {
            rivals.clear();
        }
        Self {
            pool: node.pool.clone(),
            // The serialization of an inventory cannot fail.
            inventory: serde_json::to_string(&node.inventory).unwrap_or_default(),
            boot_id: node.boot_id.clone(),
            agent_instance: node.agent_instance.clone(),
            quiesced: node.quiesced,
            health: state_conversions::health_name(node.health),
            health_reason: node.health_reason.clone(),
            schedulable: node.schedulable,
            off_reason: node.off_reason.clone(),
            since_ms: node.since.unix_ms(),
            quiesce_reason: node.quiesce_reason.clone(),
            rivals: json_list(&rivals),
            refused: json_list(&node.refused),
        }
    }
}

/// Returns a JSON list of these texts.
fn json_list(texts: &[String]) -> String {
    serde_json::to_string(texts).unwrap_or_default()
}

pub async fn load_nodes(tx: &mut PgConnection) -> Result<Vec<Node>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select node, pool, inventory::text as "inventory!", boot_id, agent_instance, quiesced,
                  health, health_reason, schedulable, off_reason, since_ms, quiesce_reason,
                  rivals, refused
             from node order by node"#
    )
    .fetch_all(tx)
    .await?;
    let mut nodes = Vec::with_capacity(rows.len());
    for row in rows {
        let decode = |error: &dyn std::fmt::Display| sqlx::Error::Decode(error.to_string().into());
        let inventory: Inventory =
            serde_json::from_str(&row.inventory).map_err(|error| decode(&error))?;
        let heartbeat = std::sync::Arc::<crate::heartbeats::HeartbeatState>::default();
        heartbeat.set_version(&inventory.version);
        nodes.push(Node {
            name: NodeName::new(row.node).map_err(|error| decode(&error))?,
            pool: row.pool,
            policy_pool: None,
            inventory,
            boot_id: row.boot_id,
            agents: AgentInstances::new(row.agent_instance.clone(), row.rivals),
            refused: row.refused,
            flaps: FlapCounter::default(),
            quiesce_reason: row.quiesce_reason,
            claim_limits: None,
            agent_instance: row.agent_instance,
            quiesced: row.quiesced,
            health: state_conversions::parse_health(&row.health),
            health_reason: row.health_reason,
            schedulable: row.schedulable,
            off_reason: row.off_reason,
            since: Timestamp::from_unix_ms(row.since_ms),
            heartbeat,
            watch_began_ms: 0,
            due_ms: None,
            changes: 0,
        });
    }
    Ok(nodes)
}

pub async fn write(
    nodes: BTreeMap<NodeName, Option<NodeRow>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let mut deleted = Vec::new();
    let mut upserts = Vec::new();
    for (name, row) in nodes {
        match row {
            Some(row) => upserts.push((String::from(name), row)),
            None => deleted.push(String::from(name)),
        }
    }
    if !upserts.is_empty() {
        upsert(&upserts, tx).await?;
    }
    if !deleted.is_empty() {
        delete(&deleted, tx).await?;
    }
    Ok(())
}

async fn upsert(rows: &[(String, NodeRow)], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let column = |pick: fn(&NodeRow) -> &str| -> Vec<String> {
        rows.iter().map(|(_, row)| pick(row).to_owned()).collect()
    };
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let quiesced: Vec<bool> = rows.iter().map(|(_, row)| row.quiesced).collect();
    let schedulable: Vec<bool> = rows.iter().map(|(_, row)| row.schedulable).collect();
    let since_ms: Vec<i64> = rows.iter().map(|(_, row)| row.since_ms).collect();
    sqlx::query!(
        "insert into node (node, pool, inventory, boot_id, agent_instance, quiesced, health,
                           health_reason, schedulable, off_reason, since_ms, quiesce_reason,
                           rivals, refused)
         select new.node, new.pool, new.inventory::json, new.boot_id, new.agent_instance,
                new.quiesced, new.health, new.health_reason, new.schedulable, new.off_reason,
                new.since_ms, new.quiesce_reason,
                array(select json_array_elements_text(new.rivals::json)),
                array(select json_array_elements_text(new.refused::json))
           from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[],
                       $7::text[], $8::text[], $9::boolean[], $10::text[], $11::bigint[],
                       $12::text[], $13::text[], $14::text[])
             as new (node, pool, inventory, boot_id, agent_instance, quiesced, health,
                     health_reason, schedulable, off_reason, since_ms, quiesce_reason, rivals,
                     refused)
         on conflict (node) do update
            set pool = excluded.pool, inventory = excluded.inventory, boot_id = excluded.boot_id,
                agent_instance = excluded.agent_instance, quiesced = excluded.quiesced,
                health = excluded.health, health_reason = excluded.health_reason,
                schedulable = excluded.schedulable, off_reason = excluded.off_reason,
                since_ms = excluded.since_ms, quiesce_reason = excluded.quiesce_reason,
                rivals = excluded.rivals, refused = excluded.refused",
        &names,
        &column(|row| &row.pool),
        &column(|row| &row.inventory),
        &column(|row| &row.boot_id),
        &column(|row| &row.agent_instance),
        &quiesced,
        &column(|row| row.health),
        &column(|row| &row.health_reason),
        &schedulable,
        &column(|row| &row.off_reason),
        &since_ms,
        &column(|row| &row.quiesce_reason),
        &column(|row| &row.rivals),
        &column(|row| &row.refused)
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn delete(names: &[String], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from node where node = any($1::text[])", names)
        .execute(&mut *tx)
        .await?;
    // A later node with the same name is another machine with its own history. The row of the drain
    // stays, so that its number is not used again. The limit stays until the next enrolment.
    sqlx::query!(
        "delete from node_change where node = any($1::text[])",
        names
    )
    .execute(tx)
    .await
    .map(drop)
}
