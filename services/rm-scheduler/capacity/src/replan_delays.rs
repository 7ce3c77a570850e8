//! Delays after which a plan may change without any event, in milliseconds since the last event.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::snapshot::queues::{Queue, Queues};

use crate::queue_tree::DEFAULT_SETTINGS;

/// Milliseconds that work must wait before it gets a reservation.
pub(crate) const MIN_WAIT_MS: u64 = 2_000;
/// Milliseconds after a failed preemption before the next attempt for the same work.
pub(crate) const PREEMPTION_RETRY_MS: u64 = 15_000;

/// Returns all delays of the queues in milliseconds.
pub fn replan_delays(queues: &Queues) -> BTreeSet<u64> {
    let mut delays = BTreeSet::from([
        MIN_WAIT_MS,
        PREEMPTION_RETRY_MS,
        queues.reservation_ms,
        queues.preemption_cooldown_ms,
        DEFAULT_SETTINGS.preemption_delay_ms,
        DEFAULT_SETTINGS.backoff_ms,
    ]);
    add_queue_delays(&queues.root, &mut delays);
    delays.remove(&0);
    delays
}

fn add_queue_delays(queue: &Queue, delays: &mut BTreeSet<u64>) {
    delays.extend(
        [
            queue.preemption_delay_ms,
            queue.quota_preemption_delay_ms,
            queue.backoff_ms,
        ]
        .into_iter()
        .flatten(),
    );
    for child in queue.children.values() {
        add_queue_delays(child, delays);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_queue_contributes_its_delays() {
        let document = json!({ "queues": { "a": {
            "preemption_delay_ms": 1, "queues": { "b": { "preemption_delay_ms": 7_000 } } } },
            "preemption_cooldown_ms": 0 });
        let delays = replan_delays(&crate::config::read(&document).unwrap());
        let delays: Vec<u64> = delays.into_iter().collect();
        assert_eq!(delays, [1, 2_000, 7_000, 15_000, 30_000, 300_000]);
    }
}
