//! Tests: effects of valid and invalid responses in the fleet of `fixture`. Nodes `n1` and `n2` are
//! in the planned pool, and `n3` is in the pool below. Each node has four quanta.

mod planner_request;
mod without_response;

use hayward_rm_scheduler_domain::plan::VacateReason;
use hayward_rm_scheduler_domain::plan::external_planner_effects::Refusal;
use hayward_rm_scheduler_domain::snapshot::external_planners::RequestedVacate;
use hayward_rm_scheduler_domain::snapshot::{Allocation, User};
use hayward_rm_scheduler_domain::{Plan, Reason};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Apart, Size, WorkKind};

use crate::ExternalPoolTrees;
use crate::fixture::{Fixture, POOL, node_name, refusals, requested_grant, requested_vacate, work};
use crate::recent_preemptions::PROTECTED_MS;

#[test]
fn a_fitting_grant_is_accepted_and_an_invalid_one_is_refused_alone() {
    let mut fixture = Fixture::new();
    fixture.add_job("job_a", "fair", 9);
    let plan = fixture.respond(
        vec![
            requested_grant("job_a", "n1", 3),
            requested_grant("job_a", "n2", 5),
        ],
        vec![],
    );
    assert_eq!(fixture.process_count("job_a"), 7);
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    let outcome = &plan.external_planners[POOL];
    assert_eq!(
        (outcome.granted, outcome.vacated, outcome.refusals),
        (7, 0, 1)
    );
    assert_eq!(outcome.refused[0].pointer, "/grants/1");
    assert_eq!(
        outcome.refused[0].detail,
        "node n2 has room for 4 of 5 processes"
    );
    let verdict = &plan.verdicts[&work("job_a")];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::ExternalPlanner, false)
    );
    assert!(
        verdict.detail.contains("refused: node n2 has room"),
        "{}",
        verdict.detail
    );
}

#[test]
fn each_invalid_grant_has_its_reason() {
    let mut fixture = Fixture::new();
    fixture.add_job("job_a", "fair", 4);
    fixture.add_job("job_else", "else", 4);
    fixture.add_job("job_done", "fair", 4).remaining_tasks = 0;
    fixture.add_job("job_huge", "fair", 1).size = Size::memory(64 * GIB);
    fixture.add_job("job_cpu", "fair", 1).size.cpu_milli = 1;
    fixture.add_job("job_gpu", "fair", 1).size.gpu_milli = 3_000;
    fixture.add_job("job_listed", "fair", 1).node_list = [node_name("n2")].into();
    fixture.add_job("job_avoids", "fair", 1).avoids = [node_name("n1")].into();
    fixture.add_job("svc_fixed", "fixed", 1).kind = WorkKind::Service;
    fixture.add_job("job_not_yours", "fair", 1).user = "ben".parse().unwrap();
    let fair = fixture.snapshot.classes.get_mut("fair").unwrap();
    fair.users = ["ann".to_owned()].into();
    fixture.node_mut("n2").takes_work = false;
    let invalid = [
        (requested_grant("job_none", "n1", 1), Refusal::UnknownWork),
        (requested_grant("", "", 0), Refusal::UnknownWork),
        (requested_grant("job_else", "n1", 1), Refusal::NotItsOwn),
        (requested_grant("job_a", "n9", 1), Refusal::UnknownNode),
        (
            requested_grant("job_a", "no such\nname", 1),
            Refusal::UnknownNode,
        ),
        (requested_grant("job_a", "far", 1), Refusal::OutsidePool),
        (requested_grant("job_a", "n2", 1), Refusal::NodeClosed),
        (requested_grant("job_done", "n1", 1), Refusal::NotWanted),
        (requested_grant("job_huge", "n1", 1), Refusal::NoRoom),
        (requested_grant("job_cpu", "n1", 1), Refusal::NoRoom),
        (requested_grant("job_gpu", "n1", 1), Refusal::NoRoom),
        (requested_grant("job_listed", "n1", 1), Refusal::NotListed),
        (requested_grant("job_avoids", "n1", 1), Refusal::Avoided),
        // Work of fixed shares stays in its own pool.
        (requested_grant("svc_fixed", "n3", 1), Refusal::OutsidePool),
        (
            requested_grant("job_not_yours", "n1", 1),
            Refusal::NotAuthorised,
        ),
    ];
    for (step, reason) in invalid {
        let plan = fixture.respond(vec![step.clone()], vec![]);
        assert_eq!(refusals(&plan), [reason], "{step:?}");
        assert!(plan.grants.is_empty());
    }
    let plan = fixture.respond(vec![requested_grant("job_a", "n3", u64::MAX)], vec![]);
    assert_eq!(refusals(&plan), [Refusal::NotWanted]);
    assert_eq!(
        fixture.process_count("job_a"),
        4,
        "fair-share work may use pools below its own"
    );
}

