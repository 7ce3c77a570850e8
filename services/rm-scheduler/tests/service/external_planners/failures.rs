//! Tests of external planners that fail: invalid steps, invalid responses, and no response. Running
//! work is never affected.

use axum::http::StatusCode;
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::planners::StepRefusal;
use hayward_rm_scheduler_api::{VacateReason, VerdictEntry, WaitReason};
use serde_json::json;

use super::super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::super::neighbours::job;
use super::test_planner::{TestPlanner, first_fit};
use super::{
    count_held, external_job, policy_with_planner, replay_all_rounds, set_policy, until_held,
    until_planner, until_refused, use_planner,
};

/// The expected text of a failure, and how to cause it.
type FailureCase = (&'static str, Box<dyn Fn(&TestPlanner)>);

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_step_is_refused_with_its_reason() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    let planner = TestPlanner::start(|request| {
        json!({
            "revision": request["revision"],
            "grants": [
                { "work": "job_out", "node": "n2", "processes": 1_000_000 },
                { "work": "job_out", "node": "n1" },
                { "work": "job_out", "node": "atlantis" },
                { "work": "job_in", "node": "n3" },
                { "work": "job_none", "node": "n3" },
            ],
            "vacates": [{ "allocation": "alc_none", "detail": "?" }],
        })
    })
    .await;
    use_planner(&fixture, &planner).await;
    fixture.neighbours.submit(&job("job_in", "ann"));
    fixture
        .neighbours
        .submit(&external_job("job_out", "ann", 6));
    until_held(&fixture, "job_in", 1).await;
    until_held(&fixture, "job_out", 4).await;
    let steps = until_refused(&fixture).await;
    let reasons: Vec<_> = steps.iter().map(|it| (it.at.as_str(), it.reason)).collect();
    let expected = [
        ("/grants/0", StepRefusal::NoRoom),
        ("/grants/1", StepRefusal::OutsidePool),
        ("/grants/2", StepRefusal::UnknownNode),
        ("/grants/3", StepRefusal::NotItsOwn),
        ("/grants/4", StepRefusal::UnknownWork),
        ("/vacates/0", StepRefusal::UnknownAllocation),
    ];
    assert_eq!(reasons, expected);
    let has_detail = |it: &VerdictEntry| it.detail.contains("is refused: node n2 has room for");
    let verdict = fixture
        .until_verdict_matches("job_out", "has its reason", has_detail)
        .await;
    assert_eq!(verdict.reason, WaitReason::ExternalPlanner);
    let all = fixture.allocations().await;
    assert_eq!(
        (count_held(&all, "job_out"), count_held(&all, "job_in")),
        (4, 1)
    );
    assert!(
        allocations_of(&all, "job_out")
            .iter()
            .all(|it| it.node.as_str() == "n2")
    );
    assert!(replay_all_rounds(&fixture).await > 0);
}

