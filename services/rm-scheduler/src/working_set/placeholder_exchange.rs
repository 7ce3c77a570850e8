//! Exchanges placeholders for tasks before a round is planned. A placeholder is space that is held
//! for a task of an application before the task exists.
//!
//! In one commit the placeholder ends and the task gets its space. The task runs on the node of the
//! placeholder if it fits there, and otherwise on another node of the pool. A placeholder has no
//! process, so nothing is stopped.
//!
//! Exchanges are checked like a plan. A refused exchange changes nothing, and is tried again after
//! the next change.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::VacateReason;
use hayward_rm_scheduler_domain::largest_nodes::{LargestNodes, process_quanta};
use hayward_rm_scheduler_domain::plan::Grant;
use hayward_rm_scheduler_domain::snapshot::GPU_MILLI;
use hayward_rm_scheduler_domain::{Plan, snapshot};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, WorkId};

use crate::model::{AllocationRecord, LeaveOrder};
use crate::pool_tree::root_pool_of;
use crate::round_trace::{RoundTrace, exchange_trace};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

/// Free space of an open node, and the pool of the node.
struct FreeSpace {
    pool: String,
    size: Size,
}

/// A task, and the placeholder whose space it gets.
#[derive(Debug, Clone)]
struct Exchange {
    work: WorkId,
    placeholder: AllocationId,
}

impl Ledger {
    /// Returns how many processes a part of an application may have now. An ended process counts
    /// until it is settled. A task that replaces a placeholder may have none, because only the
    /// exchange gives it space. The limit of other work is the one of its demand.
    pub(crate) fn part_limit(&self, entry: &DemandEntry) -> u64 {
        let Some(part) = &entry.part else {
            return entry.max_processes;
        };
        let known = self.allocations.of_work(&entry.work);
        let (holding, ended): (Vec<&AllocationRecord>, Vec<&AllocationRecord>) =
            known.partition(|it| it.entry.holds());
        if part.replaces.is_some() && holding.is_empty() {
            return 0;
        }
        // A task has one process at a time. Until job-converter has processed its end, it is not
        // decided whether there is another attempt.
        let is_leaving = |record: &&AllocationRecord| record.entry.vacate.is_some();
        if entry.launch.is_some() && (!ended.is_empty() || holding.iter().any(is_leaving)) {
            return 0;
        }
        let unsettled = ended
            .iter()
            .filter(|it| !entry.settled.contains(&it.entry.id))
            .count();
        entry.max_processes.saturating_sub(unsettled as u64)
    }

    /// Returns true for a task whose only process leaves or has ended.
    pub(crate) fn is_leaving_task(&self, work: &WorkId) -> bool {
        let entry = self.followed.demand().get(work.as_str());
        let entry = entry.filter(|it| it.part.is_some() && it.launch.is_some());
        entry.is_some_and(|entry| self.part_limit(entry) == 0)
    }

    /// Makes all possible exchanges. Returns the orders to leave for the placeholders.
    pub(crate) fn exchange_placeholders(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        // While a neighbour is silent, no allocation ends.
        if self.timing.stale_neighbour().is_some()
            || self.successor_requests.replacement_tasks.is_empty()
        {
            return Vec::new();
        }
        // First each task is granted on the node of its placeholder. Tasks without a valid grant
        // there are then granted on other nodes of the pool.
        let requested = self.possible_exchanges();
        if requested.is_empty() {
            return Vec::new();
        }
        let in_place = requested
            .iter()
            .filter_map(|it| self.grant_on_node(it, None));
        let in_place: Vec<Grant> = in_place.collect();
        // Exchanges whose placeholder is removed from the snapshot, for the check.
        let mut assumed = Vec::new();
        let valid = self.valid_grants(&mut assumed, &requested, in_place);
        let moved = self.grants_on_other_nodes(&requested, &valid);
        let moved_exchanges: Vec<Exchange> = requested
            .iter()
            .filter(|it| moved.iter().any(|grant| grant.work == it.work))
            .cloned()
            .collect();
        let all = valid.into_iter().chain(moved).collect();
        let grants = self
            .valid_grants(&mut assumed, &moved_exchanges, all)
            .into_iter();
        let mut grants: BTreeMap<WorkId, Grant> = grants.map(|it| (it.work.clone(), it)).collect();
        let mut ordered = Vec::new();
        // A task that is started outside a plan needs a trace too (T5).
        let trace = self.trace_of_exchanges(&grants);
        self.planning.set_trace(trace);
        for exchange in &requested {
            if let Some(grant) = grants.remove(&exchange.work) {
                ordered.push(self.carry_out_exchange(exchange, grant, moment, batch));
            }
        }
        if let Some(trace) = self.planning.take_trace() {
            batch.once_committed(move |revision| trace.mark_committed(revision));
        }
        ordered
    }

