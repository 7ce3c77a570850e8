//! The effect of each setting: a test runs the same fleet without the setting and with it. All
//! other settings are off, as in the reference settings. A code names the weakness of the
//! specification that a setting removes.

use super::fixture::{Fixture, node_name, share, terms};
use crate::{
    Plan,
    input::{
        settings::Settings,
        snapshot::{Policy, Pool},
    },
    output::plan::Reason,
};

/// Returns a fleet without nodes, with the reference settings and this change to them.
fn fixture_with(change: impl FnOnce(&mut Settings)) -> Fixture {
    let mut fixture = Fixture::eager();
    let tunables = &mut fixture.snapshot.tunables;
    tunables.fragmentation_threshold = 2;
    tunables.settings = Settings::reference();
    change(&mut tunables.settings);
    fixture
}

/// Returns the number of processes of a piece of work after a plan.
fn processes(plan: &Plan, id: &str) -> u64 {
    share(plan, id).current
}

/// Returns the sum of the processes of one piece of work over many rounds.
fn sum_over_rounds(mut fixture: Fixture, id: &str, rounds: usize) -> u64 {
    fixture.snapshot.tunables.cycle_ms = 60_000;
    (0..rounds).map(|_| processes(&fixture.step(), id)).sum()
}

/// Setting `carry_remainders` (W-4).
#[test]
fn a_class_with_a_small_weight_gets_its_entitlement_over_time() {
    let run = |carry| {
        let mut fixture = fixture_with(|settings| settings.carry_remainders = carry).nodes(&[4; 3]);
        fixture.class("light", terms(Policy::FairShare, 10, 1), "default");
        fixture.class("heavy", terms(Policy::FairShare, 10, 400), "default");
        fixture.job_in("light", "small", "a", 1);
        fixture.job_in("heavy", "large", "b", 1);
        sum_over_rounds(fixture, "small", 4_000)
    };
    assert_eq!(run(false), 0);
    // One part in 401 of twelve quanta over 4000 rounds is 120.
    assert!((90..=130).contains(&run(true)), "{}", run(true));
}

/// Setting `carry_remainders` (W-6).
#[test]
fn a_large_process_pays_back_the_gain_of_rounding() {
    let run = |carry, id| {
        let mut fixture = fixture_with(|settings| settings.carry_remainders = carry).nodes(&[4]);
        fixture.job("large", "a", 4);
        fixture.job("small", "b", 1);
        sum_over_rounds(fixture, id, 400)
    };
    assert_eq!((run(false, "large"), run(false, "small")), (400, 0));
    // Each job gets half, minus the cost of changing between them.
    let (large, small) = (run(true, "large") * 4, run(true, "small"));
    assert!(small * 3 > large && small < large, "{large} {small}");
}

/// Setting `pack` (W-2).
#[test]
fn large_processes_are_placed_first_if_work_would_get_no_space() {
    let run = |pack| {
        let mut fixture = fixture_with(|settings| settings.pack = pack).nodes(&[4, 5]);
        for (id, quanta) in [("j3", 3), ("j2", 2), ("j4", 4)] {
            fixture.job(id, id, quanta).max_processes = 1;
        }
        let plan = fixture.plan();
        assert_eq!(share(&plan, "j4").counted, 1);
        processes(&plan, "j4")
    };
    assert_eq!((run(false), run(true)), (0, 1));
}

/// Setting `count_what_fits` (W-12).
#[test]
fn work_with_an_unreachable_node_list_takes_no_entitlement_from_other_work() {
    let run = |fits| {
        let mut fixture = fixture_with(|settings| settings.count_what_fits = fits).nodes(&[4]);
        fixture.job("pinned", "a", 1).node_list = [node_name("elsewhere")].into();
        fixture.job("plain", "b", 1);
        let plan = fixture.step();
        assert_eq!(plan.verdicts["pinned"].reason, Reason::NoListedMachine);
        processes(&plan, "plain")
    };
    assert_eq!((run(false), run(true)), (2, 4));
}

/// Setting `squatters_go_home` (W-13).
#[test]
fn squatters_return_to_their_home_pool_when_it_has_space() {
    let run = |home| {
        let mut fixture = fixture_with(|settings| settings.squatters_go_home = home);
        for (name, parent) in [("top", None), ("fast", Some("top".to_owned()))] {
            let pool = Pool {
                parent,
                ..Pool::default()
            };
            fixture.snapshot.pools.insert(name.into(), pool);
        }
        fixture.class("p", terms(Policy::FairShare, 10, 100), "top");
        fixture.class("q", terms(Policy::FairShare, 10, 100), "fast");
        fixture.node_in("top", "t0", 8);
        fixture.node_in("fast", "f0", 8);
        fixture.node("t0").lost = true;
        fixture.job_in("p", "squatter", "a", 1).max_processes = 4;
        fixture.step();
        fixture.job_in("q", "resident", "b", 1);
        for _ in 0..4 {
            fixture.step();
        }
        fixture.node("t0").lost = false;
        for _ in 0..4 {
            fixture.step();
        }
        let plan = fixture.plan();
        assert_eq!(processes(&plan, "squatter"), 4);
        processes(&plan, "resident")
    };
    assert_eq!((run(false), run(true)), (4, 8));
}

