//! Property: preemption starts the work that victims leave for (the beneficiary), with no more
//! victims than needed. The cases are random queues and work, and victims take time to stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use hayward_rm_scheduler_domain::{Plan, Planner, Snapshot, snapshot::queues::Gang};
use hayward_vocabulary::{AllocationId, WorkId};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::{VCORE, check_victims};
use crate::{
    Capacity,
    fixture::{Fixture, POOL, queued_mut},
};

const ROUNDS: u64 = 40;
/// Rounds that the slowest victim takes to stop.
const MAX_STOP_ROUNDS: u64 = 9;

#[derive(Debug, Clone)]
struct Amounts {
    vcore: Option<u64>,
    memory: Option<u64>,
}

#[derive(Debug, Clone)]
struct Leaf {
    guaranteed: Amounts,
    /// Amount by which the maximum exceeds the guarantee.
    headroom: Amounts,
    user_limit: Option<u64>,
    applications: Option<u64>,
    delay_ms: u64,
}

#[derive(Debug, Clone)]
struct Parent {
    leaves: Vec<Leaf>,
    /// Amount by which the guarantee exceeds the sum of the guarantees of the leaves.
    guaranteed: Amounts,
    headroom: Amounts,
    fence: bool,
}

#[derive(Debug, Clone)]
struct WorkSpec {
    round: u64,
    parent: usize,
    leaf: usize,
    vcore: u64,
    memory: u64,
    gpu: u64,
    count: u64,
    gang: bool,
    priority: i32,
    preemptable: bool,
    originator: bool,
    application: Option<u8>,
    required_node: Option<usize>,
}