    fn trace_of_exchanges(&self, grants: &BTreeMap<WorkId, Grant>) -> Option<RoundTrace> {
        let requested = grants.keys();
        let requested = requested.filter_map(|work| self.followed.demand().get(work.as_str()));
        let submitted = requested.filter_map(DemandEntry::submitted_within);
        exchange_trace(self.timing.round(), grants.len(), submitted)
    }

    /// Returns the tasks that can replace a placeholder now. Each placeholder serves one task.
    fn possible_exchanges(&self) -> Vec<Exchange> {
        let mut used_placeholders: BTreeSet<&AllocationId> = BTreeSet::new();
        let mut requested = Vec::new();
        for work in &self.successor_requests.replacement_tasks {
            let Some(entry) = self.followed.demand().get(work.as_str()) else {
                continue;
            };
            let part = entry.part.as_ref();
            let Some(placeholder) = part.and_then(|part| part.replaces.as_ref()) else {
                continue;
            };
            let Some(record) = self.allocations.get(placeholder) else {
                continue;
            };
            let is_staying = record.entry.holds() && record.entry.vacate.is_none();
            let belongs_to_application =
                record.entry.launch.is_none() && record.entry.work.parent() == work.parent();
            // An attempt that is not settled counts too.
            let has_attempt = self.allocations.has_any(work);
            if is_staying
                && belongs_to_application
                && !has_attempt
                && used_placeholders.insert(placeholder)
            {
                requested.push(Exchange {
                    work: work.clone(),
                    placeholder: placeholder.clone(),
                });
            }
        }
        requested
    }

    /// Changes the snapshot as if the placeholder had ended and the task could start.
    fn assume_ended(&mut self, exchange: &Exchange) {
        self.snapshot.set_allocation(&exchange.placeholder, None);
        if let Some(entry) = self.followed.demand().get(exchange.work.as_str()) {
            let demand = snapshot::Demand {
                max_processes: 1,
                ..translate::demand(entry, self.followed.avoided_nodes(&entry.work, &entry.user))
            };
            self.snapshot.set_demand(exchange.work.clone(), demand);
        }
    }

    /// Undoes [`Ledger::assume_ended`].
    fn restore_placeholder(&mut self, exchange: &Exchange) {
        if let Some(record) = self.allocations.get(&exchange.placeholder) {
            let allocation = self.planner_allocation(record);
            let id = exchange.placeholder.clone();
            self.snapshot.set_allocation(&id, Some(allocation));
        }
        self.refresh_demand(exchange.work.as_str());
    }

    /// Returns the grant of a task, on the node of its placeholder or on the given node with these
    /// GPUs.
    fn grant_on_node(
        &self,
        exchange: &Exchange,
        target: Option<(&NodeName, Vec<u64>)>,
    ) -> Option<Grant> {
        let entry = self.followed.demand().get(exchange.work.as_str())?;
        let record = self.allocations.get(&exchange.placeholder)?;
        let (node, gpus) = target.unwrap_or_else(|| (&record.entry.node, record.gpus.clone()));
        let (quanta, size) = self.quanta_and_size(self.snapshot.nodes.get(node)?, &entry.size);
        Some(Grant {
            work: exchange.work.clone(),
            kind: entry.kind,
            user: entry.user.clone(),
            class: record.entry.class.as_str().into(),
            node: node.clone(),
            quanta,
            fixed: record.fixed,
            group: record.group.clone(),
            gpus: gpus.into_iter().take(gpu_count(&size)).collect(),
            size,
        })
    }

    /// Returns quanta and size of one process on this node. A request above the capacity of the
    /// node is sized by the largest nodes of the tree of pools.
    fn quanta_and_size(&self, node: &snapshot::Node, requested: &Size) -> (u64, Size) {
        let quantum = self.quantum(&node.pool);
        let quanta = quantum.quanta_of_work(requested);
        if quanta <= quantum.quanta_of_node(&node.capacity) {
            return (quanta, quantum.granted_at(quanta, requested));
        }
        let top = root_pool_of(&self.snapshot, &node.pool);
        let nodes = self.snapshot.nodes.values();
        let nodes = nodes.filter(|node| root_pool_of(&self.snapshot, &node.pool) == top);
        let largest = LargestNodes::from_capacities(quantum, nodes.map(|node| &node.capacity));
        let quanta = process_quanta(quantum, requested, [&largest]);
        (quanta, quantum.granted_at(quanta, requested))
    }

