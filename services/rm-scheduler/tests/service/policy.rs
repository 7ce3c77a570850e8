//! The policy: read, changed from what was read, refused as a whole.

use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_service::Code;
use hayward_service::client::{Answer, ClientError};
use http::Method;
use http::header::{ETAG, IF_MATCH};

use super::neighbours::job;
use super::world::World;

async fn put(
    world: &World,
    query: &str,
    from: Option<&str>,
    policy: &impl serde::Serialize,
) -> Result<Answer<PolicyView>, ClientError> {
    let call = world
        .client("operator")
        .call(Method::PUT, format!("/v1/policy{query}"));
    let call = match from {
        Some(from) => call.header(IF_MATCH, from),
        None => call,
    };
    call.body(policy).answer().await
}

fn code<T>(outcome: Result<T, ClientError>) -> Option<Code> {
    outcome
        .err()
        .map(|error| error.problem().expect("a problem document").code)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_changed_only_from_what_was_read() {
    let world = World::new(&[4]).await;
    let read: Answer<PolicyView> = world
        .client("viewer")
        .call(Method::GET, "/v1/policy")
        .answer()
        .await
        .unwrap();
    let etag = read.headers[ETAG].to_str().unwrap().to_owned();
    assert_eq!((read.body.generation, etag.as_str()), (0, "\"0\""));
    let mut policy: Policy = read.body.policy;
    policy.classes.get_mut("high").unwrap().weight = Some(300);

    assert_eq!(
        code(put(&world, "", None, &policy).await),
        Some(Code::PreconditionRequired)
    );
    assert_eq!(
        code(put(&world, "", Some("x"), &policy).await),
        Some(Code::BadRequest)
    );
    let dry = put(&world, "?dry_run=true", Some(&etag), &policy)
        .await
        .unwrap();
    assert_eq!(dry.body.generation, 1);
    let still: PolicyView = world.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(still.generation, 0);

    let done = put(&world, "", Some(&etag), &policy).await.unwrap();
    assert_eq!(done.headers[ETAG], "\"1\"");
    let revision: u64 = done.headers["hayward-revision"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(revision > 0 && revision <= world.revision());
    assert_eq!(
        code(put(&world, "", Some(&etag), &policy).await),
        Some(Code::PreconditionFailed)
    );
    let now: PolicyView = world.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!((now.generation, now.policy), (1, policy));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_its_faults_are_named_at_once_and_nothing_is_changed() {
    let world = World::new(&[1]).await;
    world.around.ask(&job("job_a", "ann"));
    world.until("one", |all| all.len() == 1).await;
    let mut policy = Policy::default();
    policy.classes.remove("normal");
    policy.classes.get_mut("low").unwrap().pool = Some("nowhere".into());
    policy.quantum.0.memory_bytes = 0;
    let refused = put(&world, "", Some("\"0\""), &policy).await.err().unwrap();
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
    let refused = put(&world, "", Some("\"0\""), &unreadable)
        .await
        .err()
        .unwrap();
    assert!(
        refused.problem().unwrap().errors[0]
            .pointer
            .starts_with("/classes/a")
    );
    let now: PolicyView = world.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(now, PolicyView::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_news_for_the_next_round() {
    let world = World::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.class = Some("night".into());
    world.around.ask(&demand);
    let unknown = hayward_rm_scheduler_api::WaitReason::UnknownClass;
    let verdict = world.until_verdict("job_a", unknown).await;
    assert!(verdict.refused);
    let mut policy = Policy::default();
    let night = policy.classes["low"].clone();
    policy.classes.insert("night".into(), night);
    put(&world, "", Some("\"0\""), &policy).await.unwrap();
    let all = world.until("its share", |all| all.len() == 4).await;
    assert!(all.values().all(|entry| entry.class == "night"));
}
