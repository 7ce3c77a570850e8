//! Rate limit of automatic evacuations: at most one starts per interval, and the others wait in a
//! queue. None starts during a storm, in which many nodes of a pool fail at once (B3).

use hayward_blocklist_domain::{Action, Block, BrakeReason};
use hayward_publication::{Batch, Moment};

use super::Ledger;
use super::items::NewBlock;
use crate::model::Key;
use crate::store::Rows;

/// Minimum time between two automatic evacuations, in milliseconds.
const EVACUATION_INTERVAL_MS: u64 = 10_000;

/// A block after the rate limit.
pub(super) struct RateLimited {
    /// The block to add now.
    pub block: Block,
    /// The evacuation that was queued. `None` if none was queued.
    pub pending: Option<Action>,
}

impl Ledger {
    /// Applies the rate limit to a block. A node that must wait is only marked, and its evacuation
    /// is queued. During a storm, the node is marked and its evacuation is dropped.
    pub(super) fn rate_limit_evacuation(
        &mut self,
        key: &Key,
        block: Block,
        moment: &Moment,
    ) -> RateLimited {
        let not_queued = |block| RateLimited {
            block,
            pending: None,
        };
        let Some(node) = key.cluster_scoped_node().filter(|_| block.is_automatic()) else {
            return not_queued(block);
        };
        let current = self
            .keys
            .get(key)
            .and_then(|record| record.state.block.as_ref());
        if block.action == Action::Mark || current.is_some_and(|it| it.action >= block.action) {
            return not_queued(block);
        }
        let mark = Block {
            action: Action::Mark,
            ..block.clone()
        };
        if matches!(
            self.check_brakes_for(node, &[], moment),
            Err(BrakeReason::Storm { .. })
        ) {
            return not_queued(mark);
        }
        if moment.monotonic_ms < self.next_evacuation_ms {
            return RateLimited {
                block: mark,
                pending: Some(self.queue_evacuation(key, block)),
            };
        }
        self.next_evacuation_ms = moment.monotonic_ms + EVACUATION_INTERVAL_MS;
        not_queued(block)
    }

    /// Queues the evacuation of a key, at most once and with its strongest action. Returns this
    /// action.
    fn queue_evacuation(&mut self, key: &Key, block: Block) -> Action {
        let queued = self
            .evacuation_queue
            .iter_mut()
            .find(|(queued, _)| queued == key);
        let Some((_, queued)) = queued else {
            let action = block.action;
            self.evacuation_queue.push_back((key.clone(), block));
            return action;
        };
        if queued.action < block.action {
            *queued = block;
        }
        queued.action
    }

    /// Restores the queue at the start of a term. The interval since the last evacuation still
    /// applies (B3).
    pub(super) fn restore_evacuation_queue(&mut self, moment: &Moment) {
        let mut pending = Vec::new();
        let mut last_start = None;
        for (key, record) in &self.keys {
            let block = record.state.block.as_ref();
            let Some(block) =
                block.filter(|it| key.cluster_scoped_node().is_some() && it.is_automatic())
            else {
                continue;
            };
            if let Some(action) = record.pending_evacuation {
                let block = Block {
                    action,
                    ..block.clone()
                };
                pending.push((record.updated_at, key.clone(), block));
            } else if block.action != Action::Mark {
                last_start = last_start.max(Some(record.updated_at));
            }
        }
        // The sort is stable, so evacuations with equal times stay in order of key.
        pending.sort_by_key(|(since, ..)| *since);
        let queue = pending.into_iter().map(|(_, key, block)| (key, block));
        self.evacuation_queue = queue.collect();
        let age_ms = last_start.map_or(u64::MAX, |start| moment.now.ms_since(start));
        let remaining_ms = EVACUATION_INTERVAL_MS.saturating_sub(age_ms);
        self.next_evacuation_ms = moment.monotonic_ms + remaining_ms;
    }

    /// Starts the next queued evacuation once the interval has passed.
    pub(super) fn start_next_evacuation(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        while moment.monotonic_ms >= self.next_evacuation_ms {
            let Some((key, block)) = self.evacuation_queue.pop_front() else {
                return;
            };
            let Some(record) = self.keys.get_mut(&key) else {
                continue;
            };
            record.pending_evacuation = None;
            let current = record.state.block.as_ref();
            if current.is_some_and(Block::is_automatic) {
                let source = block.sources.first().cloned().unwrap_or_default();
                self.add_block(&key, NewBlock::new(block, &source), moment, batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayward_vocabulary::{NodeName, Timestamp};

    use super::*;
    use crate::context::Context;

    /// A second evacuation of a queued node only strengthens the queued action (B3).
    #[test]
    fn a_node_is_queued_for_evacuation_at_most_once() {
        let mut ledger = Ledger::empty(Arc::new(Context::new(crate::Settings::default())));
        let key = Key::for_node(&NodeName::new("n1").unwrap());
        let block = |action| Block {
            action,
            causes: ["disk".to_owned()].into(),
            start: Timestamp::default(),
            end: None,
            sources: ["auto".to_owned()].into(),
        };
        let (weak, strong) = (Action::Mark, Action::IMMEDIATE);
        assert!(weak < strong);
        assert_eq!(ledger.queue_evacuation(&key, block(weak)), weak);
        assert_eq!(ledger.queue_evacuation(&key, block(strong)), strong);
        assert_eq!(
            ledger.queue_evacuation(&key, block(weak)),
            strong,
            "the strongest action remains queued"
        );
        assert_eq!(ledger.evacuation_queue.len(), 1);
    }
}
