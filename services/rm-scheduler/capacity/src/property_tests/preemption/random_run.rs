//! Generators of random runs for the preemption property: queues, nodes, work, and the rounds in
//! which work is submitted and processes end.

use std::{collections::BTreeMap, ops::Range};

use hayward_rm_scheduler_domain::snapshot::queues::Gang;
use hayward_vocabulary::AllocationId;
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::super::VCORE;
use crate::fixture::{Fixture, queued_mut};

/// Number of rounds of a run.
pub(super) const ROUNDS: u64 = 40;
/// Rounds that the slowest victim takes to stop.
const MAX_STOP_ROUNDS: u64 = 9;

/// Vcores and units of memory. `None` if a type has no amount.
#[derive(Debug, Clone)]
struct Amounts {
    vcore: Option<u64>,
    memory: Option<u64>,
}

/// A leaf queue.
#[derive(Debug, Clone)]
struct Leaf {
    guaranteed: Amounts,
    /// Amount by which the maximum exceeds the guarantee.
    headroom: Amounts,
    /// Maximum number of vcores of each user.
    user_limit: Option<u64>,
    max_applications: Option<u64>,
    preemption_delay_ms: u64,
}

/// A parent queue with its leaves.
#[derive(Debug, Clone)]
struct Parent {
    leaves: Vec<Leaf>,
    /// Amount by which the guarantee exceeds the sum of the guarantees of the leaves.
    guaranteed: Amounts,
    headroom: Amounts,
    fence: bool,
}

/// A work item. Indices of queues and nodes are taken modulo the existing number.
#[derive(Debug, Clone)]
pub(super) struct WorkSpec {
    /// Round of the submission.
    pub round: u64,
    parent: usize,
    leaf: usize,
    vcore: u64,
    memory: u64,
    /// Thousandths of gpus.
    gpu: u64,
    /// Number of processes.
    count: u64,
    is_gang: bool,
    priority: i32,
    is_preemptable: bool,
    is_originator: bool,
    application: Option<u8>,
    required_node: Option<usize>,
}

/// A pool, and all events of a run.
#[derive(Debug, Clone)]
pub(super) struct RandomRun {
    parents: Vec<Parent>,
    /// Vcores, memory and gpus of each node.
    nodes: Vec<(u64, u64, u64)>,
    /// Work submitted before the first round.
    pub initial: Vec<WorkSpec>,
    /// Work submitted in later rounds.
    pub later: Vec<WorkSpec>,
    /// Index of the process that ends by itself, by round.
    pub ends: BTreeMap<u64, usize>,
    /// Numbers of rounds that processes take to stop, used in rotation.
    stop_rounds: Vec<u64>,
}

/// Generates amounts. Vcores and memory are set with these probabilities.
fn any_amounts(max: u64, vcore: f64, memory: f64) -> impl Strategy<Value = Amounts> {
    let vcore = option::weighted(vcore, 0..=max);
    let memory = option::weighted(memory, 0..=max);
    (vcore, memory).prop_map(|(vcore, memory)| Amounts { vcore, memory })
}

fn any_leaf() -> impl Strategy<Value = Leaf> {
    let delay = prop_oneof![Just(500_u64), Just(1_000), Just(4_000)];
    let user_limit = option::weighted(0.15, 1..6_u64);
    let max_applications = option::weighted(0.15, 1..4_u64);
    let (guaranteed, headroom) = (any_amounts(8, 0.6, 0.15), any_amounts(6, 0.4, 0.15));
    let fields = (guaranteed, headroom, user_limit, max_applications, delay);
    fields.prop_map(
        |(guaranteed, headroom, user_limit, max_applications, preemption_delay_ms)| Leaf {
            guaranteed,
            headroom,
            user_limit,
            max_applications,
            preemption_delay_ms,
        },
    )
}

fn any_parent() -> impl Strategy<Value = Parent> {
    let fence = prop::bool::weighted(0.15);
    let (guaranteed, headroom) = (any_amounts(6, 0.4, 0.1), any_amounts(6, 0.5, 0.15));
    let fields = (vec(any_leaf(), 1..4), guaranteed, headroom, fence);
    fields.prop_map(|(leaves, guaranteed, headroom, fence)| Parent {
        leaves,
        guaranteed,
        headroom,
        fence,
    })
}

fn any_work_spec(rounds: Range<u64>, counts: Range<u64>) -> impl Strategy<Value = WorkSpec> {
    let position = (rounds, 0..3_usize, 0..3_usize);
    let gpu = prop_oneof![30 => Just(0_u64), 1 => Just(500), 1 => Just(1_000), 1 => Just(2_000)];
    let size = (1..4_u64, 1..4_u64, gpu, counts);
    let traits = (
        prop::bool::weighted(0.25),
        0..3_i32,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.1),
        option::weighted(0.4, 0..3_u8),
        option::weighted(0.08, 0..4_usize),
    );
    (position, size, traits).prop_map(|(position, size, traits)| {
        let (round, parent, leaf) = position;
        let (vcore, memory, gpu, count) = size;
        let (is_gang, priority, is_preemptable, is_originator, application, required_node) = traits;
        WorkSpec {
            round,
            parent,
            leaf,
            vcore,
            memory,
            gpu,
            count,
            is_gang,
            priority,
            is_preemptable,
            is_originator,
            application,
            required_node,
        }
    })
}

