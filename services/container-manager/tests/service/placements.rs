//! Placement requests over HTTP: moves, refusals, permissions, and restarts of the service.

use std::collections::BTreeMap;

use hayward_container_manager_api::placements::{
    PlacementList, PlacementPhase, PlacementReason, PlacementStatus, PlacementView, ProcessorList,
    ProcessorState, QueuedBecause, ResourceRequestList,
};
use hayward_container_manager_api::{ContainerState, RequestEntry};
use hayward_publication::Update;
use hayward_rm_scheduler_api::{AllocationEntry, ProcessorEntry};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::{Processor, Role, WorkKind};
use http::Method;
use serde_json::{Value, json};

use super::fake_agent::FakeAgent;
use super::fake_scheduler::allocation;
use super::fixture::Fixture;

pub const DEPLOYMENT_PATH: &str = "/v1/deployments/dep_1";

pub fn processor_entry(work: &str, user: &str, deployment: &str) -> ProcessorEntry {
    ProcessorEntry {
        work: work.parse().unwrap(),
        user: user.parse().unwrap(),
        processor: Processor {
            deployment: deployment.into(),
            role: Role::Active,
            host_affinity: true,
            failed: false,
        },
        machines: Vec::new(),
        waits: BTreeMap::new(),
    }
}

pub fn service_allocation(id: &str, node: &str) -> AllocationEntry {
    let mut entry = allocation(id, node);
    entry.work = "svc_1.0".parse().unwrap();
    entry.kind = WorkKind::Service;
    entry
}

/// Starts a service: svc_1.0 of the user ann runs on n1 in container alc_1.
pub async fn running_service() -> (Fixture, FakeAgent) {
    let fixture = Fixture::new().await;
    fixture
        .scheduler
        .publish_processor(&processor_entry("svc_1.0", "ann", "dep_1"));
    fixture
        .scheduler
        .publish(&service_allocation("alc_1", "n1"));
    let mut agent = FakeAgent::new(&fixture, "n1");
    agent.wait_for_container("alc_1").await;
    agent.report_state("alc_1", ContainerState::Running).await;
    fixture
        .wait_for_state("alc_1", ContainerState::Running)
        .await;
    until("the process is published as running", async || {
        let list: ProcessorList = fixture
            .client("ann")
            .get(&format!("{DEPLOYMENT_PATH}/processors"))
            .await
            .ok()?;
        (list.processors.first()?.state == ProcessorState::Running).then_some(())
    })
    .await;
    (fixture, agent)
}

/// Submits a placement request for processor 0 as the user ann.
pub async fn submit(fixture: &Fixture, body: Value) -> Result<PlacementView, ClientError> {
    let mut request = json!({ "processor_id": "0" });
    request
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    let path = format!("{DEPLOYMENT_PATH}/placements");
    fixture.client("ann").post(&path, &request, None).await
}

pub async fn show_placement(fixture: &Fixture, uuid: &str) -> PlacementView {
    let path = format!("{DEPLOYMENT_PATH}/placements/{uuid}");
    fixture.client("ann").get(&path).await.unwrap()
}

async fn wait_for_phase(fixture: &Fixture, uuid: &str, phase: PlacementPhase) {
    until(&format!("{phase:?}"), async || {
        (show_placement(fixture, uuid).await.phase == Some(phase)).then_some(())
    })
    .await;
}

pub async fn wait_until_final(fixture: &Fixture, uuid: &str) -> PlacementView {
    until("a final status", async || {
        let view = show_placement(fixture, uuid).await;
        view.status_code.is_final().then_some(view)
    })
    .await
}

pub async fn open_requests(fixture: &Fixture) -> Vec<RequestEntry> {
    let client = fixture.client("rm-scheduler");
    let update: Update<RequestEntry> = client.get("/v1/requests/publication").await.unwrap();
    update.changed.into_values().collect()
}

/// Grants the only open request: publishes allocation `id` on `node`. Returns the request.
async fn grant(fixture: &Fixture, id: &str, node: &str) -> RequestEntry {
    let request = open_requests(fixture).await.remove(0);
    let mut entry = service_allocation(id, node);
    entry.predecessor.clone_from(&request.predecessor);
    entry.request = Some(request.id.clone());
    fixture.scheduler.publish(&entry);
    request
}

