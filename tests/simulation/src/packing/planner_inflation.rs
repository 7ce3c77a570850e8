//! Inflation (protocol A) with the planner of real fleets. Pods are work that is never preempted,
//! and each round handles a batch of them. Within a round the planner serves them by age, which is
//! the order of arrival. A pod that finds no space in its round is rejected.

use std::collections::{BTreeMap, BTreeSet};

pub use hayward_rm_scheduler_domain::settings::Settings;
use hayward_rm_scheduler_domain::{
    Rounds, SnapshotDelta,
    plan::Grant,
    snapshot::{self, Snapshot},
};
use hayward_vocabulary::{
    AllocationId, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};

use super::{
    gpu_node::{GpuNodes, Pod},
    inflation::{InflationResult, PlacedPod, Tally},
};

/// Number of pods in one round.
const BATCH: usize = 250;
const MIB: u64 = 1 << 20;

/// A fleet of the planner in which pods only arrive.
struct PlannerFleet {
    snapshot: Snapshot,
    planner: Rounds,
    /// Changes since the snapshot of the last round.
    delta: SnapshotDelta,
    /// Names of the nodes, in the order of their indices.
    names: Vec<NodeName>,
    node_index: BTreeMap<NodeName, usize>,
    /// Nodes that a pod may use, by its set of accepted models.
    nodes_by_models: BTreeMap<u64, BTreeSet<NodeName>>,
    /// Number of pods submitted so far.
    submitted: i64,
}

/// Submits the pods in batches.
pub fn inflate_with_planner(
    gpu_nodes: &mut GpuNodes,
    arrival_order: &[Pod],
    settings: &Settings,
) -> (InflationResult, Vec<PlacedPod>) {
    let mut fleet = PlannerFleet::new(gpu_nodes, settings);
    let mut tally = Tally::new(gpu_nodes);
    let mut placed = Vec::new();
    for (batch, pods) in arrival_order.chunks(BATCH).enumerate() {
        let first = batch * BATCH;
        let ids: Vec<WorkId> = (first..first + pods.len()).map(work_id).collect();
        for (id, pod) in ids.iter().zip(pods) {
            fleet.submit(gpu_nodes, id, pod);
        }
        let placements = fleet.run_round();
        for (id, pod) in ids.iter().zip(pods) {
            let placement = placements.get(id);
            tally.record_arrival(pod, placement.is_some());
            let Some((node, gpus)) = placement else {
                fleet.withdraw(id);
                continue;
            };
            gpu_nodes.nodes[*node].allocate(pod, gpus);
            placed.push(PlacedPod {
                pod: pod.clone(),
                node: *node,
                gpus: gpus.clone(),
            });
        }
    }
    (tally.close(gpu_nodes), placed)
}

fn work_id(index: usize) -> WorkId {
    WorkId::new(format!("pod_{index:09}")).expect("digits are a valid name")
}

/// Returns the user of all pods. The trace names no users.
fn pod_owner() -> UserName {
    UserName::new("somebody").expect("letters are a valid name")
}

impl PlannerFleet {
    fn new(gpu_nodes: &GpuNodes, settings: &Settings) -> Self {
        let mut snapshot = Snapshot::empty();
        snapshot.tunables.settings = settings.clone();
        // The quantum is as fine as the trace, so that no pod is granted more than it requests.
        snapshot.quantum = Quantum(Size::memory(MIB));
        let pool = snapshot::Pool::default();
        snapshot.pools.insert("default".into(), pool);
        let class = snapshot::Class {
            policy: snapshot::Policy::FixedShare,
            priority: 1,
            weight: 1,
            pool: "default".into(),
            default: true,
            users: BTreeSet::new(),
            position: 0,
            debug_class: None,
            growth: snapshot::Growth::default(),
        };
        snapshot.classes.insert("pods".into(), class);
        let mut names = Vec::with_capacity(gpu_nodes.empty.len());
        for (index, gpu_node) in gpu_nodes.empty.iter().enumerate() {
            let name = NodeName::new(format!("n{index:06}")).expect("digits are a valid name");
            let node = snapshot::Node {
                pool: "default".into(),
                capacity: Size {
                    memory_bytes: gpu_node.memory_mib.saturating_mul(MIB),
                    cpu_milli: gpu_node.cpu_milli,
                    gpu_milli: gpu_node.free_gpu_milli(),
                    extras: BTreeMap::new(),
                },
                takes_work: true,
                lost: false,
                offline: false,
                block: None,
                labels: BTreeMap::new(),
            };
            snapshot.nodes.insert(name.clone(), node);
            names.push(name);
        }
        Self {
            snapshot,
            planner: Rounds::without_explanations(),
            delta: SnapshotDelta::everything(),
            node_index: names.iter().cloned().zip(0..).collect(),
            names,
            nodes_by_models: BTreeMap::new(),
            submitted: 0,
        }
    }

