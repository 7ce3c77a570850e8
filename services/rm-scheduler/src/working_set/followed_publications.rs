//! The followed publications of the neighbours, and indexes of their entries.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::{ContainerEntry, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Change, Followed, Update};
use hayward_vocabulary::{NodeName, Timestamp, UserName, WorkId};

/// Name of the neighbour that publishes `demand`.
pub const JOB_CONVERTER: &str = "job-converter";

#[derive(Default)]
pub(crate) struct FollowedPublications {
    nodes: Followed<NodeEntry>,
    demand: Followed<DemandEntry>,
    blocks: Followed<BlockEntry>,
    containers: Followed<ContainerEntry>,
    requests: Followed<RequestEntry>,
    /// End and key of each block that has an end.
    block_ends: BTreeSet<(Timestamp, String)>,
    /// Nodes that a job or service must avoid, by its id.
    avoided: BTreeMap<WorkId, BTreeSet<NodeName>>,
    /// Nodes that are for some users alone, with these users.
    restricted: BTreeMap<NodeName, BTreeSet<String>>,
    /// Nodes with a drain order.
    drained: BTreeSet<NodeName>,
}

impl FollowedPublications {
    pub fn nodes(&self) -> &Followed<NodeEntry> {
        &self.nodes
    }

    pub fn demand(&self) -> &Followed<DemandEntry> {
        &self.demand
    }

    pub fn blocks(&self) -> &Followed<BlockEntry> {
        &self.blocks
    }

    pub fn containers(&self) -> &Followed<ContainerEntry> {
        &self.containers
    }

    pub fn requests(&self) -> &Followed<RequestEntry> {
        &self.requests
    }

    pub fn absorb_nodes(
        &mut self,
        update: Update<NodeEntry>,
        now_ms: u64,
    ) -> Vec<Change<NodeEntry>> {
        self.nodes.absorb(update, now_ms)
    }

    pub fn absorb_demand(
        &mut self,
        update: Update<DemandEntry>,
        now_ms: u64,
    ) -> Vec<Change<DemandEntry>> {
        self.demand.absorb(update, now_ms)
    }

    pub fn absorb_blocks(
        &mut self,
        update: Update<BlockEntry>,
        now_ms: u64,
    ) -> Vec<Change<BlockEntry>> {
        self.blocks.absorb(update, now_ms)
    }

    pub fn absorb_containers(
        &mut self,
        update: Update<ContainerEntry>,
        now_ms: u64,
    ) -> Vec<Change<ContainerEntry>> {
        self.containers.absorb(update, now_ms)
    }

    pub fn absorb_requests(
        &mut self,
        update: Update<RequestEntry>,
        now_ms: u64,
    ) -> Vec<Change<RequestEntry>> {
        self.requests.absorb(update, now_ms)
    }

    /// Returns true once every neighbour has answered in this term. Before that, entries may be
    /// missing only because they have not arrived yet.
    pub fn all_answered(&self) -> bool {
        self.nodes.has_update()
            && self.demand.has_update()
            && self.blocks.has_update()
            && self.containers.has_update()
            && self.requests.has_update()
    }

    /// Returns the first neighbour that has been silent for longer than the limit.
    pub fn find_stale(&self, now_ms: u64, limit_ms: u64) -> Option<&'static str> {
        [
            ("node-status", self.nodes.is_stale(now_ms, limit_ms)),
            (JOB_CONVERTER, self.demand.is_stale(now_ms, limit_ms)),
            ("blocklist", self.blocks.is_stale(now_ms, limit_ms)),
            (
                "container-manager",
                self.containers.is_stale(now_ms, limit_ms),
            ),
            (
                "container-manager",
                self.requests.is_stale(now_ms, limit_ms),
            ),
        ]
        .into_iter()
        .find_map(|(name, stale)| stale.then_some(name))
    }

    /// Returns the milliseconds of the longest silence among all neighbours. Returns `None` before
    /// the first update.
    pub fn longest_silence_ms(&self, now_ms: u64) -> Option<u64> {
        let silences = [
            self.nodes.ms_since_update(now_ms),
            self.demand.ms_since_update(now_ms),
            self.blocks.ms_since_update(now_ms),
            self.containers.ms_since_update(now_ms),
            self.requests.ms_since_update(now_ms),
        ];
        silences.into_iter().flatten().max()
    }

    /// Replaces the end of a block.
    pub fn set_block_end(
        &mut self,
        key: &str,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) {
        if let Some(end) = before {
            self.block_ends.remove(&(end, key.to_owned()));
        }
        if let Some(end) = after {
            self.block_ends.insert((end, key.to_owned()));
        }
    }

    pub fn next_block_end(&self) -> Option<Timestamp> {
        self.block_ends.first().map(|(end, _)| *end)
    }

    /// Removes and returns the key of one block that has ended by now.
    pub fn take_ended_block(&mut self, now: Timestamp) -> Option<String> {
        self.next_block_end().filter(|end| *end <= now)?;
        self.block_ends.pop_first().map(|(_, key)| key)
    }

    pub fn drained_nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.drained.iter()
    }

    pub fn set_drained(&mut self, node: &NodeName, drained: bool) {
        if drained {
            self.drained.insert(node.clone());
        } else {
            self.drained.remove(node);
        }
    }

    /// Reads the only users of a node from its entry. Returns true if they changed.
    pub fn update_only_users(&mut self, node: &str) -> bool {
        let entry = self.nodes.get(node);
        let update = entry.map(|entry| (entry.node.clone(), entry.only_users()));
        update.is_some_and(|(node, users)| self.set_only_users(&node, users))
    }

    /// Sets the only users of a node. Returns true if that is a change.
    pub fn set_only_users(&mut self, node: &NodeName, users: Option<BTreeSet<String>>) -> bool {
        let before = self.restricted.get(node);
        let changed = before != users.as_ref();
        match users {
            _ if !changed => {}
            Some(users) => {
                self.restricted.insert(node.clone(), users);
            }
            None => {
                self.restricted.remove(node);
            }
        }
        changed
    }

    /// Returns the nodes that are blocked for this work alone, and those that are not for its user.
    pub fn avoided_nodes(&self, work: &WorkId, user: &UserName) -> BTreeSet<NodeName> {
        let restricted = self.restricted.iter();
        let of_others = restricted
            .filter(|(_, users)| !users.contains(user.as_str()))
            .map(|(node, _)| node);
        let of_job = self.avoided.get(&work.parent());
        let own = self.avoided.get(work);
        let blocked = of_job.into_iter().chain(own).flatten();
        blocked.chain(of_others).cloned().collect()
    }

    /// Sets whether a job or service must avoid a node. Returns true if that is a change.
    pub fn set_avoided(&mut self, job: &WorkId, node: NodeName, avoided: bool) -> bool {
        let nodes = self.avoided.entry(job.clone()).or_default();
        let changed = if avoided {
            nodes.insert(node)
        } else {
            nodes.remove(&node)
        };
        if nodes.is_empty() {
            self.avoided.remove(job);
        }
        changed
    }
}
