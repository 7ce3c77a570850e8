//! Rounds without a new response: verdicts, earlier notes of the planner, and forced vacates.

use hayward_rm_scheduler_domain::Reason;
use hayward_rm_scheduler_domain::plan::VacateReason;
use hayward_rm_scheduler_domain::snapshot::external_planners::ResponseResult;
use hayward_rm_scheduler_domain::snapshot::{Block, BlockEffect};

use super::fleet_with_full_node;
use crate::fixture::{Fixture, POOL, requested_grant, work};
use crate::{ExternalPoolTrees, relevant_notes};

#[test]
fn without_a_response_nothing_is_granted_and_running_work_continues() {
    let mut fixture = fleet_with_full_node();
    fixture.planner_mut().no_response_reason = Some("no answer within 10 ms".into());
    let plan = fixture.plan();
    assert!(plan.is_empty());
    let verdict = &plan.verdicts[&work("job_b")];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::ExternalPlanner, true)
    );
    assert_eq!(
        verdict.detail,
        "external planner of pool out did not answer: no answer within 10 ms"
    );
    let satisfied = &plan.verdicts[&work("job_a")];
    assert_eq!(
        (satisfied.reason, satisfied.waits),
        (Reason::Satisfied, false)
    );
    assert!(!plan.verdicts.contains_key(&work("job_else")));
}

#[test]
fn notes_of_the_planner_are_passed_on_until_replaced() {
    let mut fixture = fleet_with_full_node();
    let detail = |fixture: &Fixture| fixture.plan().verdicts[&work("job_b")].detail.clone();
    fixture.planner_mut().last_result = None;
    assert!(detail(&fixture).ends_with("has not answered yet"));
    fixture.respond(vec![], vec![]);
    assert!(detail(&fixture).ends_with("and gave no reason"));
    fixture.planner_mut().response = Some(
        hayward_rm_scheduler_domain::snapshot::external_planners::PlannerResponse {
            number: 99,
            notes: [
                ("job_b".into(), "tomorrow".into()),
                ("job_x".into(), "?".into()),
            ]
            .into(),
            ..Default::default()
        },
    );
    let plan = fixture.plan();
    assert_eq!(
        plan.external_planners[POOL].result.notes.len(),
        1,
        "notes about other work are ignored"
    );
    fixture.carry_out(&plan);
    for _ in 0..2 {
        assert_eq!(
            detail(&fixture),
            "external planner of pool out did not place it: tomorrow"
        );
    }
    let notes = fixture.planner_mut().last_result.clone().unwrap();
    let relevant = |fixture: &Fixture| {
        relevant_notes(
            &fixture.snapshot,
            &ExternalPoolTrees::new(&fixture.snapshot),
            POOL,
            &notes,
        )
    };
    assert_eq!(relevant(&fixture), notes);
    fixture.demand_mut("job_b").max_processes = 0;
    assert_eq!(
        relevant(&fixture),
        ResponseResult::default(),
        "job_b lacks no process now"
    );
}

#[test]
fn forced_vacates_need_no_planner() {
    let mut fixture = fleet_with_full_node();
    fixture.respond(vec![requested_grant("job_b", "n2", 1)], vec![]);
    let job = fixture.add_job("job_c", "fair", 2);
    job.max_processes = 2;
    fixture.respond(vec![requested_grant("job_c", "n3", 2)], vec![]);
    fixture.planner_mut().no_response_reason = Some("away".into());
    fixture.snapshot.demand.remove(&work("job_b"));
    fixture.demand_mut("job_a").max_processes = 3;
    fixture.node_mut("n3").lost = true;
    let plan = fixture.plan();
    let reasons: Vec<_> = plan
        .vacates
        .iter()
        .map(|it| (it.reason, it.purge))
        .collect();
    let expected = [
        (VacateReason::OwnLimit, false),
        (VacateReason::WorkGone, false),
        (VacateReason::NodeLost, true),
        (VacateReason::NodeLost, true),
    ];
    assert_eq!(reasons, expected);
    assert!(plan.verdicts[&work("job_c")].waits);
    fixture.node_mut("n3").lost = false;
    fixture.node_mut("n3").offline = true;
    fixture.node_mut("n1").block = Some(Block {
        effect: BlockEffect::Evacuate,
        reason: "smoke".into(),
    });
    let plan = fixture.plan();
    let count = |reason| plan.vacates.iter().filter(|it| it.reason == reason).count();
    assert_eq!(count(VacateReason::Blocked), 4);
    assert_eq!(count(VacateReason::NodeOffline), 2);
    assert_eq!(count(VacateReason::WorkGone), 1);
    fixture.node_mut("n3").offline = false;
    fixture.node_mut("n3").pool = "other".into();
    let plan = fixture.plan();
    let count = |reason| plan.vacates.iter().filter(|it| it.reason == reason).count();
    assert_eq!(count(VacateReason::Misplaced), 2);
}
