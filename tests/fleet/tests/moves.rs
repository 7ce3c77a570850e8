//! Processes of services are moved between nodes by request. The tests measure how long a live TCP
//! service is unavailable, offer a node without space, and kill container-manager during a move
//! (container placement, Requests).

use std::time::{Duration, Instant};

use hayward_container_manager_api::placements::{
    PlacementPhase, PlacementReason, PlacementStatus, PlacementView,
};
use hayward_job_converter_api::WorkView;
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Echo, TestFleet, reaches, service, submit};
use hayward_vocabulary::{Size, WorkId};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const GIB: u64 = 1 << 30;

struct Mover {
    client: Client,
    service: WorkId,
}

impl Mover {
    async fn order(&self, to: &str, expiry_ms: u64) -> PlacementView {
        let order = json!({
            "processor_id": "0", "destination_host": to, "request_expiry_ms": expiry_ms,
        });
        let path = format!("/v1/deployments/{}/placements", self.service);
        until_within("the order to be taken in", LIMIT, async || {
            self.client.post(&path, &order, None).await.ok()
        })
        .await
    }

    async fn status(&self, uuid: &str) -> Option<PlacementView> {
        let path = format!("/v1/deployments/{}/placements/{uuid}", self.service);
        self.client.get(&path).await.ok()
    }

    async fn ends(&self, uuid: &str) -> PlacementView {
        until_within("the placement to end", LIMIT, async || {
            let view = self.status(uuid).await?;
            view.status_code.is_final().then_some(view)
        })
        .await
    }
}

fn runs_on(view: &WorkView) -> Option<String> {
    let mut running = view.processes.iter().filter(|it| it.state == "running");
    running.next().map(|it| it.node.to_string())
}

fn other(node: &str) -> &'static str {
    match node {
        "node-1" => "node-2",
        _ => "node-1",
    }
}