#[derive(Debug, Clone)]
struct RandomRun {
    parents: Vec<Parent>,
    /// Vcores, memory and gpus of each node.
    nodes: Vec<(u64, u64, u64)>,
    initial: Vec<WorkSpec>,
    later: Vec<WorkSpec>,
    /// Index of the process that ends by itself, by round.
    ends: BTreeMap<u64, usize>,
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
    let applications = option::weighted(0.15, 1..4_u64);
    let (guaranteed, headroom) = (any_amounts(8, 0.6, 0.15), any_amounts(6, 0.4, 0.15));
    let fields = (guaranteed, headroom, user_limit, applications, delay);
    fields.prop_map(
        |(guaranteed, headroom, user_limit, applications, delay_ms)| Leaf {
            guaranteed,
            headroom,
            user_limit,
            applications,
            delay_ms,
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
    (position, size, traits).prop_map(|(position, size, traits)| WorkSpec {
        round: position.0,
        parent: position.1,
        leaf: position.2,
        vcore: size.0,
        memory: size.1,
        gpu: size.2,
        count: size.3,
        gang: traits.0,
        priority: traits.1,
        preemptable: traits.2,
        originator: traits.3,
        application: traits.4,
        required_node: traits.5,
    })
}

fn any_run() -> impl Strategy<Value = RandomRun> {
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

/// Returns the resources of a queue in the document. Also returns its guarantee, including those
/// below it.
fn resources(children: &[Amounts], own_amounts: &Amounts, headroom: &Amounts) -> (Value, Amounts) {
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
    let guaranteed = Amounts {
        vcore: vcore.0,
        memory: memory.0,
    };
    (document, guaranteed)
}

impl RandomRun {
    fn document(&self) -> Value {
        let mut queues = json!({});
        for (index, parent) in self.parents.iter().enumerate() {
            let child_guarantees: Vec<Amounts> = parent
                .leaves
                .iter()
                .map(|it| it.guaranteed.clone())
                .collect();
            let (resources_document, _) =
                resources(&child_guarantees, &parent.guaranteed, &parent.headroom);
            let mut children = json!({});
            for (child, leaf) in parent.leaves.iter().enumerate() {
                children[format!("l{child}")] = leaf.document(&resources_document["max"]);
            }
            let preemption = if parent.fence { "fence" } else { "default" };
            queues[format!("p{index}")] = json!({"resources": resources_document,
                "preemption": preemption, "queues": children});
        }
        json!({"queues": {"root": {"submit_acl": "*", "queues": queues}}})
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::from_queues(&self.document());
        for (index, (vcore, memory, gpus)) in self.nodes.iter().enumerate() {
            let node = fixture.add_node(&format!("n{index}"), &[("vcore", vcore * VCORE)]);
            node.capacity.memory_bytes = *memory;
            node.capacity.gpu_milli = gpus * 1_000;
        }
        fixture
    }

    fn submit(&self, fixture: &mut Fixture, specs: &[WorkSpec], name: &str) {
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
            queued.preemptable = spec.preemptable;
            queued.originator = spec.originator;
            queued.application = spec
                .application
                .map(|app| format!("app_{parent}_{leaf}_{app}"));
            let min = spec.count;
            queued.gang = spec.gang.then(|| Gang {
                name: "gang".to_owned(),
                min,
            });
            let required_node = spec.required_node.filter(|_| !spec.gang);
            let node = required_node.map(|index| format!("n{}", index % self.nodes.len()));
            queued.required_node = node.map(|name| name.parse().unwrap());
        }
    }

    /// Returns the number of rounds that this process takes to stop.
    fn stop_rounds_of(&self, id: &AllocationId) -> u64 {
        let number: usize = id.as_str()[4..].parse().unwrap();
        self.stop_rounds[number % self.stop_rounds.len()]
    }
}

impl Leaf {
    fn document(&self, parent_max: &Value) -> Value {
        let (mut resources_document, _) = resources(&[], &self.guaranteed, &self.headroom);
        for name in ["vcore", "memory"] {
            let max = resources_document["max"][name].as_u64();
            if let Some((max, parent_max)) = max.zip(parent_max[name].as_u64()) {
                resources_document["max"][name] = json!(max.min(parent_max));
            }
            if resources_document["max"][name].is_null() {
                resources_document["max"]
                    .as_object_mut()
                    .unwrap()
                    .remove(name);
            }
        }
        let mut leaf =
            json!({"resources": resources_document, "preemption_delay_ms": self.delay_ms});
        let max = resources_document["max"]["vcore"].as_u64();
        if let Some(limit) = self.user_limit.map(|limit| limit.min(max.unwrap_or(limit))) {
            leaf["limits"] = json!([{"users": ["*"], "max_resources": {"vcore": limit}}]);
        }
        if let Some(limit) = self.applications {
            leaf["max_applications"] = json!(limit);
        }
        leaf
    }
}

/// All parts of a gang, or one work item.
type Beneficiary = BTreeSet<WorkId>;

fn find_beneficiary(snapshot: &Snapshot, work: &WorkId) -> Beneficiary {
    let gang_key = |work: &WorkId| {
        let queued = snapshot.demand[work].queued.as_ref().unwrap();
        let app = queued.application.clone();
        let app = app.unwrap_or_else(|| work.to_string());
        queued.gang.is_some().then_some((app, queued.queue.clone()))
    };
    let own_gang = gang_key(work);
    let works = snapshot.demand.keys();
    works
        .filter(|other| *other == work || (own_gang.is_some() && gang_key(other) == own_gang))
        .cloned()
        .collect()
}

/// Returns the number of processes whose space victims are still freeing.
fn pending_processes(plan: &Plan, works: &Beneficiary) -> u64 {
    let carried = &plan.carried.queues[POOL];
    let single_reservations = carried.reservations.values();
    let single_reservations =
        single_reservations.filter(|it| it.cleared && works.contains(&it.work));
    let gang_counts = carried
        .gang
        .iter()
        .filter(|reservation| reservation.cleared);
    let gang_counts = gang_counts.flat_map(|reservation| reservation.nodes.values().flatten());
    let gang_counts = gang_counts.filter(|(work, _)| works.contains(*work));
    single_reservations.map(|it| it.processes).sum::<u64>()
        + gang_counts.map(|(_, count)| count).sum::<u64>()
}

fn count_granted(plan: &Plan, works: &Beneficiary) -> u64 {
    let grants = plan.grants.iter();
    grants.filter(|grant| works.contains(&grant.work)).count() as u64
}

/// Progress of one beneficiary and its victims.
#[derive(Debug, Default)]
struct Progress {
    started: u64,
    /// Processes that must have started once the victims have stopped.
    expected: u64,
    awaited_victims: BTreeSet<AllocationId>,
    victims: BTreeSet<AllocationId>,
}

#[derive(Default)]
struct ProgressMap(BTreeMap<Beneficiary, Progress>);

impl ProgressMap {
    fn record_plan(&mut self, before: &Snapshot, plan: &Plan) -> Result<(), TestCaseError> {
        for receipt in &plan.receipts {
            let works = find_beneficiary(before, receipt.beneficiary.as_ref().unwrap());
            let victims = &mut self.0.entry(works).or_default().victims;
            victims.insert(receipt.allocation.clone());
        }
        let vacated = plan.vacates.iter().map(|vacate| vacate.allocation.clone());
        let leaving = before
            .allocations
            .iter()
            .filter(|(_, allocation)| allocation.leaving);
        let leaving: BTreeSet<AllocationId> =
            leaving.map(|(id, _)| id.clone()).chain(vacated).collect();
        // An application with an impossible gang is refused as a whole.
        let has_queue = |work: &WorkId| plan.verdicts[work].class.is_some();
        self.0.retain(|works, _| works.iter().all(has_queue));
        for (works, progress) in &mut self.0 {
            progress.started += count_granted(plan, works);
            let (pending, started) = (pending_processes(plan, works), progress.started);
            let mut ids = before.allocations.keys();
            prop_assert!(
                ids.any(|id| progress.awaited_victims.contains(id)) || started >= progress.expected,
                "{works:?} has not started though its victims left: {progress:?}, {plan:#?}"
            );
            if started + pending > progress.expected {
                progress.expected = started + pending;
                progress.awaited_victims.extend(leaving.iter().cloned());
            }
            progress.awaited_victims.retain(|id| leaving.contains(id));
        }
        Ok(())
    }

    /// Checks that each victim is needed: if it stayed, its beneficiary, a process or a gang, would
    /// not start. Victims for one job are found one after the other. Each must therefore be needed
    /// among the earlier and simultaneous ones.
    fn check_all_victims_needed(&self, before: &Fixture, plan: &Plan) -> Result<(), TestCaseError> {
        let mut victims_by_beneficiary: BTreeMap<Beneficiary, Vec<&AllocationId>> = BTreeMap::new();
        for receipt in &plan.receipts {
            let works = find_beneficiary(&before.snapshot, receipt.beneficiary.as_ref().unwrap());
            victims_by_beneficiary
                .entry(works)
                .or_default()
                .push(&receipt.allocation);
        }
        for (works, preempted) in &victims_by_beneficiary {
            let gang = plan.carried.queues[POOL].gang.as_ref();
            let is_gang = gang.is_some_and(|reservation| works.contains(&reservation.work));
            let is_single_step = is_gang || pending_processes(plan, works) <= 1;
            let count_started = |stays: &dyn Fn(&AllocationId) -> bool| {
                count_granted(&plan_after_victims_left(before, plan, stays), works)
            };
            let is_of_others = |id: &AllocationId| self.is_victim_of_others(id, works);
            for (index, victim) in preempted.iter().copied().enumerate() {
                let needed = if is_single_step {
                    count_started(&|id| id == victim || is_of_others(id))
                        < pending_processes(plan, works)
                } else {
                    // A process may also wait for victims of other work.
                    let mut steps =
                        (index + 1..=preempted.len()).flat_map(|it| [(it, true), (it, false)]);
                    steps.any(|(end, others_stay)| {
                        let stays = |id: &AllocationId| {
                            preempted[end..].contains(&id) || (others_stay && is_of_others(id))
                        };
                        count_started(&|id| id == victim || stays(id)) < count_started(&stays)
                    })
                };
                prop_assert!(
                    needed,
                    "{victim} leaves for {works:?} and is not needed: {plan:#?}"
                );
            }
        }
        Ok(())
    }

    fn is_victim_of_others(&self, id: &AllocationId, works: &Beneficiary) -> bool {
        let mut others = self.0.values();
        !self.0[works].victims.contains(id) && others.any(|it| it.victims.contains(id))
    }
}

/// Plans again after all victims except these have left.
fn plan_after_victims_left(
    before: &Fixture,
    plan: &Plan,
    stays: &dyn Fn(&AllocationId) -> bool,
) -> Plan {
    let mut next_fixture = before.clone();
    next_fixture.carry_out_except(plan, |_, _| true);
    let allocations = &mut next_fixture.snapshot.allocations;
    allocations.retain(|id, allocation| !allocation.leaving || stays(id));
    Capacity.schedule(&next_fixture.snapshot)
}

fn run(random_run: &RandomRun) -> Result<usize, TestCaseError> {
    let mut fixture = random_run.fixture();
    random_run.submit(&mut fixture, &random_run.initial, "first");
    let mut progress_map = ProgressMap::default();
    let (mut preempted, mut vacated_at): (usize, BTreeMap<AllocationId, u64>) =
        (0, BTreeMap::new());
    for round in 0..ROUNDS {
        for (index, spec) in random_run.later.iter().enumerate() {
            if spec.round == round {
                random_run.submit(
                    &mut fixture,
                    std::slice::from_ref(spec),
                    &format!("later{index}_"),
                );
            }
        }
        if let Some(index) = random_run.ends.get(&round) {
            let staying = fixture.snapshot.allocations.iter();
            // A gang that loses a member needs new space.
            let demand = &fixture.snapshot.demand;
            let is_single = |work: &WorkId| demand[work].queued.as_ref().unwrap().gang.is_none();
            let mut staying = staying
                .filter(|(_, allocation)| !allocation.leaving && is_single(&allocation.work));
            let ended = staying.nth(*index).map(|(id, _)| id.clone());
            ended.map(|id| fixture.snapshot.allocations.remove(&id));
        }
        let plan = fixture.plan();
        check_victims(round, &fixture, &plan);
        preempted += plan.receipts.len();
        progress_map.record_plan(&fixture.snapshot, &plan)?;
        progress_map.check_all_victims_needed(&fixture, &plan)?;
        let vacated = plan.vacates.iter().map(|it| it.allocation.clone());
        vacated_at.extend(vacated.map(|id| (id, round)));
        fixture.carry_out_except(&plan, |id, _| {
            round < vacated_at[id] + random_run.stop_rounds_of(id)
        });
    }
    Ok(preempted)
}

proptest! {
    #[test]
    fn victims_start_their_beneficiary_and_are_all_needed(random_run in any_run()) {
        run(&random_run)?;
    }
}

/// Random runs are useful only if they preempt often.
#[test]
fn random_runs_preempt_often() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let preempting_runs = (0..200).filter(|_| {
        let random_run = any_run().new_tree(&mut runner).unwrap().current();
        run(&random_run).unwrap() > 0
    });
    let preempting_runs = preempting_runs.count();
    assert!(preempting_runs > 30, "in {preempting_runs} of 200");
}
