//! Enrolment, renewal, revocation and TLS, with every service and agent as a separate process.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use hayward::prepare::certificate_authority;
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::orchestrators::OrchestratorCreated;
use hayward_job_converter_api::submission::Submitted;
use hayward_node_status_api::{AgentCredentials, Enrolment};
use hayward_service::auth::{ACT_AS, Scope, TokenSpec, write_atomically};
use hayward_service::{Client, Clock, Code, ManualClock, SystemClock, TokenSource};
use hayward_testkit::until;
use hayward_tests_fleet::{Agent, TestFleet};
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn an_agent_enrols_once_and_renews_its_token() {
    let mut fleet = TestFleet::start().await;
    let operator = fleet.client("node-status", "operator");
    let request = json!({ "node": "new-1" });
    let enrolment: Enrolment = operator
        .post("/v1/enrolments", &request, Some("first"))
        .await
        .unwrap();
    // The clock may be set back a little between the two readings.
    let lifetime_ms = enrolment.expires_at.ms_since(SystemClock.now());
    let tolerance_ms = 5_000;
    assert!(
        (1..=15 * 60 * 1000 + tolerance_ms).contains(&lifetime_ms),
        "{lifetime_ms}"
    );

    let secret = fleet.dir.path().join("secret");
    write_atomically(&secret, &enrolment.secret, 0o600).unwrap();
    let token = fleet.dir.path().join("new-1.token");
    let mut command = fleet.command("node-new-1");
    command
        .args(["node-agent", "agent"])
        .env("HAYWARD_NODE", "new-1")
        .env("HAYWARD_TOKEN_FILE", &token)
        .env("HAYWARD_ENROLMENT_SECRET_FILE", &secret)
        .env("HAYWARD_RUNTIME", "simulated")
        .env("HAYWARD_MEMORY_BYTES", (1_u64 << 30).to_string());
    fleet.spawn("node-new-1", command);
    fleet.wait_until_nodes_take_work(1).await;

    // The secret is used up, for this node and for every other node.
    let anonymous = Client::new([fleet.url("node-status")], TokenSource::none()).unwrap();
    for node in ["new-1", "new-2"] {
        let body = json!({ "secret": enrolment.secret });
        let path = format!("/v1/nodes/{node}/credentials");
        let second_use: Result<AgentCredentials, _> = anonymous.post(&path, &body, None).await;
        let refused = second_use.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Unauthenticated);
    }

    // The token of the next agent is 17 of its 24 hours old. After two thirds of the life of its
    // token, an agent requests another one when it starts.
    fleet.kill("node-new-1");
    let issued_at = SystemClock.now().unix_ms() - 17 * 3_600_000;
    let issued_at = hayward_vocabulary::Timestamp::from_unix_ms(issued_at);
    let old_clock: Arc<dyn Clock> = Arc::new(ManualClock::new(issued_at));
    let scopes = [Scope::Agent("node-old".parse().unwrap())];
    let spec = TokenSpec {
        subject: "agent-node-old",
        scopes: &scopes,
        groups: hayward_service::auth::Groups::NONE,
        life_ms: 24 * 3_600_000,
        clock: old_clock,
    };
    let before = fleet.keys.write_token("agent-node-old", &spec).unwrap();
    let mut command = fleet.command("node-old");
    command
        .args(["node-agent", "agent"])
        .env("HAYWARD_NODE", "node-old")
        .env("HAYWARD_KEYS", fleet.keys.dir())
        .env("HAYWARD_RUNTIME", "simulated")
        .env("HAYWARD_MEMORY_BYTES", (1_u64 << 30).to_string());
    fleet.spawn("node-old", command);
    let after = until("the token to be renewed", async || {
        let now = fleet.keys.token("agent-node-old").ok()?;
        (now != before).then_some(now)
    })
    .await;
    let verifier = fleet.keys.verifier(Arc::new(SystemClock)).unwrap();
    let agent = verifier.verify(&after).unwrap();
    assert_eq!(
        (agent.name.as_str(), &agent.scopes[..]),
        ("agent-node-old", &scopes[..])
    );
    assert!(verifier.due_for_renewal(&after).is_none());
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_every_running_service() {
    let fleet = TestFleet::start().await;
    let token = fleet.keys.token("user-ben").unwrap();
    let verifier = fleet.keys.verifier(Arc::new(SystemClock)).unwrap();
    let services = hayward::prepare::SERVICES.map(|(service, _)| service);
    for service in services {
        fleet
            .client(service, "user-ben")
            .get::<Value>("/v1/status")
            .await
            .unwrap();
    }
    let id = verifier.token_id(&token).unwrap();
    fs::write(fleet.keys.revoked_path(), format!("{id}\n")).unwrap();
    let started = Instant::now();
    for service in services {
        until(&format!("{service} to refuse the token"), async || {
            let response = fleet
                .client(service, "user-ben")
                .get::<Value>("/v1/status")
                .await;
            let refused = response.err()?;
            (refused.problem()?.code == Code::Unauthenticated).then_some(())
        })
        .await;
        fleet
            .client(service, "user-ada")
            .get::<Value>("/v1/status")
            .await
            .unwrap();
    }
    println!("refused by all after {:?}", started.elapsed());
}