    fn submit(&mut self, gpu_nodes: &GpuNodes, id: &WorkId, pod: &Pod) {
        let names = &self.names;
        let accepting_nodes = || {
            let has_accepted_model =
                |index: &usize| gpu_nodes.empty[*index].model & pod.shape.models != 0;
            let accepting = (0..names.len()).filter(has_accepted_model);
            accepting.map(|index| names[index].clone()).collect()
        };
        // All bits are set if the pod accepts any model, and an empty list accepts any node.
        let node_list = match pod.shape.models {
            u64::MAX => BTreeSet::new(),
            models => self
                .nodes_by_models
                .entry(models)
                .or_insert_with(accepting_nodes)
                .clone(),
        };
        self.submitted += 1;
        let demand = snapshot::Demand {
            kind: WorkKind::Service,
            user: pod_owner(),
            class: None,
            submitted_at: Timestamp::from_unix_ms(self.submitted),
            size: Size {
                memory_bytes: pod.memory_mib * MIB,
                cpu_milli: pod.shape.cpu_milli,
                gpu_milli: pod.shape.gpu_total(),
                extras: BTreeMap::new(),
            },
            max_processes: 1,
            remaining_tasks: 1,
            threads: 1,
            task_ms: None,
            node_list,
            avoids: BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: true,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: None,
        };
        self.delta.work.insert(id.clone(), Some(demand.clone()));
        self.snapshot.demand.insert(id.clone(), demand);
    }

    fn withdraw(&mut self, id: &WorkId) {
        self.snapshot.demand.remove(id);
        self.delta.work.insert(id.clone(), None);
    }

    /// Runs a round. Returns the node and the GPUs of each placed pod.
    fn run_round(&mut self) -> BTreeMap<WorkId, (usize, Vec<usize>)> {
        self.snapshot.round += 1;
        let delta = std::mem::take(&mut self.delta);
        let plan = self.planner.decide(&self.snapshot, &delta).plan;
        debug_assert!(plan.vacates.is_empty(), "no pod can be preempted");
        self.snapshot.carried = plan.carried;
        let granted = plan.grants.into_iter();
        granted
            .map(|grant| {
                let node = self.node_index[&grant.node];
                let gpus = grant
                    .gpus
                    .iter()
                    .filter_map(|gpu| usize::try_from(*gpu).ok());
                let placement = (node, gpus.collect());
                let work = grant.work.clone();
                self.add_allocation(grant);
                (work, placement)
            })
            .collect()
    }

    fn add_allocation(&mut self, grant: Grant) {
        let number = self.snapshot.allocations.len();
        let id = AllocationId::new(format!("alc_{number:012}")).expect("a valid name");
        let now = self.snapshot.now;
        let allocation = snapshot::Allocation {
            work: grant.work,
            kind: grant.kind,
            user: grant.user,
            class: grant.class.to_string(),
            node: grant.node,
            quanta: grant.quanta,
            size: grant.size,
            fixed: grant.fixed,
            granted_at: now,
            running: true,
            started_at: Some(now),
            running_since: Some(now),
            investment_ms: Some(0),
            item_ms: None,
            gpus: grant.gpus,
            group: grant.group,
            leaving: false,
            purged: false,
        };
        let added = Some(allocation.clone());
        self.delta.allocations.insert(id.clone(), added);
        self.snapshot.allocations.insert(id, allocation);
    }
}
