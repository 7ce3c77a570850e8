//! Placements over HTTP: reserve, stop, start; who may order what; what a restart makes of them.

use std::collections::BTreeMap;

use hayward_container_manager_api::placements::{
    PlacementList, PlacementPhase, PlacementReason, PlacementStatus, PlacementView, ProcessorList,
    ProcessorState, QueuedBecause, ResourceRequestList,
};
use hayward_container_manager_api::{ContainerState, Goal, RequestEntry};
use hayward_publication::Update;
use hayward_rm_scheduler_api::{AllocationEntry, ProcessorEntry};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::{Processor, Role, WorkKind};
use http::Method;
use serde_json::{Value, json};

use super::agent::{Agent, seen};
use super::upstream::allocation;
use super::world::World;

pub const BASE: &str = "/v1/deployments/dep_1";

pub fn processor(work: &str, user: &str, deployment: &str) -> ProcessorEntry {
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

pub fn of_service(id: &str, node: &str) -> AllocationEntry {
    let mut entry = allocation(id, node);
    entry.work = "svc_1.0".parse().unwrap();
    entry.kind = WorkKind::Service;
    entry
}

/// svc_1.0 of ann runs on n1 as alc_1.
pub async fn running() -> (World, Agent) {
    let world = World::new().await;
    world
        .upstream
        .process(&processor("svc_1.0", "ann", "dep_1"));
    world.upstream.put(&of_service("alc_1", "n1"));
    let mut agent = Agent::of(&world, "n1");
    agent
        .until("the order", |all| all.contains_key("alc_1"))
        .await;
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    world.until_state("alc_1", ContainerState::Running).await;
    until("the process is known", async || {
        let list: ProcessorList = world
            .client("ann")
            .get(&format!("{BASE}/processors"))
            .await
            .ok()?;
        (list.processors.first()?.state == ProcessorState::Running).then_some(())
    })
    .await;
    (world, agent)
}

pub async fn order(world: &World, body: Value) -> Result<PlacementView, ClientError> {
    let mut all = json!({ "processor_id": "0" });
    all.as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    let path = format!("{BASE}/placements");
    world.client("ann").post(&path, &all, None).await
}

pub async fn show(world: &World, uuid: &str) -> PlacementView {
    let path = format!("{BASE}/placements/{uuid}");
    world.client("ann").get(&path).await.unwrap()
}

async fn until_phase(world: &World, uuid: &str, phase: PlacementPhase) {
    until(&format!("{phase:?}"), async || {
        (show(world, uuid).await.phase == Some(phase)).then_some(())
    })
    .await;
}

pub async fn ends(world: &World, uuid: &str) -> PlacementView {
    until("the end of it", async || {
        let view = show(world, uuid).await;
        view.status_code.is_final().then_some(view)
    })
    .await
}

pub async fn requests(world: &World) -> Vec<RequestEntry> {
    let client = world.client("rm-scheduler");
    let update: Update<RequestEntry> = client.get("/v1/requests/publication").await.unwrap();
    update.changed.into_values().collect()
}

/// What rm-scheduler grants for the one open request.
async fn grant(world: &World, id: &str, node: &str) -> RequestEntry {
    let request = requests(world).await.remove(0);
    let mut entry = of_service(id, node);
    entry.predecessor.clone_from(&request.predecessor);
    entry.request = Some(request.id.clone());
    world.upstream.put(&entry);
    request
}

fn code(outcome: Result<PlacementView, ClientError>) -> Option<Code> {
    Some(outcome.err()?.problem()?.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stopped_before_a_place_is_held_nor_started_before_the_end_is_proven() {
    let (world, mut old) = running().await;
    let view = order(&world, json!({ "destination_host": "n2" }))
        .await
        .unwrap();
    assert_eq!(view.status_code, PlacementStatus::InProgress);
    assert_eq!(view.phase, Some(PlacementPhase::Running));
    let request = grant(&world, "alc_2", "n2").await;
    assert_eq!(request.host.unwrap().as_str(), "n2");
    assert_eq!(request.predecessor.unwrap().as_str(), "alc_1");
    old.until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    until_phase(&world, &view.uuid, PlacementPhase::StopInProgress).await;
    let mut new = Agent::of(&world, "n2");
    new.poll(0).await;
    assert!(
        new.desired.is_empty(),
        "reserved: its node is told nothing of it"
    );
    let list: ResourceRequestList = world
        .client("ann")
        .get(&format!("{BASE}/resource-requests"))
        .await
        .unwrap();
    assert_eq!(list.requests[0].granted.as_ref().unwrap().as_str(), "alc_2");

    old.report(vec![seen("alc_1", ContainerState::Ended)]).await;
    new.until("the start", |all| all.contains_key("alc_2"))
        .await;
    until_phase(&world, &view.uuid, PlacementPhase::Stopped).await;
    new.report(vec![seen("alc_2", ContainerState::Running)])
        .await;
    let done = ends(&world, &view.uuid).await;
    assert_eq!(done.status_code, PlacementStatus::Succeeded);
    assert_eq!(done.final_host.unwrap().as_str(), "n2");
    assert!(requests(&world).await.is_empty(), "withdrawn");
    let ended = world.show("ann", "alc_1").await.unwrap();
    let cause = ended.entry.exit.unwrap().cause;
    assert_eq!(cause, hayward_vocabulary::ExitCause::Intended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_expires_by_itself_and_gives_back_what_comes_late() {
    let (world, _old) = running().await;
    let body = json!({ "destination_host": "n2", "request_expiry_ms": 50 });
    let view = order(&world, body).await.unwrap();
    let entry = requests(&world).await;
    let view = ends(&world, &view.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed);
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    // Granted, and withdrawn before that was heard: it is held, and then taken back.
    let mut late = of_service("alc_2", "n2");
    late.predecessor = Some("alc_1".parse().unwrap());
    late.request = entry.first().map(|it| it.id.clone());
    world.upstream.put(&late);
    world
        .until("it is known", |all| all.contains_key("alc_2"))
        .await;
    let mut new = Agent::of(&world, "n2");
    new.poll(0).await;
    assert!(new.desired.is_empty());
    world.upstream.vacate("alc_2", false);
    world.until_state("alc_2", ContainerState::Ended).await;
    assert_eq!(
        world.show("ann", "alc_1").await.unwrap().entry.state,
        ContainerState::Running
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_manager_resumes_after_the_stop_and_gives_up_before_it() {
    let (mut world, old) = running().await;
    let view = order(&world, json!({ "destination_host": "n2" }))
        .await
        .unwrap();
    let waits = order(&world, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    assert_eq!(waits.status_code, PlacementStatus::Created);
    assert_eq!(waits.queued_because, Some(QueuedBecause::SelfInFlight));
    grant(&world, "alc_2", "n2").await;
    until_phase(&world, &view.uuid, PlacementPhase::StopInProgress).await;
    world.restart().await;
    let mut old = old.at(&world);
    old.until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    old.report(vec![seen("alc_1", ContainerState::Ended)]).await;
    let mut new = Agent::of(&world, "n2");
    new.until("the start", |all| all.contains_key("alc_2"))
        .await;
    world.restart().await;
    let mut new = new.at(&world);
    new.report(vec![seen("alc_2", ContainerState::Running)])
        .await;
    let done = ends(&world, &view.uuid).await;
    assert_eq!(done.status_code, PlacementStatus::Succeeded, "{done:?}");
    // The one that waited has its turn, and nothing is held for it yet.
    until_phase(&world, &waits.uuid, PlacementPhase::Running).await;
    world.restart().await;
    let done = ends(&world, &waits.uuid).await;
    assert_eq!(done.reason_code, Some(PlacementReason::ManagerRestarted));
    assert!(requests(&world).await.is_empty());
    let kept = show(&world, &view.uuid).await;
    assert_eq!(kept.status_code, PlacementStatus::Succeeded, "durable");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_told_apart() {
    let (world, _old) = running().await;
    let uuid = "6f1c2a9e-3b7d-4c55-8a10-000000000001";
    let first = json!({ "destination_host": "n2", "uuid": uuid });
    let view = order(&world, first.clone()).await.unwrap();
    assert_eq!(
        order(&world, first).await.unwrap().uuid,
        view.uuid,
        "a replay"
    );
    let other = json!({ "destination_host": "n3", "uuid": uuid });
    assert_eq!(code(order(&world, other).await), Some(Code::Invalid));
    let busy = json!({ "destination_host": "n3", "if_busy": "reject" });
    assert_eq!(code(order(&world, busy).await), Some(Code::Conflict));
    let (ann, there) = (world.client("ann"), json!({ "destination_host": "n3" }));
    let moves = ann.post("/v1/containers/alc_1/moves", &there, None).await;
    assert_eq!(code(moves), Some(Code::Conflict));
    for bad in [
        json!({ "destination_host": "a/b" }),
        json!({ "destination_host": "n2", "uuid": "x" }),
        json!({ "destination_host": "n2", "request_expiry_ms": 0 }),
    ] {
        assert_eq!(code(order(&world, bad).await), Some(Code::Invalid));
    }
    // Not valid when its turn comes: a row, and no error.
    let unknown = order(
        &world,
        json!({ "processor_id": "7", "destination_host": "n2" }),
    )
    .await;
    let unknown = unknown.unwrap();
    assert_eq!(unknown.status_code, PlacementStatus::BadRequest);
    assert_eq!(unknown.reason_code, Some(PlacementReason::UnknownProcessor));

    let waits = order(&world, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    let one = |uuid: &str| format!("{BASE}/placements/{uuid}");
    let begun: Result<Value, _> = ann.delete(&one(uuid)).await;
    assert_eq!(begun.unwrap_err().problem().unwrap().code, Code::Conflict);
    let bob = world.client("bob");
    let others: Result<PlacementView, _> = bob.get(&one(uuid)).await;
    assert_eq!(code(others), Some(Code::NotFound), "not his to see");
    let withdraw = async |tag: &str| {
        let call = ann.call(http::Method::DELETE, one(&waits.uuid));
        call.header(http::header::IF_MATCH, tag)
            .send::<Value>()
            .await
    };
    let stale = withdraw("\"99\"").await.unwrap_err();
    assert_eq!(stale.problem().unwrap().code, Code::PreconditionFailed);
    let bad = withdraw("W/99").await.unwrap_err();
    assert_eq!(bad.problem().unwrap().code, Code::BadRequest);
    let now = show(&world, &waits.uuid).await.generation;
    withdraw(&format!("\"{now}\"")).await.unwrap();
    let gone: Result<PlacementView, _> = ann.get(&one(&waits.uuid)).await;
    assert_eq!(code(gone), Some(Code::NotFound));
    let page: PlacementList = ann
        .get(&format!("{BASE}/placements?status=BAD_REQUEST"))
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
async fn a_blocked_host_is_refused_and_a_dead_deployment_is_over() {
    let (world, _old) = running().await;
    world.upstream.close("n2");
    until("the refusal", async || {
        let view = order(&world, json!({ "destination_host": "n2" }))
            .await
            .unwrap();
        (view.reason_code == Some(PlacementReason::DestinationBlocked)).then_some(())
    })
    .await;
    let open = order(&world, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    // Deployed anew.
    world
        .upstream
        .process(&processor("svc_1.0", "ann", "dep_2"));
    until("the old one is over", async || {
        let path = format!("{BASE}/placements/{}", open.uuid);
        let told: Result<PlacementView, _> = world.client("ann").get(&path).await;
        (code(told) == Some(Code::Gone)).then_some(())
    })
    .await;
    let late = order(&world, json!({ "destination_host": "n3" })).await;
    assert_eq!(code(late), Some(Code::Conflict));
    let nobody: Result<Value, _> = world
        .client("ann")
        .get("/v1/deployments/dep_9/processors")
        .await;
    assert_eq!(nobody.unwrap_err().problem().unwrap().code, Code::NotFound);
    assert!(
        requests(&world).await.is_empty(),
        "its request is withdrawn"
    );
    world.upstream.no_process("svc_1.0");
    // By the name of its service it is over as well, and not unknown.
    until("the service to be over", async || {
        let ann = world.client("ann");
        let order = json!({ "processor_id": "0", "destination_host": "n3" });
        let late = ann.post("/v1/deployments/svc_1/placements", &order, None);
        (code(late.await) == Some(Code::Conflict)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_status_and_an_empty_process_are_refused_with_their_place() {
    let (world, _old) = running().await;
    let ann = world.client("ann");
    let pointer = |fault: ClientError| {
        let problem = fault.problem().expect("a problem document");
        assert_eq!(problem.code, Code::Invalid);
        problem.errors[0].pointer.clone()
    };
    let path = format!("{BASE}/placements?status=NONSENSE");
    let odd: Result<PlacementList, _> = ann.get(&path).await;
    assert_eq!(pointer(odd.unwrap_err()), "/query/status");
    let empty = json!({ "processor_id": " ", "destination_host": "n2" });
    let odd: Result<PlacementView, _> = ann.post(&format!("{BASE}/placements"), &empty, None).await;
    assert_eq!(pointer(odd.unwrap_err()), "/processor_id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_list_leaves_out_is_refused_at_once() {
    let (world, _old) = running().await;
    let mut listed = processor("svc_1.0", "ann", "dep_1");
    listed.machines = vec!["n1".parse().unwrap()];
    world.upstream.process(&listed);
    let unlisted = json!({ "processor_id": "0", "destination_host": "n2" });
    until("the list to be heard", async || {
        let ann = world.client("ann");
        let call = ann.call(Method::POST, format!("{BASE}/placements"));
        let call = call.query("dry_run", true).body(&unlisted);
        let view = call.answer::<PlacementView>().await.ok()?.body;
        (view.status_code == PlacementStatus::BadRequest).then_some(())
    })
    .await;
    let view = order(&world, json!({ "destination_host": "n2" })).await;
    let view = view.unwrap();
    assert_eq!(view.reason_code, Some(PlacementReason::NotAListedMachine));
    let said = &view.response_message;
    assert!(said.contains("(n1)") && said.contains("`force`"), "{said}");
    let forced = json!({ "destination_host": "n2", "force": true });
    let view = order(&world, forced).await.unwrap();
    assert!(
        view.force && view.status_code == PlacementStatus::InProgress,
        "{view:?}"
    );
    let asked = requests(&world).await.remove(0);
    assert!(asked.force && asked.host.unwrap().as_str() == "n2");
}
