//! Property: preemption starts the work that victims leave for (the beneficiary), with no more
//! victims than needed. The cases are random queues and work, and victims take time to stop.

mod random_run;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{Plan, Planner, Snapshot};
use hayward_vocabulary::{AllocationId, WorkId};
use proptest::prelude::*;

use super::check_victims;
use crate::{
    Capacity,
    fixture::{Fixture, POOL},
};
use random_run::{ROUNDS, RandomRun, any_run};

/// All parts of a gang, or one work item.
type Beneficiary = BTreeSet<WorkId>;

/// Returns the work and all other parts of its gang.
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
    /// Processes that have started.
    started: u64,
    /// Processes that must have started once the victims have stopped.
    expected: u64,
    /// Leaving allocations that `expected` waits for.
    awaited_victims: BTreeSet<AllocationId>,
    /// All victims so far.
    victims: BTreeSet<AllocationId>,
}

/// Progress by beneficiary.
#[derive(Default)]
struct ProgressMap(BTreeMap<Beneficiary, Progress>);

impl ProgressMap {
    /// Records the started processes and the new victims of a round. Fails if a beneficiary has not
    /// started although its victims have left.
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

    /// Returns true for a victim of other work only.
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

/// Plays a random run and checks each round. Returns the number of preempted processes.
fn play(random_run: &RandomRun) -> Result<usize, TestCaseError> {
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
        play(&random_run)?;
    }
}

/// Random runs are useful only if they preempt often.
#[test]
fn random_runs_preempt_often() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let preempting_runs = (0..200).filter(|_| {
        let random_run = any_run().new_tree(&mut runner).unwrap().current();
        play(&random_run).unwrap() > 0
    });
    let preempting_runs = preempting_runs.count();
    assert!(preempting_runs > 30, "in {preempting_runs} of 200");
}
