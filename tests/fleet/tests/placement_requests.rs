//! Processes of services are moved between nodes by request. The tests measure how long a live TCP
//! service is unavailable, offer a node without space, and kill container-manager during a move
//! (Requests in `docs/spec/container-placement.md`).

use std::time::{Duration, Instant};

use hayward_container_manager_api::placements::{
    PlacementPhase, PlacementReason, PlacementStatus, PlacementView,
};
use hayward_job_converter_api::WorkView;
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Echo, TestFleet, service, submit, wait_for_view};
use hayward_vocabulary::{Size, WorkId};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const GIB: u64 = 1 << 30;

struct PlacementClient {
    client: Client,
    service: WorkId,
}

impl PlacementClient {
    async fn request(&self, destination: &str, expiry_ms: u64) -> PlacementView {
        let body = json!({
            "processor_id": "0", "destination_host": destination, "request_expiry_ms": expiry_ms,
        });
        let path = format!("/v1/deployments/{}/placements", self.service);
        until_within("the placement request to be accepted", LIMIT, async || {
            self.client.post(&path, &body, None).await.ok()
        })
        .await
    }

    async fn status(&self, uuid: &str) -> Option<PlacementView> {
        let path = format!("/v1/deployments/{}/placements/{uuid}", self.service);
        self.client.get(&path).await.ok()
    }

    async fn wait_for_end(&self, uuid: &str) -> PlacementView {
        until_within("the placement to end", LIMIT, async || {
            let view = self.status(uuid).await?;
            view.status_code.is_final().then_some(view)
        })
        .await
    }
}

fn running_node(view: &WorkView) -> Option<String> {
    let mut running = view.processes.iter().filter(|it| it.state == "running");
    running.next().map(|it| it.node.to_string())
}

fn other_node(node: &str) -> &'static str {
    match node {
        "node-1" => "node-2",
        _ => "node-1",
    }
}