/// Builds four nodes of 3 quanta on which `j1` (2 quanta a process) and `j2` (1 quantum) share the
/// space. New job `j3` needs whole nodes of 3 quanta (X31).
fn fragmented_fleet(threshold: u64, change: impl FnOnce(&mut Settings)) -> Fixture {
    let mut fixture = fixture_with(change).nodes(&[3; 4]);
    fixture.snapshot.tunables.initialization_cap = 2;
    fixture.snapshot.tunables.fragmentation_threshold = threshold;
    fixture.job("j1", "a", 2);
    fixture.current_processes("j1", 3);
    fixture.job("j2", "b", 1);
    fixture.current_processes("j2", 6);
    fixture.job("j3", "c", 3);
    fixture
}

/// Setting `count_leaving_room` (W-14).
#[test]
fn defragmentation_counts_space_that_is_already_leaving() {
    let run = |leaving| {
        let mut fixture = fragmented_fleet(2, |settings| settings.count_leaving_room = leaving);
        let rounds = fixture.current_processes("j3", 6);
        rounds.iter().position(|processes| *processes == 2).unwrap()
    };
    assert_eq!((run(false), run(true)), (2, 1));
}

/// Setting `spare_donors` (W-21).
#[test]
fn a_donor_does_not_fall_below_the_threshold() {
    let run = |spare| {
        let mut fixture = fragmented_fleet(3, |settings| settings.spare_donors = spare);
        fixture
            .current_processes("j2", 4)
            .into_iter()
            .min()
            .unwrap()
    };
    assert_eq!((run(false), run(true)), (2, 3));
}

/// Setting `relieve_shrunken` (W-20).
#[test]
fn an_overfull_node_that_shrank_is_relieved_itself() {
    let run = |relieve| {
        let mut fixture =
            fixture_with(|settings| settings.relieve_shrunken = relieve).nodes(&[4, 4]);
        fixture.job("j", "a", 1);
        fixture.step();
        fixture.node("n00").capacity.memory_bytes /= 2;
        let plan = fixture.step();
        let node = node_name("n00");
        let node_of = |id| {
            fixture
                .snapshot
                .allocations
                .get(id)
                .map(|allocation| &allocation.node)
        };
        let departed = 4 - fixture
            .snapshot
            .allocations
            .values()
            .filter(|allocation| allocation.node == node)
            .count();
        assert!(
            plan.vacates
                .iter()
                .all(|vacate| node_of(&vacate.allocation).is_none())
        );
        (plan.vacates.len(), departed)
    };
    assert_eq!((run(false), run(true)), ((2, 0), (2, 2)));
}

/// Setting `churn_rounds` (W-32).
#[test]
fn a_recent_donor_is_spared() {
    let run = |rounds| {
        let mut fixture = fragmented_fleet(2, |settings| settings.churn_rounds = rounds);
        fixture.step();
        let receipts = fixture.step().receipts;
        receipts
            .iter()
            .filter(|receipt| receipt.beneficiary.is_some())
            .count()
    };
    assert_eq!((run(None), run(Some(3))), (2, 0));
}

/// Returns a fleet with a job that is pinned to a missing node. Entitlement ignores node lists
/// here, so the job is entitled to space that it can never use (W-12).
fn fleet_with_unusable_entitlement(change: impl FnOnce(&mut Settings)) -> Fixture {
    let mut fixture = fixture_with(change).nodes(&[4]);
    fixture.snapshot.tunables.defragmentation = false;
    fixture.job("plain", "a", 1);
    fixture.step();
    fixture.job("pinned", "b", 1).node_list = [node_name("elsewhere")].into();
    fixture
}

/// The reference rules vacate overage although no work can use its space (R-11.1).
#[test]
fn overage_leaves_only_if_other_work_can_then_start() {
    let run = |for_others| {
        let mut fixture =
            fleet_with_unusable_entitlement(|settings| settings.evict_for_somebody = for_others);
        let plan = fixture.step();
        assert_eq!(share(&plan, "plain").counted, 2);
        processes(&plan, "plain")
    };
    assert_eq!((run(false), run(true)), (2, 4));
}