/// Returns all kinds of failures. `target` is the address that the redirect names.
fn failure_cases(target: String) -> Vec<FailureCase> {
    vec![
        (
            "its response cannot be parsed",
            Box::new(|it| {
                it.respond_raw(|_| (StatusCode::OK, None, b"<html>planned!</html>".to_vec()));
            }),
        ),
        ("no answer within 300 ms", Box::new(TestPlanner::hang)),
        (
            "more than 4194304 bytes",
            Box::new(|it| {
                it.respond_raw(|_| (StatusCode::OK, None, vec![b' '; 5 << 20]));
            }),
        ),
        (
            "redirects are not followed",
            Box::new(move |it| {
                let target = target.clone();
                let status = StatusCode::TEMPORARY_REDIRECT;
                it.respond_raw(move |_| (status, Some(target.clone()), Vec::new()));
            }),
        ),
        (
            "it answers 500",
            Box::new(|it| {
                it.respond_raw(|_| (StatusCode::INTERNAL_SERVER_ERROR, None, Vec::new()));
            }),
        ),
        (
            "for another revision",
            Box::new(|it| it.respond_with(|_| json!({ "revision": 0 }))),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_response_never_affects_running_work_and_is_retried() {
    let fixture = Fixture::new(&[1, 4]).await;
    let planner = TestPlanner::start(first_fit).await;
    let planner_settings = json!({ "url": planner.url, "timeout_ms": 300 });
    set_policy(&fixture, &policy_with_planner(&planner_settings))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&external_job("job_runs", "ann", 2));
    let before = until_held(&fixture, "job_runs", 2).await;
    for entry in before.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let redirect_target = TestPlanner::start(first_fit).await;
    let cases = failure_cases(redirect_target.url.clone());
    for (index, (expected, cause_failure)) in cases.into_iter().enumerate() {
        cause_failure(&planner);
        let id = format!("job_{index}");
        fixture.neighbours.submit(&external_job(&id, "ann", 1));
        let has_detail = |it: &VerdictEntry| it.detail.contains(expected);
        let verdict = fixture
            .until_verdict_matches(&id, expected, has_detail)
            .await;
        assert!(
            verdict
                .detail
                .starts_with("external planner of pool out did not answer")
        );
        assert_eq!(verdict.reason, WaitReason::ExternalPlanner);
        let shown = until_planner(&fixture, "a failure", |it| it.failures > 0).await;
        assert!(shown.last_failure.unwrap().detail.contains(expected));
        // Withdrawn work leaves as usual, and running work goes on.
        fixture.neighbours.demand.remove(&id);
        // The planner is available again.
        planner.respond_with(first_fit);
        let next_id = format!("job_back_{index}");
        fixture.neighbours.submit(&external_job(&next_id, "ann", 1));
        until_held(&fixture, &next_id, 1).await;
        until_planner(&fixture, "the end of the failure", |it| it.failures == 0).await;
        fixture.neighbours.demand.remove(&next_id);
        fixture.confirm_all_ends().await;
    }
    assert_eq!(redirect_target.request_count(), 0);
    let after = fixture.allocations().await;
    assert!(before.keys().all(|id| is_staying(&after[id])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_planner_is_queried_at_growing_intervals_and_other_rules_go_on() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    let planner = TestPlanner::start(first_fit).await;
    use_planner(&fixture, &planner).await;
    fixture
        .neighbours
        .submit(&external_job("job_runs", "ann", 8));
    until_held(&fixture, "job_runs", 8).await;
    // No program listens there.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    set_policy(&fixture, &policy_with_planner(&json!({ "url": url })))
        .await
        .unwrap();
    fixture.neighbours.nodes.remove("n3");
    let lost = |all: &Allocations| {
        let left = allocations_of(all, "job_runs");
        left.iter().filter(|it| !is_staying(it)).count() == 4
    };
    let all = fixture.until("four vacates on the lost node", lost).await;
    for entry in allocations_of(&all, "job_runs")
        .iter()
        .filter(|it| !is_staying(it))
    {
        let why = entry.vacate.as_ref().map(|it| it.reason);
        assert_eq!(why, Some(VacateReason::NodeLost));
    }
    let has_detail = |it: &VerdictEntry| it.detail.contains("unreachable");
    let verdict = fixture
        .until_verdict_matches("job_runs", "no program answers", has_detail)
        .await;
    assert_eq!(verdict.reason, WaitReason::ExternalPlanner);
    let failing = until_planner(&fixture, "a second failure", |it| it.failures >= 2).await;
    assert!(
        failing.last_answer.is_none(),
        "the responses of the earlier program are not shown"
    );
    // After a restart the first planner gets the requests again.
    fixture.restart().await;
    use_planner(&fixture, &planner).await;
    fixture.neighbours.node("n3", 4);
    until_held(&fixture, "job_runs", 8).await;
    assert!(replay_all_rounds(&fixture).await > 0);
}