    /// Returns the quantum of the tree of a pool.
    fn quantum(&self, pool: &str) -> &Quantum {
        let pools = &self.snapshot.pools;
        let mut current = pools.get(pool);
        for _ in 0..pools.len() {
            let parent = current.and_then(|pool| pool.parent.as_ref());
            let Some(parent) = parent.and_then(|name| pools.get(name)) else {
                break;
            };
            current = Some(parent);
        }
        let own = current.and_then(|top| top.quantum.as_ref());
        own.unwrap_or(&self.snapshot.quantum)
    }

    /// Returns the grants that pass the check if the placeholders of `added` and `assumed` end. The
    /// placeholder of a refused grant stays, so the remaining grants are checked again. On return,
    /// `assumed` contains the exchanges of the returned grants.
    fn valid_grants(
        &mut self,
        assumed: &mut Vec<Exchange>,
        added: &[Exchange],
        grants: Vec<Grant>,
    ) -> Vec<Grant> {
        for exchange in added {
            self.assume_ended(exchange);
        }
        assumed.extend_from_slice(added);
        let mut grants = self.check_grants(grants);
        loop {
            let works: BTreeSet<&WorkId> = grants.iter().map(|it| &it.work).collect();
            let refused = assumed.extract_if(.., |it| !works.contains(&it.work));
            let refused: Vec<Exchange> = refused.collect();
            if refused.is_empty() {
                return grants;
            }
            for exchange in &refused {
                self.restore_placeholder(exchange);
            }
            grants = self.check_grants(grants);
        }
    }

    fn check_grants(&mut self, grants: Vec<Grant>) -> Vec<Grant> {
        let plan = Plan {
            grants,
            ..Plan::default()
        };
        self.planning
            .check_between_rounds(&self.snapshot, plan)
            .grants
    }

    /// Returns the pool and the free space of each open node, after these grants.
    fn free_space(&self, grants: &[Grant]) -> BTreeMap<NodeName, FreeSpace> {
        let open = self.snapshot.nodes.iter().filter(|(_, node)| {
            node.takes_work && !node.lost && !node.offline && node.block.is_none()
        });
        let whole_node = |node: &snapshot::Node| FreeSpace {
            pool: node.pool.clone(),
            size: node.capacity.clone(),
        };
        let mut spaces: BTreeMap<NodeName, FreeSpace> = open
            .map(|(name, node)| (name.clone(), whole_node(node)))
            .collect();
        let allocations = self.snapshot.allocations.values();
        let used = allocations.map(|it| (&it.node, &it.size));
        for (node, size) in used.chain(grants.iter().map(|it| (&it.node, &it.size))) {
            if let Some(free) = spaces.get_mut(node) {
                free.size.subtract(size);
            }
        }
        self.subtract_reserved(&mut spaces);
        spaces
    }

    /// Subtracts the space that the queues have reserved for waiting work. A node that is reserved
    /// as a whole is removed.
    fn subtract_reserved(&self, spaces: &mut BTreeMap<NodeName, FreeSpace>) {
        for queues in self.snapshot.carried.queues.values() {
            spaces.retain(|name, _| !queues.reservations.contains_key(name));
            let nodes = queues.gang.iter().flat_map(|space| &space.nodes);
            for (name, works) in nodes {
                let Some(free) = spaces.get_mut(name) else {
                    continue;
                };
                for (work, count) in works {
                    if let Some(entry) = self.followed.demand().get(work.as_str()) {
                        let size = self.quantum(&free.pool).granted(&entry.size);
                        (0..*count).for_each(|_| free.size.subtract(&size));
                    }
                }
            }
        }
    }

