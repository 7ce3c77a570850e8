//! Preemption is never in vain and takes no more than needed: random queues with plain work and
//! gangs, over several rounds, with victims that take time to stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use hayward_rm_scheduler_domain::{Plan, Planner, Snapshot, snapshot::queues::Gang};
use hayward_vocabulary::{AllocationId, WorkId};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::{VCORE, victims_are_lawful};
use crate::{
    Capacity,
    fixture::{Fixture, POOL, queued},
};

const ROUNDS: u64 = 40;
/// Rounds that the slowest victim takes to stop.
const SLOWEST: u64 = 9;

#[derive(Debug, Clone)]
struct Amounts {
    vcore: Option<u64>,
    memory: Option<u64>,
}

#[derive(Debug, Clone)]
struct Leaf {
    guaranteed: Amounts,
    /// Amount by which the maximum exceeds the guarantee.
    more: Amounts,
    of_user: Option<u64>,
    applications: Option<u64>,
    delay_ms: u64,
}

#[derive(Debug, Clone)]
struct Parent {
    leaves: Vec<Leaf>,
    /// Amount by which the guarantee exceeds the sum of the guarantees of the leaves.
    guaranteed: Amounts,
    more: Amounts,
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
    required: Option<usize>,
}

#[derive(Debug, Clone)]
struct RandomRun {
    parents: Vec<Parent>,
    nodes: Vec<(u64, u64, u64)>,
    first: Vec<WorkSpec>,
    later: Vec<WorkSpec>,
    /// Index of the process that ends by itself, by round.
    ends: BTreeMap<u64, usize>,
    /// Numbers of rounds that processes take to stop, used in rotation.
    stops: Vec<u64>,
}

/// Generates amounts. Vcores and memory are set with these probabilities.
fn amounts(most: u64, vcore: f64, memory: f64) -> impl Strategy<Value = Amounts> {
    let vcore = option::weighted(vcore, 0..=most);
    let memory = option::weighted(memory, 0..=most);
    (vcore, memory).prop_map(|(vcore, memory)| Amounts { vcore, memory })
}

fn leaf() -> impl Strategy<Value = Leaf> {
    let delay = prop_oneof![Just(500_u64), Just(1_000), Just(4_000)];
    let limits = (
        option::weighted(0.15, 1..6_u64),
        option::weighted(0.15, 1..4_u64),
    );
    let (guaranteed, more) = (amounts(8, 0.6, 0.15), amounts(6, 0.4, 0.15));
    let all = (guaranteed, more, limits, delay);
    all.prop_map(|(guaranteed, more, limits, delay_ms)| Leaf {
        guaranteed,
        more,
        of_user: limits.0,
        applications: limits.1,
        delay_ms,
    })
}

fn parent() -> impl Strategy<Value = Parent> {
    let fence = prop::bool::weighted(0.15);
    let (guaranteed, more) = (amounts(6, 0.4, 0.1), amounts(6, 0.5, 0.15));
    let all = (vec(leaf(), 1..4), guaranteed, more, fence);
    all.prop_map(|(leaves, guaranteed, more, fence)| Parent {
        leaves,
        guaranteed,
        more,
        fence,
    })
}

fn work_spec(rounds: Range<u64>, counts: Range<u64>) -> impl Strategy<Value = WorkSpec> {
    let place = (rounds, 0..3_usize, 0..3_usize);
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
    (place, size, traits).prop_map(|(place, size, traits)| WorkSpec {
        round: place.0,
        parent: place.1,
        leaf: place.2,
        vcore: size.0,
        memory: size.1,
        gpu: size.2,
        count: size.3,
        gang: traits.0,
        priority: traits.1,
        preemptable: traits.2,
        originator: traits.3,
        application: traits.4,
        required: traits.5,
    })
}

fn random_run() -> impl Strategy<Value = RandomRun> {
    let node = (
        2..9_u64,
        4..16_u64,
        prop_oneof![2 => Just(0_u64), 1 => 1..3_u64],
    );
    (
        vec(parent(), 1..3),
        vec(node, 1..4),
        vec(work_spec(0..1, 2..9), 2..6),
        vec(work_spec(1..15, 1..5), 2..8),
        proptest::collection::btree_map(0..ROUNDS / 2, 0..20_usize, 0..4),
        vec(0..SLOWEST, 1..12),
    )
        .prop_map(|(parents, nodes, first, later, ends, stops)| RandomRun {
            parents,
            nodes,
            first,
            later,
            ends,
            stops,
        })
}

