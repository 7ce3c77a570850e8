//! The outcome of a cycle, in the format of the scenario page.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    Plan, Reason, Verdict,
    plan::{Receipt, Unblock, WorkShare},
    snapshot::Allocation,
};
use hayward_vocabulary::{AllocationId, Size, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::fleet::{SimulatedFleet, tree_quantum};

/// Optional parts of an outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeOptions {
    /// Nodes of every process.
    pub places: bool,
    /// Why work waits, and preemptions with their beneficiaries.
    pub explain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub cycle: u64,
    pub jobs: BTreeMap<WorkId, JobOutcome>,
    /// By pool, one text for each node: total and free quanta, and `x` if the node takes no work.
    /// For example `15:3x`.
    pub pools: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Quanta of one process.
    pub order: u64,
    /// Maximum number of processes that the work can use in this cycle.
    pub cap: u64,
    /// Entitlement: number of processes that the work is due in this cycle.
    pub counted: u64,
    /// Number of processes after the plan, without leaving ones.
    pub processes: u64,
    /// Number of processes after the plan, including leaving ones.
    pub held: u64,
    /// Number of leaving processes.
    pub evicting: u64,
    /// Number of processes that this cycle granted.
    pub added: u64,
    /// Number of processes that this cycle vacated.
    pub evicted_now: u64,
    /// Code of the reason why the work waits. `None` if it does not wait.
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explanation>,
}

/// The primary reason with its numbers, other obstacles, and the smallest change that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
    pub numbers: BTreeMap<String, u64>,
    pub also: Vec<Reason>,
    pub unblock: Option<Unblock>,
}

impl From<&Verdict> for Explanation {
    fn from(verdict: &Verdict) -> Self {
        Self {
            reason: verdict.reason,
            refused: verdict.refused,
            detail: verdict.detail.clone(),
            numbers: verdict.numbers.by_name(),
            also: verdict.also.clone(),
            unblock: verdict.unblock.clone(),
        }
    }
}

/// Returns the outcome of a cycle after its plan was applied.
pub fn for_cycle(fleet: &SimulatedFleet, plan: &Plan, options: OutcomeOptions) -> Outcome {
    let work_shares = work_shares(plan);
    let mut jobs: BTreeMap<WorkId, JobOutcome> = fleet
        .snapshot
        .demand
        .iter()
        .map(|(work, demand)| {
            let share = work_shares.get(work).copied();
            let job = JobOutcome {
                order: share.map_or_else(|| work_quanta(fleet, &demand.size), |share| share.quanta),
                cap: share.map_or(0, |share| share.wanted),
                counted: share.map_or(0, |share| share.counted),
                ..JobOutcome::default()
            };
            (work.clone(), job)
        })
        .collect();
    for (id, allocation) in &fleet.snapshot.allocations {
        if let Some(job) = jobs.get_mut(&allocation.work) {
            let leaving = u64::from(allocation.leaving);
            job.held += 1;
            job.evicting += leaving;
            job.processes += 1 - leaving;
            job.evicted_now += u64::from(was_vacated_now(fleet, id));
        }
    }
    for grant in &plan.grants {
        if let Some(job) = jobs.get_mut(&grant.work) {
            job.added += 1;
        }
    }
    for (work, verdict) in &plan.verdicts {
        if let Some(job) = jobs.get_mut(work) {
            job.reason = reason_code(verdict);
            job.explain = options.explain.then(|| Explanation::from(&**verdict));
        }
    }
    if options.places {
        add_places(fleet, &mut jobs);
    }
    for work in &fleet.unknown_kinds {
        let job = JobOutcome {
            reason: Some("unknown_kind".to_owned()),
            ..JobOutcome::default()
        };
        jobs.insert(work.clone(), job);
    }
    Outcome {
        cycle: fleet.round,
        jobs,
        pools: pool_nodes(fleet, plan),
        receipts: if options.explain {
            plan.receipts.clone()
        } else {
            Vec::new()
        },
    }
}