/// Setting `lend_idle`.
#[test]
fn idle_space_beyond_all_entitlement_is_lent() {
    let run = |lend| {
        let mut fixture = fleet_with_unusable_entitlement(|settings| settings.lend_idle = lend);
        fixture.step();
        processes(&fixture.step(), "plain")
    };
    assert_eq!((run(false), run(true)), (2, 4));
}

/// Under the reference rules, processes within their entitlement stay on a reserved node, and the
/// reservation waits (W-33).
#[test]
fn a_reserved_node_is_cleared_at_once() {
    let run = |clear| {
        let mut fixture = fixture_with(|settings| settings.clear_promised = clear).nodes(&[3, 3]);
        fixture.snapshot.tunables.defragmentation = false;
        fixture.job("j", "a", 1).max_processes = 2;
        let pinned = fixture.job("k", "b", 1);
        (pinned.max_processes, pinned.node_list) = (1, [node_name("n01")].into());
        fixture.step();
        fixture.reservation("r", "c", 3);
        let plan = fixture.step();
        assert_eq!(
            (share(&plan, "j").counted, share(&plan, "k").counted),
            (2, 1)
        );
        (plan.vacates.len(), processes(&fixture.step(), "r"))
    };
    // Clearing n01 costs less than clearing n00.
    assert_eq!((run(false), run(true)), ((0, 0), (1, 1)));
}

/// Under the reference rules, a service ends with its node, until its owner submits it again
/// (R-6.6).
#[test]
fn a_service_on_a_lost_node_gets_a_successor() {
    let run = |replace| {
        let mut fixture = fixture_with(|settings| settings.replace_lost = replace).nodes(&[2, 2]);
        fixture.service("s", "a", 1).class = Some("fixed".into());
        fixture.step();
        fixture.node("n00").lost = true;
        processes(&fixture.step(), "s")
    };
    assert_eq!((run(false), run(true)), (0, 1));
}

/// Under the reference rules, space on a closed node does not count. The entitlement drops below
/// the number of processes, and processes leave although they may stay (R-6.8).
#[test]
fn processes_on_a_closed_node_stay() {
    let run = |rest| {
        let mut fixture = fixture_with(|settings| settings.rest_on_closed = rest).nodes(&[4, 4]);
        fixture.job("j", "a", 1);
        fixture.step();
        fixture.node("n00").takes_work = false;
        let plan = fixture.step();
        (share(&plan, "j").counted, plan.vacates.len())
    };
    assert_eq!((run(false), run(true)), ((4, 4), (8, 0)));
}

/// Processes on a closed node count towards the cap, with and without steady counts (R-5.1).
#[test]
fn work_with_a_process_on_a_closed_node_gets_no_second_one() {
    for steady in [false, true] {
        let settings = |settings: &mut Settings| {
            (settings.rest_on_closed, settings.steady_counts) = (true, steady);
        };
        let mut fixture = fixture_with(settings).nodes(&[4, 4]);
        fixture.job("j", "a", 1).max_processes = 1;
        fixture.step();
        fixture.node("n00").takes_work = false;
        let plan = fixture.step();
        assert_eq!(share(&plan, "j").counted, 1, "steady {steady}");
        assert_eq!(plan.grants, []);
    }
}

/// Under the reference rules, a FIXED_SHARE class grants a part of a node to a reservation. A
/// service without a class gets a whole node (R-3.3).
#[test]
fn whole_nodes_are_granted_to_reservations_only() {
    let run = |whole| {
        let mut fixture =
            fixture_with(|settings| settings.reserve_whole_nodes = whole).nodes(&[4, 4]);
        fixture.reservation("r", "a", 2).class = Some("fixed".into());
        fixture.service("s", "b", 4);
        let plan = fixture.step();
        let class_and_quanta = |id: &str| {
            let grant = plan.grants.iter().find(|grant| grant.work.as_str() == id);
            grant.map(|grant| (grant.class.clone(), grant.quanta))
        };
        (
            plan.verdicts["r"].reason,
            class_and_quanta("r"),
            class_and_quanta("s"),
        )
    };
    let (reason, reserved, service) = run(false);
    assert_eq!(reason, Reason::Satisfied);
    assert_eq!(reserved, Some(("fixed".into(), 2)));
    assert_eq!(service, Some(("reserve".into(), 4)));
    let (reason, reserved, service) = run(true);
    assert_eq!((reason, reserved), (Reason::PolicyMismatch, None));
    assert_eq!(service, Some(("fixed".into(), 4)));
}

/// A job may double its processes, so the number that it wants changes with the number that it has.
/// That changes the order of remainders. One process would move back and forth forever (W-10).
#[test]
fn remainders_do_not_move_back_and_forth() {
    let run = |steady| {
        let mut fixture = fixture_with(|settings| settings.steady_counts = steady).nodes(&[3]);
        fixture.job("j", "a", 1);
        fixture.job("k", "b", 1);
        for _ in 0..5 {
            fixture.step();
        }
        (0..10).map(|_| fixture.step().vacates.len()).sum::<usize>()
    };
    assert!(run(false) > 0);
    assert_eq!(run(true), 0);
}

