//! Checks of the invariants of blocklist: an ended block has no effect, the limits on automatic
//! blocks (brakes) hold, and every end happens in time.

use std::collections::BTreeMap;

use hayward_blocklist_domain::brake_check::{BrakeCheck, WithheldNodes};
use hayward_blocklist_domain::{Block, PoolCounts};
use hayward_publication::Moment;
use hayward_publication::invariants::Findings;
use hayward_service::invariants::timed_finding;
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant_finding::{
    Bound, Evidence, Finding, Inquiry, Rule, TimedState, check_deadlines,
};

use super::Ledger;
use crate::model::{Key, KeyRecord};

const BLOCKS_RULE: Rule = Rule {
    id: "I16",
    title: "blocks end in time, and the brakes on automatic blocks hold",
};
/// Milliseconds within which a busy service must remove an ended block.
const EXPIRY_GRACE_MS: u64 = 5_000;

impl Ledger {
    pub(super) fn check_invariants(&mut self, moment: &Moment) -> Findings {
        let settings = &self.context.settings;
        if !settings.enabled {
            let reason = "the blocklist is switched off";
            return Findings {
                findings: vec![timed_finding(|| Finding::not_checked(BLOCKS_RULE, reason))],
                bounds: Vec::new(),
            };
        }
        let grace_ms = settings.check_interval_ms + EXPIRY_GRACE_MS;
        let pools = self.nodes.is_loaded().then(|| self.withheld_nodes());
        let (keys, check) = (&self.keys, &mut self.brake_check);
        let blocks = timed_finding(|| check_blocks(keys, moment.now, grace_ms, pools, check));
        let timed_states = self.keys.iter();
        let timed_states =
            timed_states.map(|(key, record)| to_timed_state(key, record, moment.now));
        let to_u64 = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        // All bounds compare with the configured limit (I25). A comparison with another list would
        // miss that both have grown.
        let limit = to_u64(settings.max_items);
        let bound = |name, count| Bound {
            name,
            current: to_u64(count),
            limit,
        };
        Findings {
            findings: vec![blocks, timed_finding(|| check_deadlines(timed_states))],
            bounds: vec![
                bound("items and removals", self.keys.len()),
                bound("keys with a scheduled check", self.next_checks.len()),
                bound("queued evacuations", self.evacuation_queue.len()),
            ],
        }
    }

    /// Returns the withheld nodes of each pool.
    fn withheld_nodes(&self) -> BTreeMap<String, WithheldNodes> {
        let brakes = self.context.settings.brakes();
        let ready = self.nodes.ready_by_pool().iter();
        let counts = ready.map(|(pool, ready)| {
            let allowed = brakes.max_withheld(PoolCounts {
                ready: *ready,
                ..PoolCounts::default()
            });
            let withheld = WithheldNodes {
                ready: *ready,
                allowed,
                ..WithheldNodes::default()
            };
            (pool.clone(), withheld)
        });
        let mut pools: BTreeMap<String, WithheldNodes> = counts.collect();
        for (key, record) in &self.keys {
            let block = record.state.block.as_ref();
            let is_automatic =
                block.is_some_and(Block::is_automatic) || record.state.canary.is_some();
            let node = key.cluster_scoped_node().filter(|_| is_automatic);
            let Some((node, entry)) = node.and_then(|it| Some((it, self.nodes.get(it)?))) else {
                continue;
            };
            let pool = pools.entry(entry.pool.clone()).or_default();
            pool.nodes.insert(node.to_owned());
        }
        pools
    }
}