#[tokio::test]
async fn an_orchestrator_submits_for_a_listed_user_and_both_names_are_recorded() {
    let mut fleet = TestFleet::start().await;
    let operator = fleet.client("job-converter", "operator");
    let request = json!({ "name": "etl", "users": ["ada"] });
    let created: OrchestratorCreated = operator
        .post("/v1/orchestrators", &request, None)
        .await
        .unwrap();
    let client = |fleet: &TestFleet, token: &str| {
        Client::new([fleet.url("job-converter")], TokenSource::fixed(token)).unwrap()
    };
    let etl = client(&fleet, &created.token);
    let job = json!({ "command": ["true"], "tasks": { "count": 1 } });
    let submit = async |client: &Client, user: &str, key: &str| {
        let call = client.call(Method::POST, "/v1/jobs").body(&job);
        let call = call.idempotency_key(key).header(ACT_AS, user);
        call.send::<Submitted>().await
    };
    let submitted = submit(&etl, "ada", "one").await.unwrap();
    let refused = submit(&etl, "ben", "two").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    // A caller that names no user has no share that could be charged.
    let reply = etl
        .post::<_, Submitted>("/v1/jobs", &job, Some("three"))
        .await;
    assert_eq!(reply.unwrap_err().problem().unwrap().code, Code::Forbidden);

    // The job belongs to ada and records the orchestrator that submitted it, also after a restart.
    let path = format!("/v1/jobs/{}", submitted.id);
    for restarted in [false, true] {
        if restarted {
            fleet.kill("job-converter");
            fleet.start_service("job-converter");
            fleet.wait_until_services_are_ready().await;
        }
        let ada = fleet.client("job-converter", "user-ada");
        let view: WorkView = ada.get(&path).await.unwrap();
        assert_eq!(view.user.as_str(), "ada");
        assert_eq!(view.submitted_by.as_deref(), Some("orchestrator-etl"));
        let ben = fleet.client("job-converter", "user-ben");
        assert!(ben.get::<WorkView>(&path).await.unwrap_err().is_not_found());
    }

    // The user is not listed any more: the old token is refused.
    let request = json!({ "name": "etl", "users": ["ben"] });
    let operator = fleet.client("job-converter", "operator");
    let _: OrchestratorCreated = operator
        .post("/v1/orchestrators", &request, None)
        .await
        .unwrap();
    let refused = submit(&etl, "ada", "four").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    // The next token names the users that it may act for now.
    let path = "/v1/orchestrators/etl/credentials";
    let renewed: OrchestratorCreated = etl.put(path, &json!({})).await.unwrap();
    let etl = client(&fleet, &renewed.token);
    submit(&etl, "ben", "five").await.unwrap();
}

#[tokio::test]
async fn a_fleet_on_other_networks_uses_tls_and_runs_work() {
    let mut fleet = TestFleet::start_with_tls().await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let job = json!({ "command": ["true"], "tasks": { "count": 3 } });
    let submitted: Submitted = ada.post("/v1/jobs", &job, Some("one")).await.unwrap();
    let path = format!("/v1/jobs/{}", submitted.id);
    let is_finished = async || {
        let view: WorkView = ada.get(&path).await.ok()?;
        (view.tasks?.succeeded == 3).then_some(())
    };
    until("the job to end", is_finished).await;
    for (service, _) in hayward::prepare::SERVICES {
        let operator = fleet.client(service, "operator");
        let status: Value = operator.get("/v1/status").await.unwrap();
        assert_eq!(status["insecure_modes"], json!([]), "{service}");
        // The service refuses plain text on this address.
        let plain = fleet.url(service).replace("https:", "http:");
        let plain = Client::new([plain], TokenSource::none()).unwrap();
        assert!(plain.get::<Value>("/livez").await.is_err(), "{service}");
    }
    // The authority and all certificates are replaced while everything runs. One process may see
    // the change before another, which costs some attempts.
    certificate_authority::replace_authority(&fleet.keys).unwrap();
    certificate_authority::renew_certificates(&fleet.keys, &[]).unwrap();
    let submitted = until("a second job to be taken", async || {
        let client = fleet.client("job-converter", "user-ada");
        client
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
