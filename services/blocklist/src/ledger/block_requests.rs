//! Adds requested blocks. All checks run before any change, so a refused request changes nothing.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockKind, BlockOutcome};
use hayward_blocklist_domain::{Block, BrakeReason, Outcome};
use hayward_publication::{Batch, Moment};

use super::items::NewBlock;
use super::nodes::BlockedNode;
use super::{Ledger, repeated_keys};
use crate::error::Refusal;
use crate::model::{AddResult, BlockEnd, BlockRequest, BlockRequests, STALE_COPY, block_entry};
use crate::store::Rows;

/// Reason of an unchanged result: the automatic request has a duration of zero.
const ZERO_DURATION: &str = "ZERO_DURATION";

impl Ledger {
    /// Adds the requested blocks, all or none.
    pub(super) fn add_blocks(
        &mut self,
        requests: &BlockRequests,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Vec<AddResult>, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
        // Ended blocks are removed first, so that a request for such a key is a new block.
        for request in &requests.items {
            self.expire(&request.key, moment, batch);
        }
        self.check_capacity(&requests.items)?;
        self.check_node_names(&requests.items)?;
        self.check_conflicts(requests)?;
        self.check_brakes(&requests.items, moment)?;
        let first_change = batch.rows.changes.len();
        let items = requests.items.iter();
        let results = items.map(|it| (&it.key, self.add_single(it, requests, moment, batch)));
        let results = repeated_keys::merge_results(results.collect());
        repeated_keys::merge_changes(&mut batch.rows.changes, first_change);
        Ok(results)
    }

    /// Returns the current block of the key of a request.
    fn current_block(&self, request: &BlockRequest) -> Option<&Block> {
        self.keys.get(&request.key)?.state.block.as_ref()
    }

    /// Returns whether a request is a copy from before the last removal of its key.
    fn is_stale(&self, request: &BlockRequest) -> bool {
        let removal_no = self
            .keys
            .get(&request.key)
            .map_or(0, |record| record.state.removal_no);
        request
            .copied_removal_no
            .is_some_and(|copied_removal_no| copied_removal_no < removal_no)
    }

    /// Refuses requests that would exceed the maximum number of keys in memory (I25).
    fn check_capacity(&self, items: &[BlockRequest]) -> Result<(), Refusal> {
        let keys = items.iter().map(|request| &request.key);
        let new_keys = keys.filter(|key| !self.keys.contains_key(*key));
        let new_keys: BTreeSet<_> = new_keys.collect();
        let (count, max) = (self.keys.len(), self.context.settings.max_items);
        if new_keys.is_empty() || count + new_keys.len() <= max {
            return Ok(());
        }
        Err(Refusal::TooManyItems { count, max })
    }