/// Checks that no block outlives its end and that the brakes hold (I16).
fn check_blocks(
    keys: &BTreeMap<Key, KeyRecord>,
    now: Timestamp,
    grace_ms: u64,
    pools: Option<BTreeMap<String, WithheldNodes>>,
    check: &mut BrakeCheck,
) -> Finding {
    let mut inquiry = Inquiry::new(BLOCKS_RULE);
    for (key, record) in keys {
        let Some(block) = &record.state.block else {
            continue;
        };
        let late_ms = block.end.map_or(0, |end| now.ms_since(end));
        inquiry.examine((late_ms > grace_ms).then(|| {
            Evidence::new(&key.publication_key(), "has ended and still blocks")
                .with_number("over_ms", late_ms)
        }));
    }
    // No automatic block is possible before the nodes are known.
    if let Some(pools) = pools {
        check.check(pools, &mut inquiry);
    }
    inquiry.finish()
}

/// Describes the state of a key and how late its next check is (I24).
fn to_timed_state(key: &Key, record: &KeyRecord, now: Timestamp) -> TimedState<String> {
    let (state, deadline) = match (&record.state.block, &record.state.canary) {
        (Some(_), _) => ("is blocked", record.next_check_at),
        (None, Some(canary)) => ("is on trial", Some(canary.until)),
        (None, None) => ("is remembered as removed", record.next_check_at),
    };
    TimedState {
        subject: key.publication_key(),
        state,
        late_ms: deadline.map_or(0, |deadline| now.ms_since(deadline)),
        cause: None,
    }
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_domain::{Action, Canary};
    use hayward_vocabulary::invariant_finding::SWEEP_MS;

    use super::*;

    fn timestamp(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(i64::try_from(ms).unwrap())
    }

    fn node_key() -> Key {
        Key::for_node(&hayward_vocabulary::NodeName::new("n1").unwrap())
    }

    fn record_blocked_until(end: Option<u64>) -> KeyRecord {
        let mut record = KeyRecord::default();
        record.state.block = Some(Block {
            action: Action::Mark,
            causes: ["disk".to_owned()].into(),
            start: timestamp(0),
            end: end.map(timestamp),
            sources: ["manual:ann".to_owned()].into(),
        });
        record
    }

    #[test]
    fn a_block_that_outlives_its_end_is_a_violation() {
        let holds = |end, now| {
            let blocks = BTreeMap::from([(node_key(), record_blocked_until(end))]);
            check_blocks(
                &blocks,
                timestamp(now),
                6_000,
                None,
                &mut BrakeCheck::default(),
            )
            .holds()
        };
        assert!(holds(Some(10_000), 16_000));
        assert!(!holds(Some(10_000), 16_001));
        assert!(holds(None, 1_000_000), "a permanent block never ends");
    }

    #[test]
    fn a_bypass_of_the_brakes_is_a_violation() {
        let blocks = BTreeMap::new();
        let mut check = BrakeCheck::default();
        let mut holds = |nodes: &[&str]| {
            let withheld = WithheldNodes {
                ready: 10,
                allowed: 1,
                nodes: nodes.iter().map(|it| (*it).to_owned()).collect(),
            };
            let pools = BTreeMap::from([("default".to_owned(), withheld)]);
            check_blocks(&blocks, timestamp(0), 6_000, Some(pools), &mut check).holds()
        };
        assert!(holds(&["n1"]));
        assert!(!holds(&["n1", "n2"]));
    }

    #[test]
    fn an_overdue_trial_or_block_is_a_violation() {
        let mut on_trial = KeyRecord::default();
        on_trial.state.canary = Some(Canary {
            since: timestamp(0),
            until: timestamp(10_000),
            causes: std::collections::BTreeSet::new(),
            sources: std::collections::BTreeSet::new(),
        });
        let holds = |record: &KeyRecord, now| {
            check_deadlines([to_timed_state(&node_key(), record, timestamp(now))]).holds()
        };
        assert!(holds(&on_trial, 10_000 + SWEEP_MS));
        assert!(!holds(&on_trial, 10_001 + SWEEP_MS));
        let mut overdue = record_blocked_until(None);
        assert!(holds(&overdue, 1_000_000), "a permanent block has no check");
        overdue.next_check_at = Some(timestamp(10_000));
        assert!(!holds(&overdue, 10_001 + SWEEP_MS));
    }
}
