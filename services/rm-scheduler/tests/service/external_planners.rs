//! Tests of pools with an external planner, a program that plans a pool over HTTP. The tests use a
//! planner inside the test process and the example program of the documentation.

mod example_program;
mod failures;
mod test_planner;

use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler::replay::Replay;
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::planners::{ExternalPlanner, PlannerKind, Planners, RefusedStep};
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::views::RoundList;
use hayward_rm_scheduler_api::what_if::Forecast;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, VerdictEntry, WaitReason};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::Role;
use http::Method;
use http::header::IF_MATCH;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::drains::{drain, drain_order};
use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{SECRET, job, service};
use super::successor_requests::process;
use test_planner::{TestPlanner, first_fit, no_steps};

/// Returns a policy with this planner for pool `out`, which has the nodes `n2` and `n3`. Class
/// `out` is in this pool.
fn policy_with_planner(planner: &Value) -> Value {
    json!({
        "pools": {
            "default": {},
            "out": { "nodes": ["n2", "n3"], "planner": planner },
        },
        "classes": {
            "normal": { "policy": "FAIR_SHARE", "pool": "default", "default": true },
            "out": { "policy": "FAIR_SHARE", "pool": "out" },
            "steady": {
                "policy": "FIXED_SHARE", "pool": "out", "priority": 5, "default": true,
            },
        },
    })
}

async fn set_policy(fixture: &Fixture, policy: &Value) -> Result<PolicyAnswer, ClientError> {
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    let call = fixture.client("operator").call(Method::PUT, "/v1/policy");
    let call = call.header(IF_MATCH, &format!("\"{}\"", now.generation));
    Ok(call.body(policy).send_for_response().await?.body)
}

async fn use_planner(fixture: &Fixture, planner: &TestPlanner) {
    let planner = json!({ "url": planner.url, "timeout_ms": 10_000 });
    set_policy(fixture, &policy_with_planner(&planner))
        .await
        .unwrap();
}

/// Returns a job of the class `out`.
fn external_job(id: &str, user: &str, processes: u64) -> DemandEntry {
    DemandEntry {
        class: Some("out".into()),
        max_processes: processes,
        ..job(id, user)
    }
}

fn count_held(all: &Allocations, work: &str) -> usize {
    allocations_of(all, work)
        .iter()
        .filter(|it| is_staying(it))
        .count()
}

async fn until_held(fixture: &Fixture, work: &str, count: usize) -> Allocations {
    let what = format!("{count} processes of {work}");
    fixture
        .until(&what, |all| count_held(all, work) == count)
        .await
}

async fn planner_state(fixture: &Fixture) -> Option<ExternalPlanner> {
    let all: Planners = fixture.client("viewer").get("/v1/planners").await.ok()?;
    let out = all.pools.into_iter().find(|it| it.pool == "out")?;
    out.outside
}

/// Waits until the published state of the planner satisfies the condition.
async fn until_planner(
    fixture: &Fixture,
    what: &str,
    condition: impl Fn(&ExternalPlanner) -> bool,
) -> ExternalPlanner {
    until(what, async || {
        planner_state(fixture).await.filter(|it| condition(it))
    })
    .await
}

async fn until_refused(fixture: &Fixture) -> Vec<RefusedStep> {
    let refuses = |it: &ExternalPlanner| {
        let last = it.last_answer.as_ref();
        last.is_some_and(|last| last.refusals > 0)
    };
    let found = until_planner(fixture, "refused steps", refuses).await;
    found.last_answer.unwrap().refused
}

/// Plans every recorded round again and checks that the plan is the same, and that no round dropped
/// a step. Returns the number of rounds with a response.
async fn replay_all_rounds(fixture: &Fixture) -> usize {
    let list: RoundList = fixture
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    let mut response_count = 0;
    for round in &list.rounds {
        assert!(round.refused.is_empty(), "{:?}", round.refused);
        if round.without_inputs.is_some() {
            continue;
        }
        let path = format!("/v1/rounds/{}/inputs", round.round);
        let text: Box<RawValue> = fixture.client("operator").get(&path).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let comparison = replay.compare(replay.plan()).unwrap();
        assert!(
            comparison.equal,
            "{}: {:#?}",
            round.round, comparison.differences
        );
        let inputs: Value = serde_json::from_str(text.get()).unwrap();
        response_count += usize::from(inputs["snapshot"]["outside"]["out"]["answer"].is_object());
    }
    response_count
}