/// Returns the resources of a queue in the document. Also returns its guarantee, including those
/// below it.
fn resources(below: &[Amounts], own: &Amounts, more: &Amounts) -> (Value, Amounts) {
    let limits = |get: fn(&Amounts) -> Option<u64>| {
        let sum: u64 = below.iter().filter_map(get).sum();
        let guaranteed = get(own).map(|own| own + sum);
        let max = get(more).map(|more| (guaranteed.unwrap_or(sum) + more).max(1));
        (guaranteed, max)
    };
    let (vcore, memory) = (limits(|it| it.vcore), limits(|it| it.memory));
    let mut written = json!({"guaranteed": {}, "max": {}});
    for (name, (guaranteed, max)) in [("vcore", vcore), ("memory", memory)] {
        if let Some(guaranteed) = guaranteed {
            written["guaranteed"][name] = json!(guaranteed);
        }
        if let Some(max) = max {
            written["max"][name] = json!(max);
        }
    }
    let guaranteed = Amounts {
        vcore: vcore.0,
        memory: memory.0,
    };
    (written, guaranteed)
}

impl RandomRun {
    fn document(&self) -> Value {
        let mut queues = json!({});
        for (at, parent) in self.parents.iter().enumerate() {
            let below: Vec<Amounts> = parent
                .leaves
                .iter()
                .map(|it| it.guaranteed.clone())
                .collect();
            let (written, _) = resources(&below, &parent.guaranteed, &parent.more);
            let mut children = json!({});
            for (below, leaf) in parent.leaves.iter().enumerate() {
                children[format!("l{below}")] = leaf.document(&written["max"]);
            }
            let preemption = if parent.fence { "fence" } else { "default" };
            queues[format!("p{at}")] =
                json!({"resources": written, "preemption": preemption, "queues": children});
        }
        json!({"queues": {"root": {"submit_acl": "*", "queues": queues}}})
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::from_queues(&self.document());
        for (at, (vcore, memory, gpus)) in self.nodes.iter().enumerate() {
            let node = fixture.node(&format!("n{at}"), &[("vcore", vcore * VCORE)]);
            node.capacity.memory_bytes = *memory;
            node.capacity.gpu_milli = gpus * 1_000;
        }
        fixture
    }

    fn submit(&self, fixture: &mut Fixture, specs: &[WorkSpec], name: &str) {
        for (at, spec) in specs.iter().enumerate() {
            let parent = spec.parent % self.parents.len();
            let leaf = spec.leaf % self.parents[parent].leaves.len();
            let sizes = [
                ("vcore", spec.vcore * VCORE),
                ("memory", spec.memory),
                ("gpu", spec.gpu),
            ];
            let queue = format!("root.p{parent}.l{leaf}");
            let demand = fixture.add_work(&format!("job_{name}{at}"), &queue, &sizes);
            demand.max_processes = spec.count;
            let queued = queued(demand);
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
            let required = spec.required.filter(|_| !spec.gang);
            let node = required.map(|at| format!("n{}", at % self.nodes.len()));
            queued.required_node = node.map(|name| name.parse().unwrap());
        }
    }

    /// Returns the number of rounds that this process takes to stop.
    fn stops_after(&self, id: &AllocationId) -> u64 {
        let number: usize = id.as_str()[4..].parse().unwrap();
        self.stops[number % self.stops.len()]
    }
}

impl Leaf {
    fn document(&self, above: &Value) -> Value {
        let (mut written, _) = resources(&[], &self.guaranteed, &self.more);
        for name in ["vcore", "memory"] {
            let max = written["max"][name].as_u64();
            if let Some((max, above)) = max.zip(above[name].as_u64()) {
                written["max"][name] = json!(max.min(above));
            }
            if written["max"][name].is_null() {
                written["max"].as_object_mut().unwrap().remove(name);
            }
        }
        let mut leaf = json!({"resources": written, "preemption_delay_ms": self.delay_ms});
        let max = written["max"]["vcore"].as_u64();
        if let Some(most) = self.of_user.map(|most| most.min(max.unwrap_or(most))) {
            leaf["limits"] = json!([{"users": ["*"], "max_resources": {"vcore": most}}]);
        }
        if let Some(most) = self.applications {
            leaf["max_applications"] = json!(most);
        }
        leaf
    }
}

