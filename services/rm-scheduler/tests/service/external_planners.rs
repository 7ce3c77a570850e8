//! Pools with an external planner: a good one, bad ones, an unavailable one, and the example of the
//! documentation.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode, header};
use axum::routing::post;
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler::replay::Replay;
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::planners::{
    OutsidePlanner, PlannerKind, Planners, RefusedStep, StepRefusal,
};
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
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::drains::{drain, order};
use super::fixture::{Allocations, Fixture, of, stays};
use super::neighbours::{job, service};
use super::second_places::process;

/// The answer of a planner: status, an additional header, and body.
type Answers = Box<dyn Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send>;

#[derive(Clone)]
struct Pretended {
    url: String,
    kept: Arc<Kept>,
}

struct Kept {
    answers: Mutex<Answers>,
    /// Does not answer while true.
    hangs: Mutex<bool>,
    questions: Mutex<Vec<Value>>,
}

impl Pretended {
    async fn start(answers: impl Fn(&Value) -> Value + Send + 'static) -> Self {
        let kept = Arc::new(Kept {
            answers: Mutex::new(Box::new(|_| (StatusCode::OK, None, Vec::new()))),
            hangs: Mutex::new(false),
            questions: Mutex::new(Vec::new()),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/plan", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/plan", post(answer))
            .with_state(kept.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let pretended = Self { url, kept };
        pretended.says(answers);
        pretended
    }

    fn says(&self, answers: impl Fn(&Value) -> Value + Send + 'static) {
        self.sends(move |ask| {
            let body = serde_json::to_vec(&answers(ask)).unwrap();
            (StatusCode::OK, None, body)
        });
    }

    fn sends(
        &self,
        answers: impl Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send + 'static,
    ) {
        *self.kept.hangs.lock() = false;
        *self.kept.answers.lock() = Box::new(answers);
    }

    fn hangs(&self) {
        *self.kept.hangs.lock() = true;
    }

    fn asked(&self) -> usize {
        self.kept.questions.lock().len()
    }
}

async fn answer(State(kept): State<Arc<Kept>>, body: Bytes) -> Response<Body> {
    let ask: Value = serde_json::from_slice(&body).unwrap();
    kept.questions.lock().push(ask.clone());
    if *kept.hangs.lock() {
        std::future::pending::<()>().await;
    }
    let (status, location, body) = (kept.answers.lock())(&ask);
    let mut answer = Response::builder().status(status);
    if let Some(location) = location {
        answer = answer.header(header::LOCATION, location);
    }
    answer.body(Body::from(body)).unwrap()
}

/// Grants each piece of work what it lacks, while quanta are free.
fn first_fit(ask: &Value) -> Value {
    let mut free: Vec<(String, u64)> = ask["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["schedulable"] == true)
        .map(|node| {
            let name = node["node"].as_str().unwrap().to_owned();
            (name, node["free_quanta"].as_u64().unwrap())
        })
        .collect();
    let mut grants = Vec::new();
    for work in ask["work"].as_array().unwrap() {
        let mut missing = work["missing"].as_u64().unwrap();
        let quanta = work["quanta"].as_u64().unwrap();
        for (node, free) in &mut free {
            let processes = (*free / quanta).min(missing);
            if processes > 0 {
                missing -= processes;
                *free -= processes * quanta;
                grants.push(json!({
                    "work": work["work"], "node": node, "processes": processes,
                }));
            }
        }
    }
    json!({ "revision": ask["revision"], "grants": grants })
}

/// The expected text of a failure, and how to cause it.
type Spoil = (&'static str, Box<dyn Fn(&Pretended)>);

fn nothing(ask: &Value) -> Value {
    json!({ "revision": ask["revision"] })
}

/// Class `out` is in pool `out`, which has the nodes from `n2` on.
fn policy(planner: &Value) -> Value {
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

async fn put(fixture: &Fixture, policy: &Value) -> Result<PolicyAnswer, ClientError> {
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    let call = fixture.client("operator").call(Method::PUT, "/v1/policy");
    let call = call.header(IF_MATCH, &format!("\"{}\"", now.generation));
    Ok(call.body(policy).answer().await?.body)
}

async fn asks(fixture: &Fixture, planner: &Pretended) {
    let planner = json!({ "url": planner.url, "timeout_ms": 10_000 });
    put(fixture, &policy(&planner)).await.unwrap();
}

fn outside(id: &str, user: &str, processes: u64) -> DemandEntry {
    DemandEntry {
        class: Some("out".into()),
        max_processes: processes,
        ..job(id, user)
    }
}

fn held(all: &Allocations, work: &str) -> usize {
    of(all, work).iter().filter(|it| stays(it)).count()
}

async fn has(fixture: &Fixture, work: &str, count: usize) -> Allocations {
    let what = format!("{count} of {work}");
    fixture.until(&what, |all| held(all, work) == count).await
}

async fn planner(fixture: &Fixture) -> Option<OutsidePlanner> {
    let all: Planners = fixture.client("viewer").get("/v1/planners").await.ok()?;
    let out = all.pools.into_iter().find(|it| it.pool == "out")?;
    out.outside
}

/// Waits until the planner of the pool satisfies the condition.
async fn until_planner(
    fixture: &Fixture,
    what: &str,
    good: impl Fn(&OutsidePlanner) -> bool,
) -> OutsidePlanner {
    until(what, async || planner(fixture).await.filter(|it| good(it))).await
}

async fn refused(fixture: &Fixture) -> Vec<RefusedStep> {
    let refuses = |it: &OutsidePlanner| {
        let last = it.last_answer.as_ref();
        last.is_some_and(|last| last.refusals > 0)
    };
    let found = until_planner(fixture, "steps are refused", refuses).await;
    found.last_answer.unwrap().refused
}

/// Plans every recorded round again to the byte. Checks that nothing was dropped from any.
async fn replays(fixture: &Fixture) -> usize {
    let list: RoundList = fixture
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    let mut answers = 0;
    for round in &list.rounds {
        assert!(round.refused.is_empty(), "{:?}", round.refused);
        if round.without_inputs.is_some() {
            continue;
        }
        let path = format!("/v1/rounds/{}/inputs", round.round);
        let text: Box<RawValue> = fixture.client("operator").get(&path).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let told = replay.compare(replay.plan()).unwrap();
        assert!(told.equal, "{}: {:#?}", round.round, told.differences);
        let said: Value = serde_json::from_str(text.get()).unwrap();
        answers += usize::from(said["snapshot"]["outside"]["out"]["answer"].is_object());
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_an_external_planner_are_carried_out_and_replayed() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    let plans = Pretended::start(first_fit).await;
    asks(&fixture, &plans).await;
    fixture.around.ask(&job("job_in", "ann"));
    fixture.around.ask(&outside("job_out", "ann", 5));
    fixture.around.ask(&service("svc_a.0", "ann"));
    has(&fixture, "job_in", 4).await;
    has(&fixture, "svc_a.0", 1).await;
    let all = has(&fixture, "job_out", 5).await;
    for entry in all.values() {
        let here = entry.work.as_str() == "job_in";
        assert_eq!(entry.node.as_str() == "n1", here, "{entry:?}");
    }
    fixture
        .until_verdict("job_out", WaitReason::Satisfied)
        .await;
    let shown = until_planner(&fixture, "it was used", |it| {
        let last = it.last_answer.as_ref();
        last.is_some_and(|it| it.used_in.is_some())
    })
    .await;
    assert_eq!(
        (shown.url.as_str(), shown.failures),
        (plans.url.as_str(), 0)
    );
    let last = shown.last_answer.unwrap();
    assert!(
        last.granted > 0 && last.refusals == 0 && last.used_in.is_some(),
        "{last:?}"
    );
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
    // Satisfied work is not part of a question.
    fixture.settled().await;
    let asked = plans.asked();
    fixture.round().await;
    assert_eq!(plans.asked(), asked);
    let question = plans.kept.questions.lock()[0].clone();
    assert_eq!(question["format"], "hayward-planner/1");
    assert!(
        !question.to_string().contains("hush"),
        "no environment, no secrets"
    );
    // Fair shares count nothing of the pool, and name it.
    let shares: Shares = fixture.client("viewer").get("/v1/shares").await.unwrap();
    assert_eq!((shares.capacity, shares.held), (4, 4));
    assert_eq!(shares.outside, ["out"]);
    let load: Load = fixture.client("viewer").get("/v1/load").await.unwrap();
    let out = load.pools.iter().find(|it| it.pool == "out").unwrap();
    assert_eq!(
        (out.total, out.free, out.requested, out.awarded),
        (8, 2, 6, 6)
    );
    assert!(replays(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_step_is_refused_with_its_reason() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    let plans = Pretended::start(|ask| {
        json!({
            "revision": ask["revision"],
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
    asks(&fixture, &plans).await;
    fixture.around.ask(&job("job_in", "ann"));
    fixture.around.ask(&outside("job_out", "ann", 6));
    has(&fixture, "job_in", 1).await;
    has(&fixture, "job_out", 4).await;
    let told = refused(&fixture).await;
    let reasons: Vec<_> = told.iter().map(|it| (it.at.as_str(), it.reason)).collect();
    let expected = [
        ("/grants/0", StepRefusal::NoRoom),
        ("/grants/1", StepRefusal::OutsidePool),
        ("/grants/2", StepRefusal::UnknownNode),
        ("/grants/3", StepRefusal::NotItsOwn),
        ("/grants/4", StepRefusal::UnknownWork),
        ("/vacates/0", StepRefusal::UnknownAllocation),
    ];
    assert_eq!(reasons, expected);
    let says = |it: &VerdictEntry| it.detail.contains("is refused: node n2 has room for");
    let verdict = fixture.until_told("job_out", "is told why", says).await;
    assert_eq!(verdict.reason, WaitReason::OutsidePlanner);
    let all = fixture.allocations().await;
    assert_eq!((held(&all, "job_out"), held(&all, "job_in")), (4, 1));
    assert!(
        of(&all, "job_out")
            .iter()
            .all(|it| it.node.as_str() == "n2")
    );
    assert!(replays(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_answers_never_affect_running_work_and_are_retried() {
    let fixture = Fixture::new(&[1, 4]).await;
    let plans = Pretended::start(first_fit).await;
    let form = json!({ "url": plans.url, "timeout_ms": 300 });
    put(&fixture, &policy(&form)).await.unwrap();
    fixture.around.ask(&outside("job_runs", "ann", 2));
    let before = has(&fixture, "job_runs", 2).await;
    for entry in before.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let elsewhere = Pretended::start(first_fit).await;
    let target = elsewhere.url.clone();
    let spoils: Vec<Spoil> = vec![
        (
            "its response cannot be parsed",
            Box::new(|it| {
                it.sends(|_| (StatusCode::OK, None, b"<html>planned!</html>".to_vec()));
            }),
        ),
        ("no answer within 300 ms", Box::new(Pretended::hangs)),
        (
            "more than 4194304 bytes",
            Box::new(|it| {
                it.sends(|_| (StatusCode::OK, None, vec![b' '; 5 << 20]));
            }),
        ),
        (
            "redirects are not followed",
            Box::new(move |it| {
                let target = target.clone();
                let status = StatusCode::TEMPORARY_REDIRECT;
                it.sends(move |_| (status, Some(target.clone()), Vec::new()));
            }),
        ),
        (
            "it answers 500",
            Box::new(|it| {
                it.sends(|_| (StatusCode::INTERNAL_SERVER_ERROR, None, Vec::new()));
            }),
        ),
        (
            "for another revision",
            Box::new(|it| it.says(|_| json!({ "revision": 0 }))),
        ),
    ];
    for (at, (why, spoil)) in spoils.into_iter().enumerate() {
        spoil(&plans);
        let id = format!("job_{at}");
        fixture.around.ask(&outside(&id, "ann", 1));
        let says = |it: &VerdictEntry| it.detail.contains(why);
        let told = fixture.until_told(&id, why, says).await;
        assert!(
            told.detail
                .starts_with("external planner of pool out did not answer")
        );
        assert_eq!(told.reason, WaitReason::OutsidePlanner);
        let shown = until_planner(&fixture, "it failed", |it| it.failures > 0).await;
        assert!(shown.last_failure.unwrap().detail.contains(why));
        // Withdrawn work leaves as usual, and running work goes on.
        fixture.around.demand.remove(&id);
        // The planner is available again.
        plans.says(first_fit);
        let back = format!("job_back_{at}");
        fixture.around.ask(&outside(&back, "ann", 1));
        has(&fixture, &back, 1).await;
        until_planner(&fixture, "it is back", |it| it.failures == 0).await;
        fixture.around.demand.remove(&back);
        fixture.let_go().await;
    }
    assert_eq!(elsewhere.asked(), 0);
    let after = fixture.allocations().await;
    assert!(before.keys().all(|id| stays(&after[id])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_planner_is_asked_at_growing_intervals_and_other_rules_go_on() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    let plans = Pretended::start(first_fit).await;
    asks(&fixture, &plans).await;
    fixture.around.ask(&outside("job_runs", "ann", 8));
    has(&fixture, "job_runs", 8).await;
    // No program listens there.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    put(&fixture, &policy(&json!({ "url": url })))
        .await
        .unwrap();
    fixture.around.nodes.remove("n3");
    let lost = |all: &Allocations| {
        let left = of(all, "job_runs");
        left.iter().filter(|it| !stays(it)).count() == 4
    };
    let all = fixture.until("what was there is given up", lost).await;
    for entry in of(&all, "job_runs").iter().filter(|it| !stays(it)) {
        let why = entry.vacate.as_ref().map(|it| it.reason);
        assert_eq!(why, Some(VacateReason::NodeLost));
    }
    let says = |it: &VerdictEntry| it.detail.contains("unreachable");
    let told = fixture.until_told("job_runs", "nobody answers", says).await;
    assert_eq!(told.reason, WaitReason::OutsidePlanner);
    let failing = until_planner(&fixture, "it fails again", |it| it.failures >= 2).await;
    assert!(failing.last_answer.is_none(), "that was another program");
    // After a restart the first planner is asked again.
    fixture.restart().await;
    asks(&fixture, &plans).await;
    fixture.around.node("n3", 4);
    has(&fixture, "job_runs", 8).await;
    assert!(replays(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_planner_may_preempt_for_waiting_work_and_forecasts_do_not_ask_it() {
    let fixture = Fixture::new(&[1, 2]).await;
    let plans = Pretended::start(first_fit).await;
    asks(&fixture, &plans).await;
    fixture.around.ask(&outside("job_a", "ann", 2));
    let before = has(&fixture, "job_a", 2).await;
    for entry in before.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let victim = before.keys().next().unwrap().clone();
    plans.says(nothing);
    fixture.around.ask(&outside("job_b", "ben", 1));
    let says = |it: &VerdictEntry| it.detail.contains("and gave no reason");
    fixture.until_told("job_b", "is told nothing", says).await;
    let asked = plans.asked();
    let body = json!({ "rounds": 3 });
    let forecast: Forecast = fixture
        .client("operator")
        .post("/v1/what-if", &body, None)
        .await
        .unwrap();
    assert!(forecast.starts.is_empty());
    assert!(forecast.waits.iter().any(|it| it.work.as_str() == "job_b"));
    let told = victim.clone();
    plans.says(move |ask| {
        json!({
            "revision": ask["revision"],
            "vacates": [{ "allocation": told, "detail": "ben has nothing" }],
        })
    });
    // The same question is repeated after a while, another one is sent at once.
    fixture.around.ask(&outside("job_c", "ben", 1));
    let leaves = |all: &Allocations| all[&victim].vacate.is_some();
    let all = fixture.until("room is made", leaves).await;
    assert!(plans.asked() > asked);
    let why = all[&victim].vacate.clone().unwrap();
    assert_eq!(why.reason, VacateReason::Preempted);
    assert!(why.detail.ends_with("ben has nothing"), "{}", why.detail);
    plans.says(|ask| {
        let grants = json!([{ "work": "job_b", "node": "n2" }]);
        json!({ "revision": ask["revision"], "grants": grants })
    });
    fixture.let_go().await;
    has(&fixture, "job_b", 1).await;
    let all = fixture.allocations().await;
    assert_eq!((held(&all, "job_a"), held(&all, "job_c")), (1, 0));
    assert!(replays(&fixture).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_planner_provides_the_successor_before_the_order_to_leave() {
    let fixture = Fixture::new(&[1, 4]).await;
    let plans = Pretended::start(first_fit).await;
    asks(&fixture, &plans).await;
    // One process bound to this node, and one of the same service that may move; one at a time.
    let mut bound = process("svc_1.0", Role::Active);
    bound.machines = vec!["n2".parse().unwrap()];
    let free = process("svc_1.1", Role::Active);
    for mut demand in [bound, free] {
        demand.disruption_limit = Some(1);
        fixture.around.ask(&demand);
        fixture.running(demand.work.as_str()).await;
    }
    let old = of(&fixture.allocations().await, "svc_1.1").remove(0);
    drain(&fixture, "n2", 4, order(1));
    fixture.settled().await;
    assert!(fixture.allocations().await.values().all(stays));
    fixture.around.node("n3", 4);
    let follows = |it: &AllocationEntry| it.predecessor.as_ref() == Some(&old.id) && stays(it);
    let new = fixture
        .until_one("svc_1.1", "has its next place", follows)
        .await;
    assert_eq!(new.node.as_str(), "n3");
    let told = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    let left = fixture.until_one("svc_1.1", "is told", told).await;
    assert_eq!(left.vacate.unwrap().reason, VacateReason::Drained);
    assert!(
        of(&fixture.allocations().await, "svc_1.0")
            .iter()
            .all(stays)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_reports_all_faults_of_a_planner_and_views_need_permission() {
    let fixture = Fixture::new(&[1]).await;
    let wrong = json!({ "url": "ftp://x", "timeout_ms": 1 });
    let mut bad = policy(&wrong);
    bad["pools"]["out"]["queues"] = json!({ "queues": { "a": { "submit_acl": "*" } } });
    let error = put(&fixture, &bad).await.unwrap_err();
    let errors = &error.problem().unwrap().errors;
    let pointers: Vec<&str> = errors.iter().map(|it| it.pointer.as_str()).collect();
    let at = "/pools/out/planner";
    let (ms, url) = (format!("{at}/timeout_ms"), format!("{at}/url"));
    assert_eq!(pointers, [at, ms.as_str(), url.as_str()]);
    for (who, expected) in [("ann", Code::Forbidden), ("job-converter", Code::Forbidden)] {
        let outcome: Result<Planners, _> = fixture.client(who).get("/v1/planners").await;
        let code = outcome.unwrap_err().problem().unwrap().code;
        assert_eq!(code, expected, "{who}");
    }
}

/// `docs/examples/planner.py`, ended with the test.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Example {
    /// The program with its address; none without Python.
    fn start(options: &[&str]) -> Option<(Self, String)> {
        const PATH: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/planner.py"
        );
        let spawned = Command::new("python3")
            .args([PATH, "--port", "0", "--quiet"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: there is no python3 to run {PATH}");
            return None;
        };
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("plans at ").unwrap().to_owned();
        Some((Self(child), url))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_serves_users_in_turn() {
    let Some((_example, url)) = Example::start(&[]) else {
        return;
    };
    let fixture = Fixture::new(&[1, 3, 3]).await;
    fixture.around.ask(&outside("job_ann", "ann", 9));
    fixture.around.ask(&outside("job_ben", "ben", 9));
    put(&fixture, &policy(&json!({ "url": url })))
        .await
        .unwrap();
    let full = |all: &Allocations| held(all, "job_ann") + held(all, "job_ben") == 6;
    let all = fixture.until("all is given out", full).await;
    assert_eq!((held(&all, "job_ann"), held(&all, "job_ben")), (3, 3));
    let says = |it: &VerdictEntry| it.detail.ends_with("no node has room for 1 quanta");
    fixture
        .until_told("job_ben", "its words are passed on", says)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_the_example_planner_is_refused() {
    let fixture = Fixture::new(&[1, 2]).await;
    fixture.around.ask(&outside("job_a", "ann", 3));
    for (bad, why) in [
        ("unknown", "is refused: there is no node atlantis"),
        ("garbage", "cannot be parsed"),
        ("huge", "more than 4194304 bytes"),
        ("slow", "no answer within 200 ms"),
        ("error", "it answers 500"),
        ("redirect", "redirects are not followed"),
        ("stale", "for another revision"),
        ("overcommit", "is refused: node n2 has room for 2 of 1003"),
        ("foreign", "and gave no reason"),
    ] {
        let Some((_example, url)) = Example::start(&["--bad", bad]) else {
            return;
        };
        let form = json!({ "url": url, "timeout_ms": if bad == "slow" { 200 } else { 10_000 } });
        put(&fixture, &policy(&form)).await.unwrap();
        let says = |it: &VerdictEntry| it.detail.contains(why);
        fixture.until_told("job_a", bad, says).await;
    }
    let told = refused(&fixture).await;
    assert!(
        told.iter().any(|it| it.reason == StepRefusal::ServesNobody),
        "{told:?}"
    );
    let all = fixture.allocations().await;
    assert_eq!(
        held(&all, "job_a"),
        2,
        "what fitted of `overcommit`, and stays"
    );
    replays(&fixture).await;
    tokio::time::timeout(Duration::from_secs(30), fixture.settled())
        .await
        .expect("comes to rest");
}