#[test]
fn anti_affinity_and_allotments_are_respected() {
    let mut fixture = Fixture::new();
    for index in 0..2 {
        let demand = fixture.add_job(&format!("svc_a.{index}"), "fixed", 1);
        demand.kind = WorkKind::Service;
        demand.anti_affinity = Some(Apart {
            group: work("svc_a"),
            by_label: None,
        });
    }
    let grants = vec![
        requested_grant("svc_a.0", "n1", 1),
        requested_grant("svc_a.1", "n1", 1),
    ];
    let plan = fixture.respond(grants, vec![]);
    assert_eq!(refusals(&plan), [Refusal::AntiAffinity]);
    assert_eq!(plan.grants.len(), 1);

    fixture.add_job("job_fixed", "fixed", 4);
    let limit = User {
        max_allotment_bytes: Some(2 * GIB),
        ..User::default()
    };
    fixture.snapshot.users.insert("ann".parse().unwrap(), limit);
    let plan = fixture.respond(vec![requested_grant("job_fixed", "n2", 2)], vec![]);
    assert_eq!(refusals(&plan), [Refusal::OverAllotment]);
    assert_eq!(fixture.process_count("job_fixed"), 1);
    // The planner of fair shares gets the remaining allotment.
    let allotments = ExternalPoolTrees::new(&fixture.snapshot).allotments(&fixture.snapshot);
    assert_eq!(
        allotments.values().next().unwrap().max_allotment_bytes,
        Some(0)
    );
}

#[test]
fn a_reservation_gets_a_whole_empty_node() {
    let mut fixture = Fixture::new();
    fixture.add_job("job_a", "fair", 1);
    fixture.respond(vec![requested_grant("job_a", "n1", 1)], vec![]);
    let demand = fixture.add_job("rsv_a", "whole", 1);
    demand.kind = WorkKind::Reservation;
    demand.size = Size::memory(2 * GIB);
    let plan = fixture.respond(
        vec![
            requested_grant("rsv_a", "n1", 1),
            requested_grant("rsv_a", "n2", 1),
        ],
        vec![],
    );
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    let grant = &plan.grants[0];
    assert_eq!(
        (grant.node.as_str(), grant.quanta, grant.fixed),
        ("n2", 4, true)
    );
}

impl Fixture {
    /// Returns the plan of a response with these vacates. The fixture does not change.
    fn plan_with_vacates(&self, vacates: Vec<RequestedVacate>) -> Plan {
        let mut fixture = Self::new();
        fixture.snapshot = self.snapshot.clone();
        fixture.respond(vec![], vacates)
    }
}

/// Creates a fleet in which `job_a` fills `n1` with the allocations `alc_1` to `alc_4`, and `job_b`
/// waits.
fn fleet_with_full_node() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.add_job("job_a", "fair", 4);
    fixture.respond(vec![requested_grant("job_a", "n1", 4)], vec![]);
    fixture.add_job("job_b", "fair", 1);
    fixture
}