/// All parts of a gang, or one work item.
type Beneficiary = BTreeSet<WorkId>;

fn beneficiary(snapshot: &Snapshot, work: &WorkId) -> Beneficiary {
    let application = |work: &WorkId| {
        let queued = snapshot.demand[work].queued.as_ref().unwrap();
        let app = queued.application.clone();
        let app = app.unwrap_or_else(|| work.to_string());
        queued.gang.is_some().then_some((app, queued.queue.clone()))
    };
    let mine = application(work);
    let all = snapshot.demand.keys();
    all.filter(|other| *other == work || (mine.is_some() && application(other) == mine))
        .cloned()
        .collect()
}

/// Returns the number of processes whose space victims are still freeing.
fn pending_processes(plan: &Plan, works: &Beneficiary) -> u64 {
    let carried = &plan.carried.queues[POOL];
    let single = carried.reservations.values();
    let single = single.filter(|it| it.cleared && works.contains(&it.work));
    let gang = carried
        .gang
        .iter()
        .filter(|reservation| reservation.cleared);
    let gang = gang.flat_map(|reservation| reservation.nodes.values().flatten());
    let gang = gang.filter(|(work, _)| works.contains(*work));
    single.map(|it| it.processes).sum::<u64>() + gang.map(|(_, count)| count).sum::<u64>()
}

fn granted(plan: &Plan, works: &Beneficiary) -> u64 {
    let grants = plan.grants.iter();
    grants.filter(|grant| works.contains(&grant.work)).count() as u64
}

/// Progress of one beneficiary and its victims.
#[derive(Debug, Default)]
struct Claim {
    started: u64,
    /// Processes that must have started once the victims have stopped.
    owed: u64,
    waits_for: BTreeSet<AllocationId>,
    victims: BTreeSet<AllocationId>,
}

#[derive(Default)]
struct Claims(BTreeMap<Beneficiary, Claim>);

impl Claims {
    fn follow(&mut self, before: &Snapshot, plan: &Plan) -> Result<(), TestCaseError> {
        for receipt in &plan.receipts {
            let works = beneficiary(before, receipt.beneficiary.as_ref().unwrap());
            let victims = &mut self.0.entry(works).or_default().victims;
            victims.insert(receipt.allocation.clone());
        }
        let vacated = plan.vacates.iter().map(|vacate| vacate.allocation.clone());
        let leaving = before.allocations.iter().filter(|(_, held)| held.leaving);
        let leaving: BTreeSet<AllocationId> =
            leaving.map(|(id, _)| id.clone()).chain(vacated).collect();
        // An application with an impossible gang is refused as a whole.
        let has_queue = |work: &WorkId| plan.verdicts[work].class.is_some();
        self.0.retain(|works, _| works.iter().all(has_queue));
        for (works, claim) in &mut self.0 {
            claim.started += granted(plan, works);
            let (due, started) = (pending_processes(plan, works), claim.started);
            let mut held = before.allocations.keys();
            prop_assert!(
                held.any(|id| claim.waits_for.contains(id)) || started >= claim.owed,
                "{works:?} has not started though all has left: {claim:?}, {plan:#?}"
            );
            if started + due > claim.owed {
                claim.owed = started + due;
                claim.waits_for.extend(leaving.iter().cloned());
            }
            claim.waits_for.retain(|id| leaving.contains(id));
        }
        Ok(())
    }

