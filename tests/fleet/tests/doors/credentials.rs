//! Enrolment, renewal, revocation and TLS, with every service and agent as a separate process.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use hayward::prepare::authority;
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::orchestrators::OrchestratorCreated;
use hayward_job_converter_api::submission::Submitted;
use hayward_node_status_api::{AgentCredentials, Enrolment};
use hayward_service::auth::{ACT_AS, Scope, TokenOrder, write_whole};
use hayward_service::{Client, Clock, Code, ManualClock, SystemClock, TokenSource};
use hayward_testkit::until;
use hayward_tests_fleet::{Agent, World};
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn s8_an_agent_enrols_itself_once_and_renews_its_token() {
    let mut world = World::start().await;
    let operator = world.client("node-status", "operator");
    let order = json!({ "node": "new-1" });
    let enrolment: Enrolment = operator
        .post("/v1/enrolments", &order, Some("first"))
        .await
        .unwrap();
    let life = enrolment.expires_at.ms_since(SystemClock.now());
    assert!((1..=15 * 60 * 1000).contains(&life), "{life}");

    let secret = world.dir.path().join("secret");
    write_whole(&secret, &enrolment.secret, 0o600).unwrap();
    let token = world.dir.path().join("new-1.token");
    let mut command = world.command("node-new-1");
    command
        .args(["node-agent", "agent"])
        .env("HAYWARD_NODE", "new-1")
        .env("HAYWARD_TOKEN_FILE", &token)
        .env("HAYWARD_ENROLMENT_SECRET_FILE", &secret)
        .env("HAYWARD_RUNTIME", "simulated")
        .env("HAYWARD_MEMORY_BYTES", (1_u64 << 30).to_string());
    world.spawn("node-new-1", command);
    world.nodes_take_work(1).await;

    // The secret is used up, for this node and for every other.
    let nobody = Client::new([world.url("node-status")], TokenSource::none()).unwrap();
    for node in ["new-1", "new-2"] {
        let body = json!({ "secret": enrolment.secret });
        let path = format!("/v1/nodes/{node}/credentials");
        let again: Result<AgentCredentials, _> = nobody.post(&path, &body, None).await;
        let refused = again.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Unauthenticated);
    }

    // Two thirds of its life are over, so the agent requests another token when it starts.
    world.kill("node-new-1");
    let then = SystemClock.now().unix_ms() - 17 * 3_600_000;
    let then = hayward_vocabulary::Timestamp::from_unix_ms(then);
    let old: Arc<dyn Clock> = Arc::new(ManualClock::at(then));
    let scopes = [Scope::Agent("node-old".parse().unwrap())];
    let order = TokenOrder {
        subject: "agent-node-old",
        scopes: &scopes,
        groups: hayward_service::auth::Groups::NONE,
        life_ms: 24 * 3_600_000,
        clock: old,
    };
    let before = world.keys.write_token("agent-node-old", &order).unwrap();
    let mut command = world.command("node-old");
    command
        .args(["node-agent", "agent"])
        .env("HAYWARD_NODE", "node-old")
        .env("HAYWARD_KEYS", world.keys.dir())
        .env("HAYWARD_RUNTIME", "simulated")
        .env("HAYWARD_MEMORY_BYTES", (1_u64 << 30).to_string());
    world.spawn("node-old", command);
    let after = until("the token to be renewed", async || {
        let now = world.keys.token("agent-node-old").ok()?;
        (now != before).then_some(now)
    })
    .await;
    let verifier = world.keys.verifier(Arc::new(SystemClock)).unwrap();
    let agent = verifier.verify(&after).unwrap();
    assert_eq!(
        (agent.name.as_str(), &agent.scopes[..]),
        ("agent-node-old", &scopes[..])
    );
    assert!(verifier.due(&after).is_none());
}

#[tokio::test]
async fn s8_a_revoked_token_is_refused_by_every_running_service() {
    let world = World::start().await;
    let bens = world.keys.token("user-ben").unwrap();
    let verifier = world.keys.verifier(Arc::new(SystemClock)).unwrap();
    let all = hayward::prepare::SERVICES.map(|(service, _)| service);
    for service in all {
        world
            .client(service, "user-ben")
            .get::<Value>("/v1/status")
            .await
            .unwrap();
    }
    let id = verifier.id_of(&bens).unwrap();
    fs::write(world.keys.revoked_path(), format!("{id}\n")).unwrap();
    let began = Instant::now();
    for service in all {
        until(&format!("{service} to refuse it"), async || {
            let said = world
                .client(service, "user-ben")
                .get::<Value>("/v1/status")
                .await;
            let refused = said.err()?;
            (refused.problem()?.code == Code::Unauthenticated).then_some(())
        })
        .await;
        world
            .client(service, "user-ada")
            .get::<Value>("/v1/status")
            .await
            .unwrap();
    }
    println!("refused by all after {:?}", began.elapsed());
}