fn error_code(outcome: Result<PlacementView, ClientError>) -> Option<Code> {
    Some(outcome.err()?.problem()?.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_reserves_before_it_stops_and_starts_after_a_proven_end() {
    let (fixture, mut old_agent) = running_service().await;
    let view = submit(&fixture, json!({ "destination_host": "n2" }))
        .await
        .unwrap();
    assert_eq!(view.status_code, PlacementStatus::InProgress);
    assert_eq!(view.phase, Some(PlacementPhase::Running));
    let request = grant(&fixture, "alc_2", "n2").await;
    assert_eq!(request.host.unwrap().as_str(), "n2");
    assert_eq!(request.predecessor.unwrap().as_str(), "alc_1");
    old_agent.wait_for_stop_order("alc_1").await;
    wait_for_phase(&fixture, &view.uuid, PlacementPhase::StopInProgress).await;
    let mut new_agent = FakeAgent::new(&fixture, "n2");
    new_agent.poll(0).await;
    assert!(
        new_agent.desired.is_empty(),
        "a reserved container is not in the desired set of its node"
    );
    let list: ResourceRequestList = fixture
        .client("ann")
        .get(&format!("{DEPLOYMENT_PATH}/resource-requests"))
        .await
        .unwrap();
    assert_eq!(list.requests[0].granted.as_ref().unwrap().as_str(), "alc_2");

    old_agent.report_state("alc_1", ContainerState::Ended).await;
    new_agent.wait_for_container("alc_2").await;
    wait_for_phase(&fixture, &view.uuid, PlacementPhase::Stopped).await;
    new_agent
        .report_state("alc_2", ContainerState::Running)
        .await;
    let done = wait_until_final(&fixture, &view.uuid).await;
    assert_eq!(done.status_code, PlacementStatus::Succeeded);
    assert_eq!(done.final_host.unwrap().as_str(), "n2");
    assert!(
        open_requests(&fixture).await.is_empty(),
        "the request is withdrawn"
    );
    let ended = fixture.show_container("ann", "alc_1").await.unwrap();
    let cause = ended.entry.exit.unwrap().cause;
    assert_eq!(cause, hayward_vocabulary::ExitCause::Intended);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_releases_a_late_grant() {
    let (fixture, _old_agent) = running_service().await;
    let body = json!({ "destination_host": "n2", "request_expiry_ms": 50 });
    let view = submit(&fixture, body).await.unwrap();
    let entry = open_requests(&fixture).await;
    let view = wait_until_final(&fixture, &view.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed);
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    // A container that is granted after the withdrawal is held, and then released.
    let mut late = service_allocation("alc_2", "n2");
    late.predecessor = Some("alc_1".parse().unwrap());
    late.request = entry.first().map(|it| it.id.clone());
    fixture.scheduler.publish(&late);
    fixture
        .wait_until("the late container is published", |all| {
            all.contains_key("alc_2")
        })
        .await;
    let mut new_agent = FakeAgent::new(&fixture, "n2");
    new_agent.poll(0).await;
    assert!(new_agent.desired.is_empty());
    fixture.scheduler.vacate("alc_2", false);
    fixture.wait_for_state("alc_2", ContainerState::Ended).await;
    assert_eq!(
        fixture
            .show_container("ann", "alc_1")
            .await
            .unwrap()
            .entry
            .state,
        ContainerState::Running
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_manager_continues_an_action_only_after_its_stop() {
    let (mut fixture, old_agent) = running_service().await;
    let view = submit(&fixture, json!({ "destination_host": "n2" }))
        .await
        .unwrap();
    let queued = submit(&fixture, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    assert_eq!(queued.status_code, PlacementStatus::Created);
    assert_eq!(queued.queued_because, Some(QueuedBecause::SelfInFlight));
    grant(&fixture, "alc_2", "n2").await;
    wait_for_phase(&fixture, &view.uuid, PlacementPhase::StopInProgress).await;
    fixture.restart().await;
    let mut old_agent = old_agent.reconnect(&fixture);
    old_agent.wait_for_stop_order("alc_1").await;
    old_agent.report_state("alc_1", ContainerState::Ended).await;
    let mut new_agent = FakeAgent::new(&fixture, "n2");
    new_agent.wait_for_container("alc_2").await;
    fixture.restart().await;
    let mut new_agent = new_agent.reconnect(&fixture);
    new_agent
        .report_state("alc_2", ContainerState::Running)
        .await;
    let done = wait_until_final(&fixture, &view.uuid).await;
    assert_eq!(done.status_code, PlacementStatus::Succeeded, "{done:?}");
    // The queued request has started, and is not granted yet.
    wait_for_phase(&fixture, &queued.uuid, PlacementPhase::Running).await;
    fixture.restart().await;
    let done = wait_until_final(&fixture, &queued.uuid).await;
    assert_eq!(done.reason_code, Some(PlacementReason::ManagerRestarted));
    assert!(open_requests(&fixture).await.is_empty());
    let stored = show_placement(&fixture, &view.uuid).await;
    assert_eq!(
        stored.status_code,
        PlacementStatus::Succeeded,
        "a final status is durable"
    );
}

async fn check_invalid_requests(fixture: &Fixture) {
    for invalid in [
        json!({ "destination_host": "a/b" }),
        json!({ "destination_host": "n2", "uuid": "x" }),
        json!({ "destination_host": "n2", "request_expiry_ms": 0 }),
    ] {
        assert_eq!(
            error_code(submit(fixture, invalid).await),
            Some(Code::Invalid)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_have_distinct_errors() {
    let (fixture, _old_agent) = running_service().await;
    let uuid = "6f1c2a9e-3b7d-4c55-8a10-000000000001";
    let first = json!({ "destination_host": "n2", "uuid": uuid });
    let view = submit(&fixture, first.clone()).await.unwrap();
    assert_eq!(
        submit(&fixture, first).await.unwrap().uuid,
        view.uuid,
        "a repeated request"
    );
    let other = json!({ "destination_host": "n3", "uuid": uuid });
    assert_eq!(
        error_code(submit(&fixture, other).await),
        Some(Code::Invalid)
    );
    let busy = json!({ "destination_host": "n3", "if_busy": "reject" });
    assert_eq!(
        error_code(submit(&fixture, busy).await),
        Some(Code::Conflict)
    );
    let (ann, to_n3) = (fixture.client("ann"), json!({ "destination_host": "n3" }));
    let moved = ann.post("/v1/containers/alc_1/moves", &to_n3, None).await;
    assert_eq!(error_code(moved), Some(Code::Conflict));
    check_invalid_requests(&fixture).await;
    // A request that is invalid when it is served is stored as a placement.
    let request = json!({ "processor_id": "7", "destination_host": "n2" });
    let unknown = submit(&fixture, request).await.unwrap();
    assert_eq!(unknown.status_code, PlacementStatus::BadRequest);
    assert_eq!(unknown.reason_code, Some(PlacementReason::UnknownProcessor));

    let queued = submit(&fixture, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    let path = |uuid: &str| format!("{DEPLOYMENT_PATH}/placements/{uuid}");
    let started: Result<Value, _> = ann.delete(&path(uuid)).await;
    assert_eq!(started.unwrap_err().problem().unwrap().code, Code::Conflict);
    let bob = fixture.client("bob");
    let not_visible: Result<PlacementView, _> = bob.get(&path(uuid)).await;
    assert_eq!(
        error_code(not_visible),
        Some(Code::NotFound),
        "bob may not see placements of ann"
    );
    let withdraw = async |tag: &str| {
        let call = ann.call(http::Method::DELETE, path(&queued.uuid));
        call.header(http::header::IF_MATCH, tag)
            .send::<Value>()
            .await
    };
    let stale = withdraw("\"99\"").await.unwrap_err();
    assert_eq!(stale.problem().unwrap().code, Code::PreconditionFailed);
    let invalid_tag = withdraw("W/99").await.unwrap_err();
    assert_eq!(invalid_tag.problem().unwrap().code, Code::BadRequest);
    let generation = show_placement(&fixture, &queued.uuid).await.generation;
    withdraw(&format!("\"{generation}\"")).await.unwrap();
    let withdrawn: Result<PlacementView, _> = ann.get(&path(&queued.uuid)).await;
    assert_eq!(error_code(withdrawn), Some(Code::NotFound));
    let page: PlacementList = ann
        .get(&format!("{DEPLOYMENT_PATH}/placements?status=BAD_REQUEST"))
        .await
        .unwrap();
    assert_eq!(page.placements, [unknown]);
    let by_service: PlacementList = ann
        .get("/v1/deployments/svc_1/placements?limit=1")
        .await
        .unwrap();
    assert_eq!(
        (by_service.placements[0].uuid.as_str(), by_service.next),
        (uuid, Some(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_hosts_and_ended_deployments_are_refused() {
    let (fixture, _old_agent) = running_service().await;
    fixture.scheduler.close_node("n2");
    until("the request is refused", async || {
        let view = submit(&fixture, json!({ "destination_host": "n2" }))
            .await
            .unwrap();
        (view.reason_code == Some(PlacementReason::DestinationBlocked)).then_some(())
    })
    .await;
    let open = submit(&fixture, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    // The service is redeployed.
    fixture
        .scheduler
        .publish_processor(&processor_entry("svc_1.0", "ann", "dep_2"));
    until("the old deployment has ended", async || {
        let path = format!("{DEPLOYMENT_PATH}/placements/{}", open.uuid);
        let result: Result<PlacementView, _> = fixture.client("ann").get(&path).await;
        (error_code(result) == Some(Code::Gone)).then_some(())
    })
    .await;
    let late = submit(&fixture, json!({ "destination_host": "n3" })).await;
    assert_eq!(error_code(late), Some(Code::Conflict));
    let unknown_deployment: Result<Value, _> = fixture
        .client("ann")
        .get("/v1/deployments/dep_9/processors")
        .await;
    assert_eq!(
        unknown_deployment.unwrap_err().problem().unwrap().code,
        Code::NotFound
    );
    assert!(
        open_requests(&fixture).await.is_empty(),
        "its request is withdrawn"
    );
    fixture.scheduler.remove_processor("svc_1.0");
    // The id of the service now refers to its ended deployment, so the code is not 404.
    until("the service has ended", async || {
        let ann = fixture.client("ann");
        let order = json!({ "processor_id": "0", "destination_host": "n3" });
        let late = ann.post("/v1/deployments/svc_1/placements", &order, None);
        (error_code(late.await) == Some(Code::Conflict)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_status_and_an_empty_processor_id_are_refused_with_a_pointer() {
    let (fixture, _old_agent) = running_service().await;
    let ann = fixture.client("ann");
    let pointer = |error: ClientError| {
        let problem = error.problem().expect("a problem document");
        assert_eq!(problem.code, Code::Invalid);
        problem.errors[0].pointer.clone()
    };
    let path = format!("{DEPLOYMENT_PATH}/placements?status=NONSENSE");
    let refused: Result<PlacementList, _> = ann.get(&path).await;
    assert_eq!(pointer(refused.unwrap_err()), "/query/status");
    let empty = json!({ "processor_id": " ", "destination_host": "n2" });
    let refused: Result<PlacementView, _> = ann
        .post(&format!("{DEPLOYMENT_PATH}/placements"), &empty, None)
        .await;
    assert_eq!(pointer(refused.unwrap_err()), "/processor_id");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlisted_host_is_refused_at_once() {
    let (fixture, _old_agent) = running_service().await;
    let mut listed = processor_entry("svc_1.0", "ann", "dep_1");
    listed.machines = vec!["n1".parse().unwrap()];
    fixture.scheduler.publish_processor(&listed);
    let unlisted = json!({ "processor_id": "0", "destination_host": "n2" });
    until("the list of machines is applied", async || {
        let ann = fixture.client("ann");
        let call = ann.call(Method::POST, format!("{DEPLOYMENT_PATH}/placements"));
        let call = call.query("dry_run", true).body(&unlisted);
        let view = call.send_for_response::<PlacementView>().await.ok()?.body;
        (view.status_code == PlacementStatus::BadRequest).then_some(())
    })
    .await;
    let view = submit(&fixture, json!({ "destination_host": "n2" })).await;
    let view = view.unwrap();
    assert_eq!(view.reason_code, Some(PlacementReason::NotAListedMachine));
    let message = &view.response_message;
    assert!(
        message.contains("(n1)") && message.contains("`force`"),
        "{message}"
    );
    let forced = json!({ "destination_host": "n2", "force": true });
    let view = submit(&fixture, forced).await.unwrap();
    assert!(
        view.force && view.status_code == PlacementStatus::InProgress,
        "{view:?}"
    );
    let requested = open_requests(&fixture).await.remove(0);
    assert!(requested.force && requested.host.unwrap().as_str() == "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_shows_the_reason_of_the_scheduler() {
    let (fixture, _old_agent) = running_service().await;
    let body = json!({ "destination_host": "n2", "request_expiry_ms": 2_000 });
    let view = submit(&fixture, body).await.unwrap();
    let request = open_requests(&fixture).await.remove(0);
    let mut entry = processor_entry("svc_1.0", "ann", "dep_1");
    let reason = "node n2 has 1 of 2 quanta free".to_owned();
    entry.waits.insert(request.id, reason.clone());
    fixture.scheduler.publish_processor(&entry);
    let view = wait_until_final(&fixture, &view.uuid).await;
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    assert!(view.response_message.ends_with(&reason), "{view:?}");
    until("the request is withdrawn", async || {
        open_requests(&fixture).await.is_empty().then_some(())
    })
    .await;
}