    /// Checks that each victim is needed: if it stayed, its beneficiary, a process or a gang, would
    /// not start. Victims for one job are found one after the other. Each must therefore be needed
    /// among the earlier and simultaneous ones.
    fn all_are_needed(&self, before: &Fixture, plan: &Plan) -> Result<(), TestCaseError> {
        let mut all: BTreeMap<Beneficiary, Vec<&AllocationId>> = BTreeMap::new();
        for receipt in &plan.receipts {
            let works = beneficiary(&before.snapshot, receipt.beneficiary.as_ref().unwrap());
            all.entry(works).or_default().push(&receipt.allocation);
        }
        for (works, taken) in &all {
            let gang = plan.carried.queues[POOL].gang.as_ref();
            let whole = gang.is_some_and(|reservation| works.contains(&reservation.work));
            let at_once = whole || pending_processes(plan, works) <= 1;
            let starts =
                |stay: &dyn Fn(&AllocationId) -> bool| granted(&after(before, plan, stay), works);
            let of_others = |id: &AllocationId| self.leaves_for_others(id, works);
            for (at, victim) in taken.iter().copied().enumerate() {
                let needed = if at_once {
                    starts(&|id| id == victim || of_others(id)) < pending_processes(plan, works)
                } else {
                    // A process may also wait for victims of other work.
                    let mut some = (at + 1..=taken.len()).flat_map(|it| [(it, true), (it, false)]);
                    some.any(|(until, wait)| {
                        let stays = |id: &AllocationId| {
                            taken[until..].contains(&id) || (wait && of_others(id))
                        };
                        starts(&|id| id == victim || stays(id)) < starts(&stays)
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

    fn leaves_for_others(&self, id: &AllocationId, works: &Beneficiary) -> bool {
        let mut others = self.0.values();
        !self.0[works].victims.contains(id) && others.any(|it| it.victims.contains(id))
    }
}

/// Plans again after all victims except these have left.
fn after(before: &Fixture, plan: &Plan, stays: &dyn Fn(&AllocationId) -> bool) -> Plan {
    let mut after = before.clone();
    after.carry_out_but(plan, |_, _| true);
    let held = &mut after.snapshot.allocations;
    held.retain(|id, held| !held.leaving || stays(id));
    Capacity.schedule(&after.snapshot)
}

fn run(spec_of_run: &RandomRun) -> Result<usize, TestCaseError> {
    let mut fixture = spec_of_run.fixture();
    spec_of_run.submit(&mut fixture, &spec_of_run.first, "first");
    let mut claims = Claims::default();
    let (mut taken, mut left_at): (usize, BTreeMap<AllocationId, u64>) = (0, BTreeMap::new());
    for round in 0..ROUNDS {
        for (at, spec) in spec_of_run.later.iter().enumerate() {
            if spec.round == round {
                spec_of_run.submit(
                    &mut fixture,
                    std::slice::from_ref(spec),
                    &format!("later{at}_"),
                );
            }
        }
        if let Some(at) = spec_of_run.ends.get(&round) {
            let staying = fixture.snapshot.allocations.iter();
            // A gang that loses a member needs new space.
            let demand = &fixture.snapshot.demand;
            let single = |work: &WorkId| demand[work].queued.as_ref().unwrap().gang.is_none();
            let mut staying = staying.filter(|(_, held)| !held.leaving && single(&held.work));
            let ended = staying.nth(*at).map(|(id, _)| id.clone());
            ended.map(|id| fixture.snapshot.allocations.remove(&id));
        }
        let plan = fixture.plan();
        victims_are_lawful(round, &fixture, &plan);
        taken += plan.receipts.len();
        claims.follow(&fixture.snapshot, &plan)?;
        claims.all_are_needed(&fixture, &plan)?;
        let left = plan.vacates.iter().map(|it| it.allocation.clone());
        left_at.extend(left.map(|id| (id, round)));
        fixture.carry_out_but(&plan, |id, _| {
            round < left_at[id] + spec_of_run.stops_after(id)
        });
    }
    Ok(taken)
}

proptest! {
    #[test]
    fn victims_start_their_beneficiary_and_are_all_needed(spec_of_run in random_run()) {
        run(&spec_of_run)?;
    }
}

/// Random runs are useful only if they preempt often.
#[test]
fn random_runs_preempt_often() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let taken = (0..200).filter(|_| {
        let random = random_run().new_tree(&mut runner).unwrap().current();
        run(&random).unwrap() > 0
    });
    let taken = taken.count();
    assert!(taken > 30, "in {taken} of 200");
}