#[tokio::test]
async fn s10_s11_an_orchestrator_submits_for_a_listed_user_and_both_are_written_down() {
    let mut world = World::start().await;
    let operator = world.client("job-converter", "operator");
    let order = json!({ "name": "etl", "users": ["ada"] });
    let created: OrchestratorCreated = operator
        .post("/v1/orchestrators", &order, None)
        .await
        .unwrap();
    let client = |world: &World, token: &str| {
        Client::new([world.url("job-converter")], TokenSource::fixed(token)).unwrap()
    };
    let etl = client(&world, &created.token);
    let job = json!({ "command": ["true"], "tasks": { "count": 1 } });
    let submit = async |client: &Client, user: &str, key: &str| {
        let call = client.call(Method::POST, "/v1/jobs").body(&job);
        let call = call.idempotency_key(key).header(ACT_AS, user);
        call.send::<Submitted>().await
    };
    let submitted = submit(&etl, "ada", "one").await.unwrap();
    let refused = submit(&etl, "ben", "two").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    // Without a name the caller has no share to charge.
    let own = etl
        .post::<_, Submitted>("/v1/jobs", &job, Some("three"))
        .await;
    assert_eq!(own.unwrap_err().problem().unwrap().code, Code::Forbidden);

    // The job belongs to ada and records who submitted it, also after a restart.
    let path = format!("/v1/jobs/{}", submitted.id);
    for restarted in [false, true] {
        if restarted {
            world.kill("job-converter");
            world.start_service("job-converter");
            world.services_are_ready().await;
        }
        let ada = world.client("job-converter", "user-ada");
        let view: WorkView = ada.get(&path).await.unwrap();
        assert_eq!(view.user.as_str(), "ada");
        assert_eq!(view.submitted_by.as_deref(), Some("orchestrator-etl"));
        let ben = world.client("job-converter", "user-ben");
        assert!(ben.get::<WorkView>(&path).await.unwrap_err().is_not_found());
    }

    // The user is not listed any more: the old token is refused.
    let order = json!({ "name": "etl", "users": ["ben"] });
    let operator = world.client("job-converter", "operator");
    let _: OrchestratorCreated = operator
        .post("/v1/orchestrators", &order, None)
        .await
        .unwrap();
    let refused = submit(&etl, "ada", "four").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    // The next token names the users that it may act for now.
    let path = "/v1/orchestrators/etl/credentials";
    let renewed: OrchestratorCreated = etl.put(path, &json!({})).await.unwrap();
    let etl = client(&world, &renewed.token);
    submit(&etl, "ben", "five").await.unwrap();
}

#[tokio::test]
async fn s3_a_fleet_off_loopback_speaks_tls_and_runs_work() {
    let mut world = World::locked().await;
    world.start_agent("node-1", &Agent::default());
    world.nodes_take_work(1).await;
    let ada = world.client("job-converter", "user-ada");
    let job = json!({ "command": ["true"], "tasks": { "count": 3 } });
    let submitted: Submitted = ada.post("/v1/jobs", &job, Some("one")).await.unwrap();
    let path = format!("/v1/jobs/{}", submitted.id);
    let finishes = async || {
        let view: WorkView = ada.get(&path).await.ok()?;
        (view.tasks?.succeeded == 3).then_some(())
    };
    until("the job to end", finishes).await;
    for (service, _) in hayward::prepare::SERVICES {
        let operator = world.client(service, "operator");
        let status: Value = operator.get("/v1/status").await.unwrap();
        assert_eq!(status["insecure_modes"], json!([]), "{service}");
        // Plain text is refused there.
        let plain = world.url(service).replace("https:", "http:");
        let plain = Client::new([plain], TokenSource::none()).unwrap();
        assert!(plain.get::<Value>("/livez").await.is_err(), "{service}");
    }
    // Another authority and other certificates, while everything runs. A process may see one before
    // the other, which costs some attempts.
    authority::another(&world.keys).unwrap();
    authority::certificates(&world.keys, &[]).unwrap();
    let submitted = until("a second job to be taken", async || {
        let fresh = world.client("job-converter", "user-ada");
        fresh
            .post::<_, Submitted>("/v1/jobs", &job, Some("two"))
            .await
            .ok()
    })
    .await;
    let path = format!("/v1/jobs/{}", submitted.id);
    until("the second job to end", async || {
        let view: WorkView = ada.get(&path).await.ok()?;
        (view.tasks?.succeeded == 3).then_some(())
    })
    .await;
}