    /// Returns grants on other nodes for tasks without a grant in `valid`. The placeholders of
    /// these tasks do not count as free space, because a placeholder stays if its task is refused.
    fn grants_on_other_nodes(&self, requested: &[Exchange], valid: &[Grant]) -> Vec<Grant> {
        let done: BTreeSet<&WorkId> = valid.iter().map(|it| &it.work).collect();
        let mut remaining = requested
            .iter()
            .filter(|it| !done.contains(&it.work))
            .peekable();
        if remaining.peek().is_none() {
            return Vec::new();
        }
        let mut spaces = self.free_space(valid);
        let mut grants = valid.to_vec();
        for exchange in remaining {
            let node = self.node_with_most_free_memory(exchange, &mut spaces);
            let grant = node.and_then(|node| {
                let gpus = self.free_gpus(exchange, &node, &grants)?;
                self.grant_on_node(exchange, Some((&node, gpus)))
            });
            grants.extend(grant);
        }
        grants.split_off(valid.len())
    }

    /// Returns the node of the same pool with the most free memory on which the task fits.
    /// Subtracts the size of the task from the free space of the node.
    fn node_with_most_free_memory(
        &self,
        exchange: &Exchange,
        spaces: &mut BTreeMap<NodeName, FreeSpace>,
    ) -> Option<NodeName> {
        let record = self.allocations.get(&exchange.placeholder)?;
        let pool = &self.snapshot.nodes.get(&record.entry.node)?.pool;
        let entry = self.followed.demand().get(exchange.work.as_str())?;
        let size = self.quantum(pool).granted(&entry.size);
        let avoided = self.followed.avoided_nodes(&exchange.work, &entry.user);
        let fits = |(name, free): &(&NodeName, &mut FreeSpace)| {
            free.pool == *pool && size.fits(&free.size) && !avoided.contains(*name)
        };
        let (name, free) = spaces
            .iter_mut()
            .filter(fits)
            .max_by_key(|(_, free)| free.size.memory_bytes)?;
        free.size.subtract(&size);
        Some(name.clone())
    }

    /// Returns the numbers of free GPUs for the task. A task that needs a part of a GPU gets the
    /// GPU with the least free space. Returns `None` if too few GPUs are free.
    fn free_gpus(
        &self,
        exchange: &Exchange,
        node: &NodeName,
        grants: &[Grant],
    ) -> Option<Vec<u64>> {
        let node_entry = self.snapshot.nodes.get(node)?;
        let quantum = self.quantum(&node_entry.pool);
        let size = quantum.granted(&self.followed.demand().get(exchange.work.as_str())?.size);
        // Free thousandths of each GPU. The last GPU of the capacity may be a part.
        let mut free: Vec<u64> = (0..node_entry.capacity.gpu_milli.div_ceil(GPU_MILLI))
            .map(|index| (node_entry.capacity.gpu_milli - index * GPU_MILLI).min(GPU_MILLI))
            .collect();
        let allocations = self.snapshot.allocations.values();
        let used = allocations.map(|it| (&it.node, &it.size, &it.gpus));
        let new = grants.iter().map(|it| (&it.node, &it.size, &it.gpus));
        for (_, size, gpus) in used.chain(new).filter(|(on, ..)| *on == node) {
            for gpu in gpus {
                let gpu = usize::try_from(*gpu)
                    .ok()
                    .and_then(|index| free.get_mut(index));
                if let Some(free) = gpu {
                    *free = free.saturating_sub(size.gpu_milli.min(GPU_MILLI));
                }
            }
        }
        let per_gpu = size.gpu_milli.min(GPU_MILLI);
        // Free thousandths and number of each GPU.
        let mut fitting: Vec<(u64, u64)> = free.into_iter().zip(0..).collect();
        fitting.retain(|(free, _)| *free >= per_gpu);
        fitting.sort_unstable();
        fitting.truncate(gpu_count(&size));
        let gpus: Vec<u64> = fitting.into_iter().map(|(_, index)| index).collect();
        (gpus.len() == gpu_count(&size)).then_some(gpus)
    }

    fn carry_out_exchange(
        &mut self,
        exchange: &Exchange,
        grant: Grant,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> LeaveOrder {
        let order = LeaveOrder {
            allocation: exchange.placeholder.clone(),
            reason: VacateReason::Replaced,
            detail: format!("{} takes its place", exchange.work),
            purge: false,
        };
        self.vacate(order.clone(), moment, batch);
        self.grant(grant, moment, batch);
        self.refresh_demand(exchange.work.as_str());
        order
    }
}

/// Returns the number of GPUs that a task uses. A part of a GPU counts as one.
fn gpu_count(size: &Size) -> usize {
    usize::try_from(size.gpu_milli.div_ceil(GPU_MILLI)).unwrap_or(usize::MAX)
}
