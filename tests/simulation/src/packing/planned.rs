//! Protocol A with the planner of real fleets. Pods are work that is never preempted, and each
//! round handles a batch of them. Within a round the planner serves them by age, which is the order
//! of arrival. A pod that finds no space in its round is rejected.

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
    inflation::{Inflated, Placed, Tally},
    site::{Pod, Sites},
};

/// Number of pods in one round.
const BATCH: usize = 250;
const MIB: u64 = 1 << 20;

struct Fleet {
    snapshot: Snapshot,
    planner: Rounds,
    /// Changes since the snapshot of the last round.
    news: SnapshotDelta,
    /// Names of the nodes, with the index of their sites.
    names: Vec<NodeName>,
    node_index: BTreeMap<NodeName, usize>,
    /// Nodes that a pod may use, by its set of accepted models.
    listed: BTreeMap<u64, BTreeSet<NodeName>>,
    /// Number of pods submitted so far.
    asked: i64,
}

/// Submits the pods in batches.
pub fn inflate_planned(
    sites: &mut Sites,
    order: &[Pod],
    settings: &Settings,
) -> (Inflated, Vec<Placed>) {
    let mut fleet = Fleet::new(sites, settings);
    let mut tally = Tally::new(sites);
    let mut placed = Vec::new();
    for (batch, pods) in order.chunks(BATCH).enumerate() {
        let first = batch * BATCH;
        let ids: Vec<WorkId> = (first..first + pods.len()).map(work_id).collect();
        for (id, pod) in ids.iter().zip(pods) {
            fleet.ask(sites, id, pod);
        }
        let found = fleet.round();
        for (id, pod) in ids.iter().zip(pods) {
            let place = found.get(id);
            tally.offered(pod, place.is_some());
            let Some((node, gpus)) = place else {
                fleet.withdraw(id);
                continue;
            };
            sites.list[*node].take(pod, gpus);
            placed.push(Placed {
                pod: pod.clone(),
                node: *node,
                gpus: gpus.clone(),
            });
        }
    }
    (tally.close(sites), placed)
}

fn work_id(at: usize) -> WorkId {
    WorkId::new(format!("pod_{at:09}")).expect("digits are a good name")
}

fn user() -> UserName {
    UserName::new("somebody").expect("letters are a good name")
}

impl Fleet {
    fn new(sites: &Sites, settings: &Settings) -> Self {
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
        let mut names = Vec::with_capacity(sites.empty.len());
        for (at, site) in sites.empty.iter().enumerate() {
            let name = NodeName::new(format!("n{at:06}")).expect("digits are a good name");
            let node = snapshot::Node {
                pool: "default".into(),
                capacity: Size {
                    memory_bytes: site.memory_mib.saturating_mul(MIB),
                    cpu_milli: site.cpu_milli,
                    gpu_milli: site.gpu_free(),
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
            news: SnapshotDelta::everything(),
            node_index: names.iter().cloned().zip(0..).collect(),
            names,
            listed: BTreeMap::new(),
            asked: 0,
        }
    }

    fn ask(&mut self, sites: &Sites, id: &WorkId, pod: &Pod) {
        let names = &self.names;
        let accepting = || {
            let accepts = |at: &usize| sites.empty[*at].model & pod.shape.models != 0;
            let able = (0..names.len()).filter(accepts);
            able.map(|at| names[at].clone()).collect()
        };
        let machines = match pod.shape.models {
            u64::MAX => BTreeSet::new(),
            models => self.listed.entry(models).or_insert_with(accepting).clone(),
        };
        self.asked += 1;
        let demand = snapshot::Demand {
            kind: WorkKind::Service,
            user: user(),
            class: None,
            submitted_at: Timestamp::from_unix_ms(self.asked),
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
            node_list: machines,
            avoids: std::collections::BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: true,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: None,
        };
        self.news.work.insert(id.clone(), Some(demand.clone()));
        self.snapshot.demand.insert(id.clone(), demand);
    }

    fn withdraw(&mut self, id: &WorkId) {
        self.snapshot.demand.remove(id);
        self.news.work.insert(id.clone(), None);
    }

    /// Runs a round. Returns the node and the GPUs of each placed work.
    fn round(&mut self) -> BTreeMap<WorkId, (usize, Vec<usize>)> {
        self.snapshot.round += 1;
        let news = std::mem::take(&mut self.news);
        let plan = self.planner.decide(&self.snapshot, &news).plan;
        debug_assert!(plan.vacates.is_empty(), "nothing here may be taken back");
        self.snapshot.carried = plan.carried;
        let granted = plan.grants.into_iter();
        granted
            .map(|grant| {
                let node = self.node_index[&grant.node];
                let gpus = grant
                    .gpus
                    .iter()
                    .filter_map(|gpu| usize::try_from(*gpu).ok());
                let place = (node, gpus.collect());
                let work = grant.work.clone();
                self.hold(grant);
                (work, place)
            })
            .collect()
    }

    fn hold(&mut self, grant: Grant) {
        let serial = self.snapshot.allocations.len();
        let id = AllocationId::new(format!("alc_{serial:012}")).expect("a good name");
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
        self.news.allocations.insert(id.clone(), added);
        self.snapshot.allocations.insert(id, allocation);
    }
}