/// Setting `level_remainders` (W-4).
#[test]
fn remainders_of_several_passes_are_spread() {
    let run = |level| {
        let mut fixture = fixture_with(|settings| settings.level_remainders = level).nodes(&[29]);
        for (id, cap) in [("a", 1), ("b", 4), ("c", 99), ("d", 99), ("e", 99)] {
            fixture.job(id, id, 1).max_processes = cap;
        }
        let plan = fixture.plan();
        ["a", "b", "c", "d", "e"].map(|id| processes(&plan, id))
    };
    assert_eq!(run(false), [1, 4, 9, 8, 7]);
    assert_eq!(run(true), [1, 4, 8, 8, 8]);
}

/// Setting `holes_among_rivals` (W-4).
#[test]
fn large_processes_get_their_entitlement_among_rivals() {
    let run = |rivals| {
        let mut fixture =
            fixture_with(|settings| settings.holes_among_rivals = rivals).nodes(&[12; 20]);
        fixture.job("large", "a", 8).max_processes = 10;
        fixture.job("b", "b", 1);
        fixture.job("c", "c", 1);
        share(&fixture.plan(), "large").counted
    };
    // A third of 240 quanta is ten processes of eight.
    assert_eq!((run(false) < 10, run(true)), (true, 10));
}

/// Setting `lose_least` (W-32).
#[test]
fn the_process_with_the_least_investment_is_preempted() {
    let run = |least| {
        let mut fixture = fixture_with(|settings| {
            settings.evict_for_somebody = true;
            settings.lose_least = least;
        })
        .nodes(&[2, 2]);
        fixture.job("j1", "a", 1);
        fixture.step();
        for allocation in fixture.snapshot.allocations.values_mut() {
            let first = allocation.node == node_name("n00");
            allocation.investment_ms = Some(if first { 200_000 } else { 5_000 });
        }
        fixture.job("j2", "b", 1).max_processes = 1;
        let receipts = fixture.plan().receipts;
        let lost: Vec<u64> = receipts.iter().map(|receipt| receipt.lost_ms).collect();
        lost
    };
    assert_eq!((run(false), run(true)), (vec![200_000], vec![5_000]));
}

/// The cost of a preemption is the time since the start of the task in progress (R-11.2).
#[test]
fn preemption_costs_only_the_task_in_progress_if_durations_are_known() {
    let mut fixture = fixture_with(|settings| {
        settings.evict_for_somebody = true;
        settings.lose_least = true;
    })
    .nodes(&[2, 2]);
    fixture.job("j1", "a", 1);
    fixture.step();
    fixture.snapshot.now = fixture.snapshot.now.plus_ms(60_000);
    for allocation in fixture.snapshot.allocations.values_mut() {
        // The older process began its second task one second ago. The younger one began its first
        // task 40 seconds ago.
        let older = allocation.node == node_name("n00");
        let ago = if older { 51_000 } else { 40_000 };
        allocation.running_since = Some(fixture.snapshot.now.minus_ms(ago));
        allocation.item_ms = Some(50_000);
    }
    fixture.job("j2", "b", 1).max_processes = 1;
    let receipts = fixture.plan().receipts;
    let lost: Vec<u64> = receipts.iter().map(|receipt| receipt.lost_ms).collect();
    assert_eq!(lost, [1_000]);
}

/// Setting `pack_gpus` (W-2).
#[test]
fn a_part_of_a_gpu_goes_to_a_gpu_in_use() {
    let run = |pack| {
        let mut fixture = fixture_with(|settings| settings.pack_gpus = pack).nodes(&[4, 8]);
        for node in ["n00", "n01"] {
            fixture.node(node).capacity.gpu_milli = 1_000;
        }
        for (id, milli) in [("old", 500), ("half", 500), ("whole", 1_000)] {
            let demand = fixture.job(id, id, 1);
            (demand.size.gpu_milli, demand.max_processes) = (milli, 1);
        }
        fixture.snapshot.demand.get_mut("old").unwrap().node_list = [node_name("n01")].into();
        let plan = fixture.plan();
        let half = plan
            .grants
            .iter()
            .find(|grant| grant.work.as_str() == "half");
        (half.unwrap().node.to_string(), processes(&plan, "whole"))
    };
    // The smallest hole is on the node with the unused GPU.
    assert_eq!(run(false), ("n00".to_owned(), 0));
    assert_eq!(run(true), ("n01".to_owned(), 1));
}
