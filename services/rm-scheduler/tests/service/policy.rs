//! Tests of the routes of the policy: read, change, dry run, refusal, and history.

use std::collections::{BTreeMap, BTreeSet};

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::policy::{
    Policy, PolicyAnswer, PolicyHistory, PolicyVersion, PolicyView, Pool, UserPolicy,
};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::Code;
use hayward_service::client::{ClientError, Response};
use http::Method;
use http::header::{ETAG, IF_MATCH};

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{job, reservation};

async fn set_policy(
    fixture: &Fixture,
    query: &str,
    from: Option<&str>,
    policy: &impl serde::Serialize,
) -> Result<Response<PolicyView>, ClientError> {
    let call = fixture
        .client("operator")
        .call(Method::PUT, format!("/v1/policy{query}"));
    let call = match from {
        Some(from) => call.header(IF_MATCH, from),
        None => call,
    };
    call.body(policy).send_for_response().await
}

fn problem_code<T>(outcome: Result<T, ClientError>) -> Option<Code> {
    outcome
        .err()
        .map(|error| error.problem().expect("a problem document").code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_changed_only_from_its_present_generation() {
    let fixture = Fixture::new(&[4]).await;
    let read: Response<PolicyView> = fixture
        .client("viewer")
        .call(Method::GET, "/v1/policy")
        .send_for_response()
        .await
        .unwrap();
    let etag = read.headers[ETAG].to_str().unwrap().to_owned();
    assert_eq!((read.body.generation, etag.as_str()), (0, "\"0\""));
    let mut policy: Policy = read.body.policy;
    policy.classes.get_mut("high").unwrap().weight = Some(300);

    assert_eq!(
        problem_code(set_policy(&fixture, "", None, &policy).await),
        Some(Code::PreconditionRequired)
    );
    assert_eq!(
        problem_code(set_policy(&fixture, "", Some("x"), &policy).await),
        Some(Code::BadRequest)
    );
    let dry_run = set_policy(&fixture, "?dry_run=true", Some(&etag), &policy)
        .await
        .unwrap();
    assert_eq!(dry_run.body.generation, 1);
    let unchanged: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(unchanged.generation, 0);

    let changed = set_policy(&fixture, "", Some(&etag), &policy)
        .await
        .unwrap();
    assert_eq!(changed.headers[ETAG], "\"1\"");
    let revision: u64 = changed.headers["hayward-revision"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(revision > 0 && revision <= fixture.revision());
    assert_eq!(
        problem_code(set_policy(&fixture, "", Some(&etag), &policy).await),
        Some(Code::PreconditionFailed)
    );
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!((now.generation, now.policy), (1, policy));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_faults_changes_nothing_and_reports_all_of_them() {
    let fixture = Fixture::new(&[1]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("one process", |all| all.len() == 1).await;
    let mut policy = Policy::default();
    policy.classes.remove("normal");
    policy.classes.get_mut("low").unwrap().pool = Some("nowhere".into());
    policy.quantum.0.memory_bytes = 0;
    let refused = set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .err()
        .unwrap();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, Code::Invalid);
    let mut pointers: Vec<&str> = problem
        .errors
        .iter()
        .map(|fault| fault.pointer.as_str())
        .collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/classes",
            "/classes/low/pool",
            "/classes/normal",
            "/quantum/memory_bytes"
        ]
    );

    let unreadable = serde_json::json!({ "pools": {}, "classes": { "a": { "policy": "FAIR" } } });
    let refused = set_policy(&fixture, "", Some("\"0\""), &unreadable)
        .await
        .err()
        .unwrap();
    assert!(
        refused.problem().unwrap().errors[0]
            .pointer
            .starts_with("/classes/a")
    );
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(now, PolicyView::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_change_is_used_by_the_next_round() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.class = Some("night".into());
    fixture.neighbours.submit(&demand);
    let unknown = WaitReason::UnknownClass;
    let verdict = fixture.until_verdict("job_a", unknown).await;
    assert!(verdict.refused);
    let mut policy = Policy::default();
    let night = policy.classes["low"].clone();
    policy.classes.insert("night".into(), night);
    set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .unwrap();
    let all = fixture.until("its share", |all| all.len() == 4).await;
    assert!(all.values().all(|entry| entry.class == "night"));
}

/// The shipped policy with a second tree that has the node `n2`.
fn policy_with_second_tree() -> Policy {
    let mut policy = Policy::default();
    let mut pool = policy.pools["default"].clone();
    pool.nodes = vec!["n2".into()];
    policy.pools.insert("other".into(), pool);
    policy
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_policy_applies_to_running_work() {
    let fixture = Fixture::new(&[4, 4, 8]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.neighbours.submit(&reservation("rsv_a", "bob", 8));
    let all = fixture.until("all processes", |all| all.len() == 9).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let before = fixture.allocations().await;
    let mut broken = policy_with_second_tree();
    broken.classes.get_mut("low").unwrap().weight = Some(0);
    assert_eq!(
        problem_code(set_policy(&fixture, "", Some("\"0\""), &broken).await),
        Some(Code::Invalid)
    );
    fixture.settle().await;
    let after = fixture.allocations().await;
    let ids = |all: &BTreeMap<String, AllocationEntry>| {
        let staying = all.iter().filter(|(_, entry)| is_staying(entry));
        staying.map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        ids(&after),
        ids(&before),
        "a refused policy changes no allocation"
    );

    let mut policy = policy_with_second_tree();
    policy.pools.get_mut("other").unwrap().nodes = vec!["n2".into(), "n3".into()];
    set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .unwrap();
    let all = fixture
        .until("four processes to leave n2", |all| {
            all.values().filter(|entry| !is_staying(entry)).count() == 4
        })
        .await;
    let leaving = all.values().filter(|entry| !is_staying(entry));
    assert!(leaving.clone().all(|entry| entry.node.as_str() == "n2"));
    for entry in leaving {
        assert!(entry.vacate.as_ref().unwrap().detail.contains("\"other\""));
    }
    let held = allocations_of(&all, "rsv_a");
    assert!(
        is_staying(&held[0]) && held[0].node.as_str() == "n3",
        "a reservation stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_reports_what_would_move() {
    let fixture = Fixture::new(&[4, 4]).await;
    let mut high = job("job_b", "bob");
    high.class = Some("high".into());
    high.max_processes = 3;
    fixture.neighbours.submit(&high);
    fixture
        .until("all processes of job_b", |all| all.len() == 3)
        .await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("all processes", |all| all.len() == 8).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.settle().await;
    let mut policy = policy_with_second_tree();
    let class = policy.classes.get_mut("high").unwrap();
    class.pool = Some("other".into());
    let call = fixture
        .client("operator")
        .call(Method::PUT, "/v1/policy?dry_run=true");
    let call = call.header(IF_MATCH, "\"0\"").body(&policy);
    let answer: PolicyAnswer = call.send().await.unwrap();
    assert!(
        answer
            .changes
            .contains(&"/classes/high/pool: \"default\" becomes \"other\"".to_owned())
    );
    let moves = answer.moves.expect("the fleet is known");
    let nodes: Vec<(&str, &str)> = moves
        .nodes
        .iter()
        .map(|shift| (shift.node.as_str(), shift.after.as_str()))
        .collect();
    assert_eq!(nodes, [("n2", "other")]);
    let work: Vec<&str> = moves.work.iter().map(|shift| shift.work.as_str()).collect();
    assert_eq!(work, ["job_b"]);
    assert!(
        moves
            .preempted
            .iter()
            .any(|shift| shift.work.as_str() == "job_a")
    );
    let all_entitlements_change = moves
        .classes
        .iter()
        .all(|shift| shift.due_before != shift.due_after);
    assert!(all_entitlements_change && moves.rounds > 0, "{moves:?}");
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(now.generation, 0);
    fixture.settle().await;
    assert!(fixture.allocations().await.values().all(is_staying));

    let call = fixture
        .client("operator")
        .call(Method::PUT, "/v1/policy?dry_run=true");
    let call = call.header(IF_MATCH, "\"0\"").body(&Policy::default());
    let same: PolicyAnswer = call.send().await.unwrap();
    assert!(same.changes.is_empty() && same.moves.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_in_use_is_removed_only_on_request() {
    let fixture = Fixture::new(&[4]).await;
    let mut low = job("job_a", "ann");
    low.class = Some("low".into());
    fixture.neighbours.submit(&low);
    fixture.until("all processes", |all| all.len() == 4).await;
    let mut policy = Policy::default();
    policy.classes.remove("low");
    let refused = set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .err()
        .unwrap();
    let fault = &refused.problem().unwrap().errors[0];
    assert_eq!(fault.pointer, "/classes/low");
    assert!(fault.detail.contains("drop_classes"));
    set_policy(&fixture, "?drop_classes=true", Some("\"0\""), &policy)
        .await
        .unwrap();
    let all = fixture
        .until("all processes to leave", |all| {
            all.values().all(|entry| !is_staying(entry))
        })
        .await;
    let reasons = all.values().filter_map(|entry| entry.vacate.as_ref());
    assert!(
        reasons
            .clone()
            .all(|vacate| vacate.reason == VacateReason::WorkGone)
    );
    let unknown = WaitReason::UnknownClass;
    assert!(fixture.until_verdict("job_a", unknown).await.refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_names_changes_and_an_old_policy_can_be_restored() {
    let mut fixture = Fixture::new(&[1]).await;
    let mut policy = Policy::default();
    for weight in 1..=3 {
        policy.classes.get_mut("high").unwrap().weight = Some(weight);
        let from = format!("\"{}\"", weight - 1);
        set_policy(&fixture, "", Some(&from), &policy)
            .await
            .unwrap();
    }
    fixture.restart().await;
    let viewer = fixture.client("viewer");
    let page: PolicyHistory = viewer.get("/v1/policy/history?limit=2").await.unwrap();
    let numbers: Vec<u64> = page.versions.iter().map(|it| it.generation).collect();
    assert_eq!(numbers, [3, 2]);
    assert_eq!(page.versions[0].changed_by, "operator");
    assert_eq!(
        page.versions[0].changes,
        ["/classes/high/weight: 2 becomes 3"]
    );
    let next = format!(
        "/v1/policy/history?limit=2&cursor={}",
        page.next_cursor.unwrap()
    );
    let page: PolicyHistory = viewer.get(&next).await.unwrap();
    assert_eq!((page.versions.len(), page.next_cursor), (1, None));
    let wrong = viewer
        .get::<PolicyHistory>("/v1/policy/history?cursor=x")
        .await;
    assert_eq!(problem_code(wrong), Some(Code::Invalid));
    let none = viewer.get::<PolicyVersion>("/v1/policy/history/9").await;
    assert_eq!(problem_code(none), Some(Code::NotFound));

    let old: PolicyVersion = viewer.get("/v1/policy/history/1").await.unwrap();
    let restored = set_policy(&fixture, "", Some("\"3\""), &old.policy.unwrap())
        .await
        .unwrap();
    assert_eq!(restored.body.generation, 4);
    assert_eq!(restored.body.policy.classes["high"].weight, Some(1));
}

/// A user sees neither other users nor queues in the policy (S12).
#[tokio::test(flavor = "multi_thread")]
async fn a_user_reads_the_policy_without_the_names_of_others() {
    let fixture = Fixture::new(&[1]).await;
    let mut policy = Policy::default();
    for user in ["ann", "ben"] {
        policy.users.insert(user.to_owned(), UserPolicy::default());
    }
    let named = vec!["ann".to_owned(), "ben".to_owned()];
    policy.classes.get_mut("high").unwrap().users = Some(named);
    let queues = serde_json::json!({ "queues": { "a": { "submit_acl": "ben" } } });
    let batch = Pool {
        queues: Some(queues),
        ..Pool::default()
    };
    policy.pools.insert("batch".to_owned(), batch);
    set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .unwrap();

    let ann = fixture.client("ann");
    let text: serde_json::Value = ann.get("/v1/policy").await.unwrap();
    assert!(!text.to_string().contains("ben"), "{text}");
    let filtered: PolicyView = serde_json::from_value(text).unwrap();
    assert_eq!(filtered.policy.users.keys().collect::<Vec<_>>(), ["ann"]);
    let high = &filtered.policy.classes["high"];
    assert_eq!(high.users, Some(vec!["ann".to_owned()]));
    let whole: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(whole.policy, policy);
    let earlier = ann.get::<PolicyHistory>("/v1/policy/history").await;
    assert_eq!(problem_code(earlier), Some(Code::Forbidden));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_parts_of_a_policy_are_all_reported_at_once() {
    let fixture = Fixture::new(&[1]).await;
    let unreadable = serde_json::json!({
        "pools": { "default": { "serch_order": 1 }, "gpu": { "parent": "x" } },
        "classes": { "a": { "policy": "FAIR" } },
        "more": 1,
    });
    let refused = set_policy(&fixture, "", Some("\"0\""), &unreadable)
        .await
        .err()
        .unwrap();
    let problem = refused.problem().unwrap();
    let pointers: Vec<&str> = problem
        .errors
        .iter()
        .map(|fault| fault.pointer.as_str())
        .collect();
    assert_eq!(
        pointers,
        [
            "/classes/a/policy",
            "/classes/a/pool",
            "/more",
            "/pools/default/serch_order",
            "/pools/gpu/parent"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_in_the_pools_of_the_policy() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    let mut policy = Policy::default();
    let home = policy.pools["default"].clone();
    let mut listed = home.clone();
    listed.parent = Some("default".into());
    let mut matched = listed.clone();
    listed.nodes = vec!["n2.example.org".into()];
    matched.pattern = Some("n[3-9]".into());
    policy.pools.insert("listed".into(), listed);
    policy.pools.insert("matched".into(), matched);
    for (class, pool) in [("high", "listed"), ("low", "matched")] {
        policy.classes.get_mut(class).unwrap().pool = Some(pool.into());
    }
    set_policy(&fixture, "", Some("\"0\""), &policy)
        .await
        .unwrap();
    for (id, class) in [("job_a", "high"), ("job_b", "low")] {
        let mut demand = job(id, "ann");
        demand.class = Some(class.into());
        fixture.neighbours.submit(&demand);
    }
    let all = fixture.until("both pools full", |all| all.len() == 8).await;
    let nodes_of = |work: &str| {
        let entries = allocations_of(&all, work);
        entries
            .iter()
            .map(|entry| entry.node.to_string())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(nodes_of("job_a"), BTreeSet::from(["n2".to_owned()]));
    assert_eq!(nodes_of("job_b"), BTreeSet::from(["n3".to_owned()]));
}