async fn assert_kinds_of_planners(fixture: &Fixture) {
    let all: Planners = fixture.client("viewer").get("/v1/planners").await.unwrap();
    let kinds: Vec<_> = all
        .pools
        .iter()
        .map(|it| (it.pool.as_str(), it.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("default", PlannerKind::FairShare),
            ("out", PlannerKind::Http)
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_an_external_planner_are_carried_out_and_replayed() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    let planner = TestPlanner::start(first_fit).await;
    use_planner(&fixture, &planner).await;
    fixture.neighbours.submit(&job("job_in", "ann"));
    fixture
        .neighbours
        .submit(&external_job("job_out", "ann", 5));
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    until_held(&fixture, "job_in", 4).await;
    until_held(&fixture, "svc_a.0", 1).await;
    let all = until_held(&fixture, "job_out", 5).await;
    for entry in all.values() {
        let is_on_n1 = entry.work.as_str() == "job_in";
        assert_eq!(entry.node.as_str() == "n1", is_on_n1, "{entry:?}");
    }
    fixture
        .until_verdict("job_out", WaitReason::Satisfied)
        .await;
    let shown = until_planner(&fixture, "a used response", |it| {
        let last = it.last_answer.as_ref();
        last.is_some_and(|it| it.used_in.is_some())
    })
    .await;
    assert_eq!(
        (shown.url.as_str(), shown.failures),
        (planner.url.as_str(), 0)
    );
    let last = shown.last_answer.unwrap();
    assert!(
        last.granted > 0 && last.refusals == 0 && last.used_in.is_some(),
        "{last:?}"
    );
    assert_kinds_of_planners(&fixture).await;
    // Satisfied work is not part of a request.
    fixture.settle().await;
    let requests = planner.request_count();
    fixture.force_round().await;
    assert_eq!(planner.request_count(), requests);
    let request = planner.first_request();
    assert_eq!(request["format"], "hayward-planner/1");
    assert!(
        !request.to_string().contains(SECRET),
        "a request contains no environment of a launch"
    );
    // Fair shares do not count the pool. They list it as externally planned.
    let shares: Shares = fixture.client("viewer").get("/v1/shares").await.unwrap();
    assert_eq!((shares.capacity, shares.held), (4, 4));
    assert_eq!(shares.outside, ["out"]);
    let load: Load = fixture.client("viewer").get("/v1/load").await.unwrap();
    let out = load.pools.iter().find(|it| it.pool == "out").unwrap();
    assert_eq!(
        (out.total, out.free, out.requested, out.awarded),
        (8, 2, 6, 6)
    );
    assert!(replay_all_rounds(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_planner_may_preempt_for_waiting_work_and_forecasts_send_it_no_request() {
    let fixture = Fixture::new(&[1, 2]).await;
    let planner = TestPlanner::start(first_fit).await;
    use_planner(&fixture, &planner).await;
    fixture.neighbours.submit(&external_job("job_a", "ann", 2));
    let before = until_held(&fixture, "job_a", 2).await;
    for entry in before.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let victim = before.keys().next().unwrap().clone();
    planner.respond_with(no_steps);
    fixture.neighbours.submit(&external_job("job_b", "ben", 1));
    let has_detail = |it: &VerdictEntry| it.detail.contains("and gave no reason");
    fixture
        .until_verdict_matches("job_b", "has no detail", has_detail)
        .await;
    let requests = planner.request_count();
    let body = json!({ "rounds": 3 });
    let forecast: Forecast = fixture
        .client("operator")
        .post("/v1/what-if", &body, None)
        .await
        .unwrap();
    assert!(forecast.starts.is_empty());
    assert!(forecast.waits.iter().any(|it| it.work.as_str() == "job_b"));
    let preempted = victim.clone();
    planner.respond_with(move |request| {
        json!({
            "revision": request["revision"],
            "vacates": [{ "allocation": preempted, "detail": "ben has nothing" }],
        })
    });
    // An unchanged request is repeated only after a while. New work changes the request, so the
    // scheduler sends it at once.
    fixture.neighbours.submit(&external_job("job_c", "ben", 1));
    let leaves = |all: &Allocations| all[&victim].vacate.is_some();
    let all = fixture.until("the victim to leave", leaves).await;
    assert!(planner.request_count() > requests);
    let why = all[&victim].vacate.clone().unwrap();
    assert_eq!(why.reason, VacateReason::Preempted);
    assert!(why.detail.ends_with("ben has nothing"), "{}", why.detail);
    planner.respond_with(|request| {
        let grants = json!([{ "work": "job_b", "node": "n2" }]);
        json!({ "revision": request["revision"], "grants": grants })
    });
    fixture.confirm_all_ends().await;
    until_held(&fixture, "job_b", 1).await;
    let all = fixture.allocations().await;
    assert_eq!(
        (count_held(&all, "job_a"), count_held(&all, "job_c")),
        (1, 0)
    );
    assert!(replay_all_rounds(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_planner_provides_the_successor_before_the_vacate() {
    let fixture = Fixture::new(&[1, 4]).await;
    let planner = TestPlanner::start(first_fit).await;
    use_planner(&fixture, &planner).await;
    // Two processes of one service, of which one may move at a time. The first is bound to `n2`.
    let mut bound = process("svc_1.0", Role::Active);
    bound.machines = vec!["n2".parse().unwrap()];
    let free = process("svc_1.1", Role::Active);
    for mut demand in [bound, free] {
        demand.disruption_limit = Some(1);
        fixture.neighbours.submit(&demand);
        fixture.report_running(demand.work.as_str()).await;
    }
    let old = allocations_of(&fixture.allocations().await, "svc_1.1").remove(0);
    drain(&fixture, "n2", 4, drain_order(1));
    fixture.settle().await;
    assert!(fixture.allocations().await.values().all(is_staying));
    fixture.neighbours.node("n3", 4);
    let follows = |it: &AllocationEntry| it.predecessor.as_ref() == Some(&old.id) && is_staying(it);
    let new = fixture
        .until_one("svc_1.1", "has a successor", follows)
        .await;
    assert_eq!(new.node.as_str(), "n3");
    let is_vacated = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    let left = fixture.until_one("svc_1.1", "is vacated", is_vacated).await;
    assert_eq!(left.vacate.unwrap().reason, VacateReason::Drained);
    assert!(
        allocations_of(&fixture.allocations().await, "svc_1.0")
            .iter()
            .all(is_staying)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_reports_all_faults_of_a_planner_and_views_need_permission() {
    let fixture = Fixture::new(&[1]).await;
    let invalid_planner = json!({ "url": "ftp://x", "timeout_ms": 1 });
    let mut invalid_policy = policy_with_planner(&invalid_planner);
    invalid_policy["pools"]["out"]["queues"] = json!({ "queues": { "a": { "submit_acl": "*" } } });
    let error = set_policy(&fixture, &invalid_policy).await.unwrap_err();
    let errors = &error.problem().unwrap().errors;
    let pointers: Vec<&str> = errors.iter().map(|it| it.pointer.as_str()).collect();
    let path = "/pools/out/planner";
    let (ms, url) = (format!("{path}/timeout_ms"), format!("{path}/url"));
    assert_eq!(pointers, [path, ms.as_str(), url.as_str()]);
    for (name, expected) in [("ann", Code::Forbidden), ("job-converter", Code::Forbidden)] {
        let outcome: Result<Planners, _> = fixture.client(name).get("/v1/planners").await;
        let code = outcome.unwrap_err().problem().unwrap().code;
        assert_eq!(code, expected, "{name}");
    }
}