async fn up<T: AsRef<str>>(
    fleet: &TestFleet,
    command: &[T],
    memory: u64,
) -> (Mover, Client, String) {
    let ada = fleet.client("job-converter", "user-ada");
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let mut wanted = service(&command, 1);
    wanted.size = Some(Size::memory(memory));
    wanted.host_affinity = Some(true);
    let id = submit(&ada, "services", &wanted).await;
    let path = format!("/v1/services/{id}");
    let view = reaches(&ada, &path, LIMIT, |view| runs_on(view).is_some()).await;
    let mover = Mover {
        client: fleet.client("container-manager", "user-ada"),
        service: id,
    };
    let node = runs_on(&view).expect("it runs");
    (mover, ada, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_tcp_service_changes_machines() {
    let fleet = TestFleet::with_agents(2).await;
    let echo = Echo::new();
    let (mover, ada, from) = up(&fleet, &echo.command(), GIB).await;
    let first = until_within("the service to answer", LIMIT, async || echo.ask()).await;

    let asking = tokio::task::spawn_blocking(move || echo.keep_asking(first, LIMIT));
    let began = Instant::now();
    let order = mover.order(other(&from), 30_000).await;
    let view = mover.ends(&order.uuid).await;
    let took = began.elapsed();
    assert_eq!(view.status_code, PlacementStatus::Succeeded, "{view:?}");
    assert_eq!(
        view.final_host
            .as_ref()
            .map(hayward_vocabulary::NodeName::as_str),
        Some(other(&from))
    );
    let seen = asking.await.expect("requests were sent");
    assert_ne!(seen.last, first, "another process answers");
    println!(
        "a live TCP service moved in {took:?}; away for {:?} ({} answers before and after)",
        seen.away, seen.answers
    );
    // The service has one process and no counted failure, so no retry delay and no third process.
    let path = format!("/v1/services/{}", mover.service);
    let calm = |view: &WorkView| {
        view.processes.len() == 1 && runs_on(view).as_deref() == Some(other(&from))
    };
    let view = reaches(&ada, &path, LIMIT, calm).await;
    assert_eq!(view.processes[0].incarnation, 2, "{view:?}");
    assert_eq!(view.reason, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_to_a_host_without_space_leaves_the_process_alone() {
    let fleet = TestFleet::with_agents(2).await;
    let (mover, ada, from) = up(&fleet, &["sleep", "1000"], 3 * GIB).await;
    // Other work takes the other node.
    let mut filler = service(&["sleep", "1000"], 1);
    filler.size = Some(Size::memory(3 * GIB));
    let filler = submit(&ada, "services", &filler).await;
    let path = format!("/v1/services/{filler}");
    reaches(&ada, &path, LIMIT, |view| runs_on(view).is_some()).await;

    let path = format!("/v1/services/{}", mover.service);
    let before: WorkView = ada.get(&path).await.expect("a service");
    let order = mover.order(other(&from), 1_500).await;
    assert_eq!(order.phase, Some(PlacementPhase::Running));
    let view = mover.ends(&order.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed, "{view:?}");
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    let after: WorkView = ada.get(&path).await.expect("a service");
    assert_eq!(before.processes, after.processes, "untouched");

    // If there is no space for a second process, the first can be ended before.
    let force = mover.order("FORCE_RESTART_LAST_SEEN", 1_500).await;
    assert_eq!(force.status_code, PlacementStatus::Succeeded);
    let is_restarted = |view: &WorkView| {
        let running = view.processes.iter().find(|it| it.state == "running");
        running.is_some_and(|it| it.incarnation > before.processes[0].incarnation)
    };
    let view = reaches(&ada, &path, LIMIT, is_restarted).await;
    assert_eq!(
        view.reason, None,
        "an intended end holds nothing back: {view:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_in_the_middle_goes_on_or_gives_up_by_the_rule() {
    let mut fleet = TestFleet::with_agents(2).await;
    // The program takes time to end, so that the manager can be killed meanwhile.
    let slow = [
        "sh",
        "-c",
        "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.1; done",
    ];
    let (mover, ada, from) = up(&fleet, &slow, 3 * GIB).await;
    let order = mover.order(other(&from), 30_000).await;
    until_within("the stop to be ordered", LIMIT, async || {
        let view = mover.status(&order.uuid).await?;
        (view.phase == Some(PlacementPhase::StopInProgress)).then_some(())
    })
    .await;
    fleet.kill("container-manager");
    fleet.start_service("container-manager");
    fleet.services_are_ready().await;
    let view = mover.ends(&order.uuid).await;
    assert_eq!(
        view.status_code,
        PlacementStatus::Succeeded,
        "resumed: {view:?}"
    );
    let path = format!("/v1/services/{}", mover.service);
    let there = |view: &WorkView| {
        view.processes.len() == 1 && runs_on(view).as_deref() == Some(other(&from))
    };
    let moved = reaches(&ada, &path, LIMIT, there).await;

    // A placement that gets no space changes nothing.
    let mut filler = service(&["sleep", "1000"], 1);
    filler.size = Some(Size::memory(3 * GIB));
    let filler = submit(&ada, "services", &filler).await;
    let path_of_filler = format!("/v1/services/{filler}");
    reaches(&ada, &path_of_filler, LIMIT, |view| runs_on(view).is_some()).await;
    let order = mover.order(&from, 600_000).await;
    assert_eq!(order.phase, Some(PlacementPhase::Running), "{order:?}");
    fleet.kill("container-manager");
    fleet.start_service("container-manager");
    fleet.services_are_ready().await;
    let view = mover.ends(&order.uuid).await;
    assert_eq!(view.status_code, PlacementStatus::Failed);
    assert_eq!(view.reason_code, Some(PlacementReason::ManagerRestarted));
    let after: WorkView = ada.get(&path).await.expect("a service");
    assert_eq!(moved.processes, after.processes, "untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_requests_have_different_reasons() {
    let fleet = TestFleet::with_agents(1).await;
    let (mover, _, node) = up(&fleet, &["sleep", "1000"], GIB).await;
    let base = format!("/v1/deployments/{}/placements", mover.service);
    let code = async |client: &Client, path: &str, body: Value| -> Option<String> {
        let answer: Result<Value, _> = client.post(path, &body, None).await;
        let problem = answer.err()?.problem().cloned()?;
        let code = serde_json::to_value(problem.code).ok()?;
        code.as_str().map(str::to_owned)
    };
    let mine = &mover.client;
    let order = |extra: Value| {
        let mut all = json!({ "processor_id": "0", "destination_host": "LAST_SEEN" });
        let extra = extra.as_object().expect("a map").clone();
        all.as_object_mut().expect("a map").extend(extra);
        all
    };
    let uuid = "6f1c2a9e-3b7d-4c55-8a10-000000000001";
    let ben = fleet.client("container-manager", "user-ben");
    let not_found = Some("not_found".to_owned());
    let invalid = Some("invalid".to_owned());
    assert_eq!(
        code(&ben, &base, order(json!({}))).await,
        not_found,
        "not hers"
    );
    let nowhere = "/v1/deployments/svc_nobody/placements";
    assert_eq!(code(mine, nowhere, order(json!({}))).await, not_found);
    let bad = order(json!({ "destination_host": "../etc" }));
    assert_eq!(code(mine, &base, bad).await, invalid);
    assert_eq!(
        code(mine, &base, order(json!({ "uuid": "1" }))).await,
        invalid
    );
    let bad = order(json!({ "request_expiry_ms": 0 }));
    assert_eq!(code(mine, &base, bad).await, invalid);
    let first: PlacementView = mine
        .post(&base, &order(json!({ "uuid": uuid })), None)
        .await
        .expect("taken in");
    let other = order(json!({ "uuid": uuid, "destination_host": node }));
    assert_eq!(
        code(mine, &base, other).await,
        invalid,
        "the uuid stands for another"
    );
    let view = mover.ends(&first.uuid).await;
    assert_eq!(
        view.status_code,
        PlacementStatus::Succeeded,
        "restarted in place: {view:?}"
    );
    let unknown = order(json!({ "processor_id": "7" }));
    let view: PlacementView = mine.post(&base, &unknown, None).await.expect("a row");
    assert_eq!(view.reason_code, Some(PlacementReason::UnknownProcessor));
}
