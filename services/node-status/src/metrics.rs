//! Metrics of node-status: nodes by state, the longest silence, and the brake of each pool (T6).

use std::collections::BTreeMap;

use hayward_node_status_domain::Health;
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{
    NODE_BRAKE, NODE_COUNT, NODE_FLAPS, NODE_HEARTBEAT_AGE, NODE_STATE, POOL, POOL_MINIMUM,
};

use crate::model::Node;

/// States that the metrics distinguish.
const STATES: [&str; 6] = [
    "healthy", "quiesced", "offline", "draining", "suspect", "lost",
];

/// Counts a loss of contact in the metrics.
pub(crate) fn count_loss(pool: &str) {
    NODE_FLAPS.add(1, &[POOL.with(pool.to_owned())]);
}

/// Returns the state of a node for the metrics. If several apply, the most important one counts.
fn metric_state(node: &Node, is_draining: bool) -> &'static str {
    match node.health {
        Health::Lost => "lost",
        Health::Suspect => "suspect",
        _ if is_draining => "draining",
        _ if !node.schedulable => "offline",
        Health::Quiesced => "quiesced",
        Health::Healthy => "healthy",
    }
}

#[derive(Default)]
struct PoolTotals {
    /// Number of nodes in each state.
    states: BTreeMap<&'static str, u64>,
    /// Longest silence of a node that is not lost.
    silent_ms: u32,
}

/// Input of the metrics for one node.
pub(crate) struct NodeReading<'a> {
    pub node: &'a Node,
    pub is_draining: bool,
    /// Milliseconds since the last heartbeat.
    pub silent_ms: u64,
}

/// Returns the current values of all metrics of the nodes and pools.
pub(crate) fn readings<'a>(
    nodes: impl Iterator<Item = NodeReading<'a>>,
    brake_is_on: impl Fn(&str) -> bool,
    pool_floor: u64,
) -> Vec<Reading> {
    let mut totals_by_pool: BTreeMap<&str, PoolTotals> = BTreeMap::new();
    for reading in nodes {
        let node = reading.node;
        let totals = totals_by_pool.entry(node.brake_pool()).or_default();
        let state = metric_state(node, reading.is_draining);
        *totals.states.entry(state).or_default() += 1;
        if node.health != Health::Lost {
            let silent_ms = u32::try_from(reading.silent_ms).unwrap_or(u32::MAX);
            totals.silent_ms = totals.silent_ms.max(silent_ms);
        }
    }
    let mut readings = Vec::new();
    for (pool, totals) in totals_by_pool {
        let attributes_of_pool = || vec![POOL.with(pool.to_owned())];
        for state in STATES {
            let count = totals.states.get(state).copied().unwrap_or(0);
            let mut attributes = attributes_of_pool();
            attributes.push(NODE_STATE.with(state));
            readings.push(NODE_COUNT.count_reading(count, attributes));
        }
        let silent = f64::from(totals.silent_ms) / 1_000.0;
        readings.push(NODE_HEARTBEAT_AGE.reading(silent, attributes_of_pool()));
        readings.push(NODE_BRAKE.count_reading(u64::from(brake_is_on(pool)), attributes_of_pool()));
        readings.push(POOL_MINIMUM.count_reading(pool_floor, attributes_of_pool()));
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_match_the_metrics_catalogue() {
        assert!(STATES.iter().all(|state| NODE_STATE.allows(state)));
    }
}