    /// Refuses unknown nodes once the nodes of the fleet are known, because such a name is a
    /// mistake.
    fn check_node_names(&self, items: &[BlockRequest]) -> Result<(), Refusal> {
        if !self.nodes.is_loaded() {
            return Ok(());
        }
        let known_names = &self.nodes.known_names;
        let is_unknown = |request: &&BlockRequest| {
            request.key.kind == BlockKind::Node && !known_names.contains(&request.key.identifier)
        };
        match items
            .iter()
            .enumerate()
            .find(|(_, request)| is_unknown(request))
        {
            Some((index, request)) => Err(Refusal::UnknownNode {
                index,
                name: request.key.identifier.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses a request that differs from the existing block, unless it may be merged.
    fn check_conflicts(&self, requests: &BlockRequests) -> Result<(), Refusal> {
        if requests.allow_merge {
            return Ok(());
        }
        for request in requests
            .items
            .iter()
            .filter(|request| !self.is_stale(request))
        {
            let settings = &self.context.settings;
            if let Some(block) = self
                .current_block(request)
                .filter(|it| !request.matches_block(it, settings))
            {
                let removal_no = self
                    .keys
                    .get(&request.key)
                    .map_or(0, |record| record.state.removal_no);
                return Err(Refusal::AlreadyBlocked(Box::new(block_entry(
                    &request.key,
                    block,
                    removal_no,
                ))));
            }
        }
        Ok(())
    }

    /// Refuses automatic requests that together exceed the limits on automatic blocks. Requests for
    /// keys that are already blocked are not counted.
    fn check_brakes(&self, items: &[BlockRequest], moment: &Moment) -> Result<(), Refusal> {
        let mut also_blocked: Vec<&str> = Vec::new();
        for (index, request) in items.iter().enumerate() {
            let is_limited = request.is_automatic()
                && request.end != BlockEnd::After(0)
                && !self.is_stale(request);
            let Some(node) = request.key.cluster_scoped_node().filter(|_| is_limited) else {
                continue;
            };
            if self.current_block(request).is_some() || also_blocked.contains(&node) {
                continue;
            }
            self.check_brakes_for(node, &also_blocked, moment)
                .map_err(|reason| Refusal::Brake { index, reason })?;
            also_blocked.push(node);
        }
        Ok(())
    }

    /// Adds one block that has passed all checks.
    fn add_single(
        &mut self,
        request: &BlockRequest,
        requests: &BlockRequests,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> AddResult {
        let unchanged = |reason, ledger: &Self| AddResult {
            outcome: BlockOutcome::None,
            reason,
            item: ledger
                .keys
                .get(&request.key)
                .and_then(|record| record.entry(&request.key)),
            warnings: Vec::new(),
        };
        if request.is_automatic() && request.end == BlockEnd::After(0) {
            return unchanged(Some(ZERO_DURATION), self);
        }
        if !requests.allow_merge && !self.is_stale(request) && self.current_block(request).is_some()
        {
            // The request equals the block, because `check_conflicts` accepted it.
            return unchanged(None, self);
        }
        let block = request.to_block(moment.now, &self.context.settings);
        let is_manual = !block.is_automatic();
        let addition = NewBlock {
            block,
            copied_removal_no: request.copied_removal_no,
            actor: &requests.caller_name,
        };
        let outcome = self.add_block(&request.key, addition, moment, batch);
        let warnings = request
            .key
            .cluster_scoped_node()
            .filter(|_| is_manual && outcome.is_change())
            .and_then(|node| self.brake_warning(node, moment));
        AddResult {
            outcome: to_api_outcome(outcome),
            warnings: warnings.into_iter().collect(),
            ..unchanged((outcome == Outcome::Stale).then_some(STALE_COPY), self)
        }
    }

    /// Returns the nodes that are blocked for all work or on trial.
    fn blocked_nodes(&self) -> impl Iterator<Item = BlockedNode<'_>> {
        self.keys.iter().filter_map(|(key, record)| {
            let node = key.cluster_scoped_node()?;
            let is_automatic = match (&record.state.block, &record.state.canary) {
                (Some(block), _) => block.is_automatic(),
                (None, Some(_)) => true,
                (None, None) => return None,
            };
            Some(BlockedNode { node, is_automatic })
        })
    }

    /// Checks whether a node may be blocked automatically, in addition to the nodes in `others`.
    pub(super) fn check_brakes_for(
        &self,
        node: &str,
        others: &[&str],
        moment: &Moment,
    ) -> Result<(), BrakeReason> {
        let others = others.iter().map(|node| BlockedNode {
            node,
            is_automatic: true,
        });
        let blocked = self.blocked_nodes().chain(others);
        let (pool, counts) = self.nodes.pool_counts(node, blocked, moment.monotonic_ms)?;
        self.context.settings.brakes().check(&pool, counts)
    }

    /// Returns a warning if the block of a node exceeds the brakes.
    fn brake_warning(&self, node: &str, moment: &Moment) -> Option<String> {
        let pool = self
            .nodes
            .pool_counts(node, self.blocked_nodes(), moment.monotonic_ms);
        let (pool, counts) = pool.ok()?;
        self.context
            .settings
            .brakes()
            .operator_warning(&pool, counts)
    }
}

fn to_api_outcome(outcome: Outcome) -> BlockOutcome {
    match outcome {
        Outcome::Added => BlockOutcome::Added,
        Outcome::Upgraded => BlockOutcome::Upgraded,
        Outcome::Merged => BlockOutcome::Merged,
        Outcome::Unchanged | Outcome::Stale => BlockOutcome::None,
    }
}