/// Starts a service of one process as user ada. Returns a client for its placements, the client of
/// ada, and the node of the process.
async fn start_service_with_memory<T: AsRef<str>>(
    fleet: &TestFleet,
    command: &[T],
    memory: u64,
) -> (PlacementClient, Client, String) {
    let ada = fleet.client("job-converter", "user-ada");
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let mut submission = service(&command, 1);
    submission.size = Some(Size::memory(memory));
    submission.host_affinity = Some(true);
    let id = submit(&ada, "services", &submission).await;
    let path = format!("/v1/services/{id}");
    let view = wait_for_view(&ada, &path, LIMIT, |view| running_node(view).is_some()).await;
    let placements = PlacementClient {
        client: fleet.client("container-manager", "user-ada"),
        service: id,
    };
    let node = running_node(&view).expect("it runs");
    (placements, ada, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_tcp_service_moves_to_another_node() {
    let fleet = TestFleet::start_with_agents(2).await;
    let echo = Echo::new();
    let (placements, ada, from) = start_service_with_memory(&fleet, &echo.command(), GIB).await;
    let first_pid = until_within("the service to answer", LIMIT, async || echo.request_pid()).await;

    let client = tokio::task::spawn_blocking(move || echo.measure_availability(first_pid, LIMIT));
    let started = Instant::now();
    let request = placements.request(other_node(&from), 30_000).await;
    let view = placements.wait_for_end(&request.uuid).await;
    let elapsed = started.elapsed();
    assert_eq!(view.status_code, PlacementStatus::Succeeded, "{view:?}");
    assert_eq!(
        view.final_host
            .as_ref()
            .map(hayward_vocabulary::NodeName::as_str),
        Some(other_node(&from))
    );
    let availability = client.await.expect("requests were sent");
    assert_ne!(availability.last_pid, first_pid, "another process answers");
    println!(
        "a live TCP service moved in {elapsed:?}; away for {:?} ({} answers before and after)",
        availability.longest_gap, availability.response_count
    );
    // The service has one process and no counted failure, so no retry delay and no third process.
    let path = format!("/v1/services/{}", placements.service);
    let has_moved = |view: &WorkView| {
        view.processes.len() == 1 && running_node(view).as_deref() == Some(other_node(&from))
    };
    let view = wait_for_view(&ada, &path, LIMIT, has_moved).await;
    assert_eq!(view.processes[0].incarnation, 2, "{view:?}");
    assert_eq!(view.reason, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_to_a_host_without_space_does_not_change_the_process() {
    let fleet = TestFleet::start_with_agents(2).await;
    let (placements, ada, from) =
        start_service_with_memory(&fleet, &["sleep", "1000"], 3 * GIB).await;
    // Other work takes the other node.
    let mut filler = service(&["sleep", "1000"], 1);
    filler.size = Some(Size::memory(3 * GIB));
    let filler = submit(&ada, "services", &filler).await;
    let path = format!("/v1/services/{filler}");
    wait_for_view(&ada, &path, LIMIT, |view| running_node(view).is_some()).await;

    let path = format!("/v1/services/{}", placements.service);
    let before: WorkView = ada.get(&path).await.expect("a service");
    let request = placements.request(other_node(&from), 1_500).await;
    assert_eq!(request.phase, Some(PlacementPhase::Running));
    let view = placements.wait_for_end(&request.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed, "{view:?}");
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    let after: WorkView = ada.get(&path).await.expect("a service");
    assert_eq!(
        before.processes, after.processes,
        "the process is untouched"
    );

    // Without space for a second process, a forced restart ends the first process before.
    let forced = placements.request("FORCE_RESTART_LAST_SEEN", 1_500).await;
    assert_eq!(forced.status_code, PlacementStatus::Succeeded);
    let is_restarted = |view: &WorkView| {
        let running = view.processes.iter().find(|it| it.state == "running");
        running.is_some_and(|it| it.incarnation > before.processes[0].incarnation)
    };
    let view = wait_for_view(&ada, &path, LIMIT, is_restarted).await;
    assert_eq!(
        view.reason, None,
        "an intended end is not a failure and causes no delay: {view:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_manager_resumes_a_stopping_placement_and_fails_a_waiting_one() {
    let mut fleet = TestFleet::start_with_agents(2).await;
    // The program takes time to end, so that the manager can be killed meanwhile.
    let slow_to_stop = [
        "sh",
        "-c",
        "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.1; done",
    ];
    let (placements, ada, from) = start_service_with_memory(&fleet, &slow_to_stop, 3 * GIB).await;
    let request = placements.request(other_node(&from), 30_000).await;
    until_within("the stop to begin", LIMIT, async || {
        let view = placements.status(&request.uuid).await?;
        (view.phase == Some(PlacementPhase::StopInProgress)).then_some(())
    })
    .await;
    fleet.kill("container-manager");
    fleet.start_service("container-manager");
    fleet.wait_until_services_are_ready().await;
    let view = placements.wait_for_end(&request.uuid).await;
    assert_eq!(
        view.status_code,
        PlacementStatus::Succeeded,
        "resumed: {view:?}"
    );
    let path = format!("/v1/services/{}", placements.service);
    let has_moved = |view: &WorkView| {
        view.processes.len() == 1 && running_node(view).as_deref() == Some(other_node(&from))
    };
    let moved = wait_for_view(&ada, &path, LIMIT, has_moved).await;

    // A placement that gets no space changes nothing.
    let mut filler = service(&["sleep", "1000"], 1);
    filler.size = Some(Size::memory(3 * GIB));
    let filler = submit(&ada, "services", &filler).await;
    let filler_path = format!("/v1/services/{filler}");
    wait_for_view(&ada, &filler_path, LIMIT, |view| {
        running_node(view).is_some()
    })
    .await;
    let request = placements.request(&from, 600_000).await;
    assert_eq!(request.phase, Some(PlacementPhase::Running), "{request:?}");
    fleet.kill("container-manager");
    fleet.start_service("container-manager");
    fleet.wait_until_services_are_ready().await;
    let view = placements.wait_for_end(&request.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed);
    assert_eq!(view.reason_code, Some(PlacementReason::ManagerRestarted));
    let after: WorkView = ada.get(&path).await.expect("a service");
    assert_eq!(moved.processes, after.processes, "the process is untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_requests_have_different_reasons() {
    let fleet = TestFleet::start_with_agents(1).await;
    let (placements, _, node) = start_service_with_memory(&fleet, &["sleep", "1000"], GIB).await;
    let path = format!("/v1/deployments/{}/placements", placements.service);
    let error_code = async |client: &Client, path: &str, body: Value| -> Option<String> {
        let response: Result<Value, _> = client.post(path, &body, None).await;
        let problem = response.err()?.problem().cloned()?;
        let code = serde_json::to_value(problem.code).ok()?;
        code.as_str().map(str::to_owned)
    };
    let owner = &placements.client;
    let request = |extra: Value| {
        let mut body = json!({ "processor_id": "0", "destination_host": "LAST_SEEN" });
        let extra = extra.as_object().expect("a map").clone();
        body.as_object_mut().expect("a map").extend(extra);
        body
    };
    let uuid = "6f1c2a9e-3b7d-4c55-8a10-000000000001";
    let ben = fleet.client("container-manager", "user-ben");
    let not_found = Some("not_found".to_owned());
    let invalid = Some("invalid".to_owned());
    assert_eq!(
        error_code(&ben, &path, request(json!({}))).await,
        not_found,
        "the service belongs to ada"
    );
    let unknown_service = "/v1/deployments/svc_unknown/placements";
    assert_eq!(
        error_code(owner, unknown_service, request(json!({}))).await,
        not_found
    );
    let invalid_request = request(json!({ "destination_host": "../etc" }));
    assert_eq!(error_code(owner, &path, invalid_request).await, invalid);
    assert_eq!(
        error_code(owner, &path, request(json!({ "uuid": "1" }))).await,
        invalid
    );
    let invalid_request = request(json!({ "request_expiry_ms": 0 }));
    assert_eq!(error_code(owner, &path, invalid_request).await, invalid);
    let first: PlacementView = owner
        .post(&path, &request(json!({ "uuid": uuid })), None)
        .await
        .expect("accepted");
    let same_uuid = request(json!({ "uuid": uuid, "destination_host": node }));
    assert_eq!(
        error_code(owner, &path, same_uuid).await,
        invalid,
        "the uuid belongs to another request"
    );
    let view = placements.wait_for_end(&first.uuid).await;
    assert_eq!(
        view.status_code,
        PlacementStatus::Succeeded,
        "restarted in place: {view:?}"
    );
    let unknown = request(json!({ "processor_id": "7" }));
    let view: PlacementView = owner.post(&path, &unknown, None).await.expect("a row");
    assert_eq!(view.reason_code, Some(PlacementReason::UnknownProcessor));
}
