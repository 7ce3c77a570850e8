//! Metrics of blocklist (T6).

use std::collections::BTreeMap;

use hayward_blocklist_api::{BlockEntry, BlockKind};
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{BLOCK_CAUSE, BLOCK_COUNT, BLOCK_KIND, BLOCK_STATE};

/// Returns the number of blocks of each combination of attributes, including combinations without
/// blocks.
pub(crate) fn readings(entries: impl Iterator<Item = BlockEntry>) -> Vec<Reading> {
    let mut counts: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    for kind in ["node", "worker"] {
        for state in ["in_force", "on_trial"] {
            for cause in ["ordered", "automatic"] {
                counts.insert((kind, state, cause), 0);
            }
        }
    }
    for entry in entries {
        let kind = match entry.kind {
            BlockKind::Node => "node",
            BlockKind::Worker => "worker",
        };
        let state = if entry.canary { "on_trial" } else { "in_force" };
        let cause = if entry.automatic {
            "automatic"
        } else {
            "ordered"
        };
        *counts.entry((kind, state, cause)).or_default() += 1;
    }
    let readings = counts.into_iter().map(|((kind, state, cause), count)| {
        let attributes = vec![
            BLOCK_KIND.with(kind),
            BLOCK_STATE.with(state),
            BLOCK_CAUSE.with(cause),
        ];
        BLOCK_COUNT.count_reading(count, attributes)
    });
    readings.collect()
}