fn work_quanta(fleet: &SimulatedFleet, size: &Size) -> u64 {
    fleet.snapshot.quantum.quanta_of_work(size)
}

fn was_vacated_now(fleet: &SimulatedFleet, id: &AllocationId) -> bool {
    fleet.vacated_in_round.get(id) == Some(&fleet.round)
}

/// Returns the share of each piece of work, from the tree of classes and users.
fn work_shares(plan: &Plan) -> BTreeMap<&WorkId, &WorkShare> {
    let users = plan
        .shares
        .classes
        .values()
        .flat_map(|class| class.users.values());
    users.flat_map(|user| user.work.iter()).collect()
}

/// Returns the code of the reason if the work waits.
fn reason_code(verdict: &Verdict) -> Option<String> {
    if !verdict.waits && !verdict.refused {
        return None;
    }
    let reason = match verdict.reason {
        // Scenarios have no codes for these two reasons.
        Reason::AllBlocked | Reason::AntiAffinity => Reason::ResourcesExhausted,
        Reason::Satisfied
        | Reason::InitializationCap
        | Reason::AtFairShare
        | Reason::StaleInput => return None,
        other => other,
    };
    let code = serde_json::to_value(reason).ok()?;
    code.as_str().map(str::to_owned)
}

fn add_places(fleet: &SimulatedFleet, jobs: &mut BTreeMap<WorkId, JobOutcome>) {
    for job in jobs.values_mut() {
        job.places = Some(Vec::new());
    }
    for allocation in fleet.snapshot.allocations.values().filter(|it| !it.leaving) {
        let job = jobs.get_mut(&allocation.work);
        if let Some(places) = job.and_then(|job| job.places.as_mut()) {
            places.push(allocation.node.to_string());
        }
    }
    for places in jobs.values_mut().filter_map(|job| job.places.as_mut()) {
        places.sort_unstable();
    }
}

/// Returns true if an allocation closes its node for new work. That holds for work without a class,
/// and for fixed work on a node outside the pool of its class. Instances of services are moved
/// instead.
fn closes_node(fleet: &SimulatedFleet, plan: &Plan, allocation: &Allocation) -> bool {
    let Some(verdict) = plan.verdicts.get(&allocation.work) else {
        return false;
    };
    let class = verdict.class.as_deref();
    let Some(class) = class.and_then(|name| fleet.snapshot.classes.get(name)) else {
        return true;
    };
    let demand = fleet.snapshot.demand.get(&allocation.work);
    let must_stay = demand.is_none_or(|it| it.kind != WorkKind::Service || it.managed);
    let node = fleet.snapshot.nodes.get(&allocation.node);
    allocation.fixed && must_stay && node.is_some_and(|node| node.pool != class.pool)
}

/// Returns the texts of the nodes by pool, sorted.
fn pool_nodes(fleet: &SimulatedFleet, plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let snapshot = &fleet.snapshot;
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let mut closed_nodes: Vec<&str> = Vec::new();
    for allocation in snapshot.allocations.values() {
        *used.entry(allocation.node.as_str()).or_default() += allocation.quanta;
        if closes_node(fleet, plan, allocation) {
            closed_nodes.push(allocation.node.as_str());
        }
    }
    let mut pools: BTreeMap<String, Vec<String>> = snapshot
        .pools
        .keys()
        .map(|name| (name.clone(), Vec::new()))
        .collect();
    for (name, node) in &snapshot.nodes {
        let quanta = tree_quantum(snapshot, &node.pool).quanta_of_node(&node.capacity);
        let used = used.get(name.as_str()).copied().unwrap_or(0);
        let is_open = node.is_schedulable() && !closed_nodes.contains(&name.as_str());
        let mark = if is_open { "" } else { "x" };
        let text = format!("{quanta}:{}{mark}", quanta.saturating_sub(used));
        pools.entry(node.pool.clone()).or_default().push(text);
    }
    for nodes in pools.values_mut() {
        nodes.sort_unstable();
    }
    pools
}