#[test]
fn preempted_space_is_available_once_the_victim_has_left() {
    let mut fixture = fleet_with_full_node();
    let (grants, vacates) = (
        vec![requested_grant("job_b", "n1", 1)],
        vec![requested_vacate("alc_1")],
    );
    let plan = fixture.respond(grants.clone(), vacates);
    assert_eq!(plan.vacates[0].reason, VacateReason::Preempted);
    assert!(
        plan.vacates[0]
            .detail
            .ends_with("preempts it: it is in the way")
    );
    assert_eq!(plan.receipts.len(), 1);
    // A leaving allocation occupies its node until it is gone.
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    // The victim is gone. Its work wants the space again, but only a response can grant it.
    let plan = fixture.respond(vec![], vec![]);
    assert!(plan.is_empty());
    let plan = fixture.respond(grants, vec![]);
    assert_eq!(
        (refusals(&plan), fixture.process_count("job_b")),
        (vec![], 1)
    );
}

#[test]
fn each_invalid_vacate_has_its_reason() {
    let mut fixture = fleet_with_full_node();
    fixture.add_job("svc_a", "fixed", 1).kind = WorkKind::Service;
    fixture.respond(vec![requested_grant("svc_a", "n2", 1)], vec![]);
    let (_, foreign) = fixture.snapshot.allocations.last_key_value().unwrap();
    let foreign = Allocation {
        work: work("job_else"),
        class: "else".into(),
        node: node_name("far"),
        fixed: false,
        ..foreign.clone()
    };
    fixture
        .snapshot
        .allocations
        .insert("alc_far".parse().unwrap(), foreign);
    fixture.add_job("job_else", "else", 1);
    // `alc_far` belongs to another planner, and `alc_5` is the service.
    let vacates = vec![
        requested_vacate("alc_none"),
        requested_vacate("no id \u{0}"),
        requested_vacate("alc_far"),
        requested_vacate("alc_5"),
        requested_vacate("alc_2"),
        requested_vacate("alc_2"),
    ];
    let plan = fixture.respond(vec![], vacates);
    let expected = [
        Refusal::UnknownAllocation,
        Refusal::UnknownAllocation,
        Refusal::NotItsOwn,
        Refusal::NotPreemptable,
        Refusal::LeavingAlready,
    ];
    assert_eq!(refusals(&plan), expected);
    assert_eq!(
        plan.external_planners[POOL].refused[2].pointer,
        "/vacates/2"
    );
    // No work lacks processes, so no preemption has a beneficiary.
    fixture.snapshot.demand.remove(&work("job_b"));
    fixture.demand_mut("job_a").max_processes = 3;
    let plan = fixture.respond(vec![], vec![requested_vacate("alc_1")]);
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn preemption_stays_within_the_hourly_budget() {
    let mut fixture = fleet_with_full_node();
    fixture.demand_mut("job_b").max_processes = 4;
    let settings = &mut fixture.snapshot.tunables.settings;
    // The limit is 25 % of the eight quanta of `n1` and `n2`.
    settings.preemption_pool_percent_per_hour = Some(25);
    settings.preemption_user_percent_per_hour = None;
    let vacates = || {
        (1..=4)
            .map(|number| requested_vacate(&format!("alc_{number}")))
            .collect()
    };
    let plan = fixture.plan_with_vacates(vacates());
    assert_eq!(plan.vacates.len(), 2);
    assert_eq!(refusals(&plan), [Refusal::OverBudget; 2]);
    let settings = &mut fixture.snapshot.tunables.settings;
    settings.preemption_pool_percent_per_hour = None;
    settings.preemption_user_percent_per_hour = Some(25);
    let spent = [("ann".parse().unwrap(), 2)].into();
    fixture
        .snapshot
        .preempted_quanta
        .insert("below".into(), spent);
    let plan = fixture.plan_with_vacates(vacates());
    // The limit is three of the tree's twelve quanta, and two of them are spent.
    assert_eq!(
        (plan.vacates.len(), plan.external_planners[POOL].refusals),
        (1, 3)
    );
    // Without a setting the default applies: a user may lose twice the twelve quanta of the tree.
    let settings = &mut fixture.snapshot.tunables.settings;
    settings.preemption_user_percent_per_hour = None;
    let spent = [("ann".parse().unwrap(), 22)].into();
    fixture
        .snapshot
        .preempted_quanta
        .insert("below".into(), spent);
    let plan = fixture.plan_with_vacates(vacates());
    assert_eq!(
        (plan.vacates.len(), plan.external_planners[POOL].refusals),
        (2, 2)
    );
}

/// Each receipt names the work that the victim was preempted for (I14).
#[test]
fn nothing_is_preempted_for_work_that_could_not_run_there() {
    let mut fixture = fleet_with_full_node();
    let vacates = || {
        (1..=4)
            .map(|number| requested_vacate(&format!("alc_{number}")))
            .collect::<Vec<_>>()
    };
    let plan = fixture.plan_with_vacates(vacates());
    assert_eq!(plan.vacates.len(), 1, "one process is missing");
    assert_eq!(refusals(&plan), [Refusal::ServesNobody; 3]);
    let receipt = &plan.receipts[0];
    assert_eq!(receipt.beneficiary, Some(work("job_b")));
    assert_eq!(receipt.for_user, Some("ann".parse().unwrap()));
    let changes: [fn(&mut Fixture); 6] = [
        |it| it.demand_mut("job_b").size = Size::memory(1 << 50),
        |it| it.demand_mut("job_b").node_list = [node_name("n2")].into(),
        |it| it.demand_mut("job_b").avoids = [node_name("n1")].into(),
        |it| it.node_mut("n1").takes_work = false,
        |it| it.demand_mut("job_b").size.gpu_milli = 2_500,
        // One process is larger than the node.
        |it| it.demand_mut("job_b").size = Size::memory(5 * GIB),
    ];
    for change in changes {
        let mut fixture = fleet_with_full_node();
        change(&mut fixture);
        let plan = fixture.plan_with_vacates(vacates());
        assert_eq!(refusals(&plan), [Refusal::ServesNobody; 4]);
    }
    // A process of three quanta needs three victims. Fewer vacates are refused.
    fixture.demand_mut("job_b").size = Size::memory(3 * GIB);
    let plan = fixture.plan_with_vacates(vacates());
    assert_eq!((plan.vacates.len(), refusals(&plan).len()), (3, 1));
    assert!(
        fixture
            .plan_with_vacates(vacates()[..2].to_vec())
            .vacates
            .is_empty()
    );
}

#[test]
fn anti_affinity_with_a_remaining_allocation_keeps_work_off_its_node() {
    let mut fixture = fleet_with_full_node();
    fixture.demand_mut("job_b").max_processes = 0;
    fixture.demand_mut("job_a").max_processes = 3;
    fixture.respond(vec![], vec![]);
    fixture.respond(vec![], vec![]);
    for index in 0..2 {
        let demand = fixture.add_job(&format!("svc_a.{index}"), "fixed", 1);
        demand.kind = WorkKind::Service;
        demand.node_list = [node_name("n1")].into();
        demand.anti_affinity = Some(Apart {
            group: work("svc_a"),
            by_label: None,
        });
    }
    fixture.respond(vec![requested_grant("svc_a.0", "n1", 1)], vec![]);
    assert_eq!(fixture.process_count("svc_a.0"), 1);
    let plan = fixture.plan_with_vacates(vec![requested_vacate("alc_1")]);
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn granted_work_justifies_no_preemption() {
    let mut fixture = fleet_with_full_node();
    let plan = fixture.respond(
        vec![requested_grant("job_b", "n2", 1)],
        vec![requested_vacate("alc_1")],
    );
    assert_eq!((plan.grants.len(), plan.vacates.len()), (1, 0));
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn space_is_freed_once_per_missing_process() {
    let mut fixture = fleet_with_full_node();
    assert_eq!(
        fixture
            .respond(vec![], vec![requested_vacate("alc_1")])
            .vacates
            .len(),
        1
    );
    // `job_b` still lacks the process, but no second victim is preempted for it.
    for number in [2, 3, 4, 2] {
        let plan = fixture.respond(vec![], vec![requested_vacate(&format!("alc_{number}"))]);
        assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
    }
    // After the grant the next process justifies another vacate.
    fixture.demand_mut("job_b").max_processes = 2;
    let grant = vec![requested_grant("job_b", "n1", 1)];
    assert_eq!(
        fixture
            .respond(grant, vec![requested_vacate("alc_2")])
            .vacates
            .len(),
        1
    );
    assert_eq!(
        fixture.snapshot.carried.recent_preemptions[POOL]
            .freed_for
            .len(),
        1
    );
    // Old vacates no longer count.
    fixture.snapshot.now = fixture.snapshot.now.plus_ms(PROTECTED_MS);
    assert_eq!(
        fixture
            .respond(vec![], vec![requested_vacate("alc_3")])
            .vacates
            .len(),
        0
    );
    fixture.respond(vec![requested_grant("job_a", "n1", 1)], vec![]);
    assert_eq!(
        fixture
            .respond(vec![], vec![requested_vacate("alc_3")])
            .vacates
            .len(),
        1
    );
}

/// Two jobs want the space of one node. A preempted job that gets the space again is protected for
/// a while.
#[test]
fn space_does_not_move_back_and_forth() {
    let mut fixture = Fixture::new();
    for node in ["n2", "n3"] {
        fixture.node_mut(node).takes_work = false;
    }
    fixture.add_job("job_a", "fair", 1).size = Size::memory(4 * GIB);
    fixture.add_job("job_b", "fair", 1).size = Size::memory(4 * GIB);
    fixture.respond(vec![requested_grant("job_a", "n1", 1)], vec![]);
    let mut preemptions = 0;
    for _ in 0..40 {
        let allocation = fixture.snapshot.allocations.first_key_value();
        let Some((id, allocation)) =
            allocation.map(|(id, allocation)| (id.to_string(), allocation.clone()))
        else {
            unreachable!("one job runs");
        };
        let is_preemptable = fixture.planner_request().unwrap().allocations[0].preemptable;
        let next = if allocation.work == work("job_a") {
            "job_b"
        } else {
            "job_a"
        };
        let plan = fixture.respond(vec![], vec![requested_vacate(&id)]);
        assert_eq!(
            plan.vacates.len(),
            usize::from(is_preemptable),
            "exactly the allocations listed as preemptable are preempted"
        );
        if plan.vacates.is_empty() {
            assert_eq!(refusals(&plan), [Refusal::NotPreemptable]);
            continue;
        }
        preemptions += 1;
        fixture.respond(vec![], vec![]);
        assert_eq!(
            fixture
                .respond(vec![requested_grant(next, "n1", 1)], vec![])
                .grants
                .len(),
            1
        );
    }
    assert_eq!(preemptions, 2, "each job was preempted once");
    fixture.snapshot.now = fixture.snapshot.now.plus_ms(PROTECTED_MS);
    assert!(fixture.planner_request().unwrap().allocations[0].preemptable);
    assert!(
        fixture.plan().carried.recent_preemptions.is_empty(),
        "old preemptions are deleted"
    );
}

#[test]
fn a_response_is_used_once() {
    let mut fixture = Fixture::new();
    fixture.add_job("job_a", "fair", 8);
    fixture.respond(vec![requested_grant("job_a", "n1", 2)], vec![]);
    assert_eq!(fixture.process_count("job_a"), 2);
    for _ in 0..3 {
        // The response is still there.
        let plan = fixture.plan();
        assert!(plan.is_empty() && plan.external_planners.is_empty());
        fixture.carry_out(&plan);
    }
    fixture.planner_mut().response.as_mut().unwrap().number = 1;
    assert!(fixture.plan().is_empty(), "an older response is not used");
    assert_eq!(fixture.process_count("job_a"), 2);
}