/// Generates runs.
pub(super) fn any_run() -> impl Strategy<Value = RandomRun> {
    let node = (
        2..9_u64,
        4..16_u64,
        prop_oneof![2 => Just(0_u64), 1 => 1..3_u64],
    );
    (
        vec(any_parent(), 1..3),
        vec(node, 1..4),
        vec(any_work_spec(0..1, 2..9), 2..6),
        vec(any_work_spec(1..15, 1..5), 2..8),
        proptest::collection::btree_map(0..ROUNDS / 2, 0..20_usize, 0..4),
        vec(0..MAX_STOP_ROUNDS, 1..12),
    )
        .prop_map(
            |(parents, nodes, initial, later, ends, stop_rounds)| RandomRun {
                parents,
                nodes,
                initial,
                later,
                ends,
                stop_rounds,
            },
        )
}

/// Returns the resources of a queue in the document. Its guarantee is its own amount plus the
/// guarantees of its children.
fn resources_document(children: &[Amounts], own_amounts: &Amounts, headroom: &Amounts) -> Value {
    let limits = |get: fn(&Amounts) -> Option<u64>| {
        let sum: u64 = children.iter().filter_map(get).sum();
        let guaranteed = get(own_amounts).map(|amount| amount + sum);
        let max = get(headroom).map(|amount| (guaranteed.unwrap_or(sum) + amount).max(1));
        (guaranteed, max)
    };
    let (vcore, memory) = (limits(|it| it.vcore), limits(|it| it.memory));
    let mut document = json!({"guaranteed": {}, "max": {}});
    for (name, (guaranteed, max)) in [("vcore", vcore), ("memory", memory)] {
        if let Some(guaranteed) = guaranteed {
            document["guaranteed"][name] = json!(guaranteed);
        }
        if let Some(max) = max {
            document["max"][name] = json!(max);
        }
    }
    document
}

impl RandomRun {
    /// Returns the configuration of the queues: `p0.l0`, `p0.l1` and so on.
    fn document(&self) -> Value {
        let mut queues = json!({});
        for (index, parent) in self.parents.iter().enumerate() {
            let child_guarantees: Vec<Amounts> = parent
                .leaves
                .iter()
                .map(|it| it.guaranteed.clone())
                .collect();
            let resources =
                resources_document(&child_guarantees, &parent.guaranteed, &parent.headroom);
            let mut children = json!({});
            for (child, leaf) in parent.leaves.iter().enumerate() {
                children[format!("l{child}")] = leaf.document(&resources["max"]);
            }
            let preemption = if parent.fence { "fence" } else { "default" };
            queues[format!("p{index}")] = json!({"resources": resources,
                "preemption": preemption, "queues": children});
        }
        json!({"queues": {"root": {"submit_acl": "*", "queues": queues}}})
    }

    /// Creates the pool with its nodes `n0`, `n1` and so on, without work.
    pub fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::from_queues(&self.document());
        for (index, (vcore, memory, gpus)) in self.nodes.iter().enumerate() {
            let node = fixture.add_node(&format!("n{index}"), &[("vcore", vcore * VCORE)]);
            node.capacity.memory_bytes = *memory;
            node.capacity.gpu_milli = gpus * 1_000;
        }
        fixture
    }

    /// Submits the work as `job_<name>0`, `job_<name>1` and so on.
    pub fn submit(&self, fixture: &mut Fixture, specs: &[WorkSpec], name: &str) {
        for (index, spec) in specs.iter().enumerate() {
            let parent = spec.parent % self.parents.len();
            let leaf = spec.leaf % self.parents[parent].leaves.len();
            let sizes = [
                ("vcore", spec.vcore * VCORE),
                ("memory", spec.memory),
                ("gpu", spec.gpu),
            ];
            let queue = format!("root.p{parent}.l{leaf}");
            let demand = fixture.add_work(&format!("job_{name}{index}"), &queue, &sizes);
            demand.max_processes = spec.count;
            let queued = queued_mut(demand);
            queued.priority = spec.priority;
            queued.preemptable = spec.is_preemptable;
            queued.originator = spec.is_originator;
            queued.application = spec
                .application
                .map(|app| format!("app_{parent}_{leaf}_{app}"));
            let min = spec.count;
            queued.gang = spec.is_gang.then(|| Gang {
                name: "gang".to_owned(),
                min,
            });
            let required_node = spec.required_node.filter(|_| !spec.is_gang);
            let node = required_node.map(|index| format!("n{}", index % self.nodes.len()));
            queued.required_node = node.map(|name| name.parse().unwrap());
        }
    }

    /// Returns the number of rounds that this process takes to stop.
    pub fn stop_rounds_of(&self, id: &AllocationId) -> u64 {
        let number = id.as_str().strip_prefix("alc_").unwrap();
        let number: usize = number.parse().unwrap();
        self.stop_rounds[number % self.stop_rounds.len()]
    }
}

impl Leaf {
    /// Returns the configuration of the leaf. Its maxima do not exceed those of the parent.
    fn document(&self, parent_max: &Value) -> Value {
        let mut resources = resources_document(&[], &self.guaranteed, &self.headroom);
        for name in ["vcore", "memory"] {
            let max = resources["max"][name].as_u64();
            if let Some((max, parent_max)) = max.zip(parent_max[name].as_u64()) {
                resources["max"][name] = json!(max.min(parent_max));
            }
            if resources["max"][name].is_null() {
                resources["max"].as_object_mut().unwrap().remove(name);
            }
        }
        let mut leaf =
            json!({"resources": resources, "preemption_delay_ms": self.preemption_delay_ms});
        let max = resources["max"]["vcore"].as_u64();
        if let Some(limit) = self.user_limit.map(|limit| limit.min(max.unwrap_or(limit))) {
            leaf["limits"] = json!([{"users": ["*"], "max_resources": {"vcore": limit}}]);
        }
        if let Some(limit) = self.max_applications {
            leaf["max_applications"] = json!(limit);
        }
        leaf
    }
}
