//! Two processes of exclusive work never run at once, whatever makes the work leave its node. The
//! work is a program that takes a lock, releases it slowly, and records both in a file (I4).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_container_manager_api::placements::{PlacementStatus, PlacementView};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission};
use hayward_job_converter_api::unreachable::{UnreachableChoice, UnreachableWord};
use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, TestFleet, Timing, service, submit, wait_for_view};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use http::Method;
use http::header::IF_MATCH;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);

/// Folder with a lock for each processor and the observations of its holders.
struct Lock(PathBuf);

impl Lock {
    fn new(dir: &Path) -> Self {
        let dir = dir.join("lock");
        std::fs::create_dir_all(&dir).expect("a folder");
        // Programs may run under another account.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&dir, permissions).expect("permissions are set");
        Self(dir)
    }

    /// Returns the command that takes the lock. A process records `twice` if another live process
    /// holds the lock, then `took`, and `left` at its end. A killed process leaves its lock behind,
    /// so the command checks in `/proc` whether the holder lives.
    fn command(&self) -> Vec<String> {
        let dir = self.0.display();
        let script = format!(
            "lock={dir}/$HAYWARD_PROCESSOR.lock; \
             say() {{ echo \"$1 $HAYWARD_ALLOCATION\" >> {dir}/seen; }}; \
             if ! (set -C; echo $$ > $lock) 2>/dev/null; then \
             if [ -d /proc/$(cat $lock) ]; then say twice; fi; echo $$ > $lock; fi; \
             say took; \
             trap 'sleep 1.5; rm -f $lock; say left; exit 0' TERM; \
             while :; do sleep 0.05; done"
        );
        vec!["sh".into(), "-c".into(), script]
    }

    fn observations(&self) -> String {
        std::fs::read_to_string(self.0.join("seen")).unwrap_or_default()
    }

    fn was_taken_by(&self, allocation: &AllocationId) -> bool {
        let expected_line = format!("took {allocation}");
        self.observations()
            .lines()
            .any(|line| line == expected_line)
    }

    fn assert_never_taken_twice(&self, step: &str) {
        let observations = self.observations();
        assert!(!observations.contains("twice"), "{step}: {observations}");
    }
}

struct Setup {
    fleet: TestFleet,
    ada: Client,
    lock: Lock,
    service: WorkId,
}

impl Setup {
    async fn new(nodes: u32, standbys: Option<u32>) -> Self {
        let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
        for number in 1..=nodes {
            fleet.start_agent(&format!("node-{number}"), &Agent::default());
        }
        fleet.wait_until_nodes_take_work(nodes as usize).await;
        let ada = fleet.client("job-converter", "user-ada");
        let lock = Lock::new(fleet.dir.path());
        let body = exclusive_service(&lock, standbys);
        let id = submit(&ada, "services", &body).await;
        Self {
            fleet,
            ada,
            lock,
            service: id,
        }
    }

    /// Waits until the active runs as another allocation than `previous` and has taken the lock.
    /// Returns the allocation and node of the active. `step` is a text for messages.
    async fn await_active(
        &self,
        step: &str,
        previous: Option<&AllocationId>,
    ) -> (AllocationId, NodeName) {
        let path = format!("/v1/services/{}", self.service);
        let view = wait_for_view(&self.ada, &path, LIMIT, |view| {
            find_active(view, previous).is_some()
        });
        let (allocation, node) = find_active(&view.await, previous).expect("checked above");
        until_within(
            &format!("{step}: {allocation} to start"),
            LIMIT,
            async || self.lock.was_taken_by(&allocation).then_some(()),
        )
        .await;
        self.lock.assert_never_taken_twice(step);
        (allocation, node)
    }

    async fn request_placement(&self, destination: &str) {
        let client = self.fleet.client("container-manager", "user-ada");
        let path = format!("/v1/deployments/{}/placements", self.service);
        let request = json!({
            "processor_id": "0", "destination_host": destination, "request_expiry_ms": 60_000,
        });
        // container-manager observes the end of a drain a little later and refuses until then.
        until_within("the placement request to be accepted", LIMIT, async || {
            let view: PlacementView = client.post(&path, &request, None).await.ok()?;
            (view.status_code != PlacementStatus::BadRequest).then_some(())
        })
        .await;
    }

    async fn block(&self, path: &str, mut request: Value) {
        let client = self.fleet.client("blocklist", "operator");
        request["action"] = json!("MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
        request["cause"] = json!("ECC errors");
        let _: Value = client.put(path, &request).await.expect("accepted");
    }

    async fn unblock(&self, path: &str) {
        let client = self.fleet.client("blocklist", "operator");
        let call = client.call(Method::DELETE, path);
        let _: Option<Value> = call.if_match_any().send().await.expect("removed");
    }

    async fn drain(&self, node: &NodeName, deadline_ms: Option<i64>) {
        let request = DrainRequest {
            reason: Some("new fan".to_owned()),
            deadline_ms,
            ..DrainRequest::default()
        };
        let client = self.fleet.client("node-status", "operator");
        let call = client.call(Method::PUT, format!("/v1/nodes/{node}/drain"));
        let call = call.body(&request).if_match_any();
        let _: DrainView = call.send().await.expect("accepted");
    }

    async fn cancel_drain(&self, node: &NodeName) {
        let client = self.fleet.client("node-status", "operator");
        let call = client.call(Method::DELETE, format!("/v1/nodes/{node}/drain"));
        let _: DrainView = call.if_match_any().send().await.expect("cancelled");
    }

    async fn redeploy(&self) {
        let path = format!("/v1/services/{}", self.service);
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let generation = view.deployment.expect("a deployment").generation;
        let mut body = exclusive_service(&self.lock, None);
        let release = ("RELEASE".to_owned(), "2".to_owned());
        body.environment.extend([release]);
        let call = self.ada.call(Method::PUT, &path);
        let call = call.header(IF_MATCH, &format!("\"{generation}\""));
        let _: ServiceChanged = call.body(&body).send().await.expect("accepted");
    }
}

fn exclusive_service(lock: &Lock, standbys: Option<u32>) -> ServiceSubmission {
    ServiceSubmission {
        command: lock.command(),
        standbys,
        when_unreachable: Some(UnreachableChoice::Word(UnreachableWord::Exclusive)),
        ..service(&[], 1)
    }
}

fn find_active(
    view: &WorkView,
    previous: Option<&AllocationId>,
) -> Option<(AllocationId, NodeName)> {
    let deployment = view.deployment.as_ref()?;
    let mut processors = deployment.processors.iter();
    let allocation = processors
        .find(|it| it.processor == "0")?
        .allocation
        .clone()?;
    let mut processes = view.processes.iter();
    let process = processes.find(|it| it.allocation == allocation && it.state == "running")?;
    (Some(&allocation) != previous).then(|| (allocation, process.node.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_process_has_ended_before_its_successor_begins() {
    let setup = Setup::new(2, None).await;
    let (first, node) = setup.await_active("at first", None).await;

    let path = format!("/v1/blocklist/nodes/{node}");
    setup.block(&path, json!({ "duration_ms": 600_000 })).await;
    let (second, _) = setup.await_active("node evacuated", Some(&first)).await;
    setup.unblock(&path).await;

    let path = format!("/v1/blocklist/workers/{second}");
    setup.block(&path, json!({ "duration_ms": 600_000 })).await;
    let (third, node) = setup.await_active("worker evacuated", Some(&second)).await;

    let path = format!("/v1/blocklist/nodes/{node}");
    let scope = format!("JOB:{}", setup.service);
    let request = json!({ "duration_ms": 600_000, "scope": scope });
    setup.block(&path, request).await;
    let (fourth, node) = setup
        .await_active("blocked for the service", Some(&third))
        .await;
    setup.unblock(&format!("{path}?scope={scope}")).await;

    let path = format!("/v1/blocklist/nodes/{node}");
    let request = json!({
        "duration_ms": 600_000, "evacuation": { "policy": "GRACEFUL", "grace_ms": 600_000 },
    });
    setup.block(&path, request).await;
    let (fifth, node) = setup
        .await_active("evacuated gracefully", Some(&fourth))
        .await;
    setup.unblock(&path).await;

    setup.drain(&node, None).await;
    let (sixth, other_node) = setup.await_active("drained", Some(&fifth)).await;
    setup.cancel_drain(&node).await;

    setup.drain(&other_node, Some(1)).await;
    let (seventh, node) = setup
        .await_active("drained by a deadline", Some(&sixth))
        .await;
    setup.cancel_drain(&other_node).await;
    setup.fleet.wait_until_nodes_take_work(2).await;

    let idle_node = if node.as_str() == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    setup.request_placement(idle_node).await;
    let (eighth, _) = setup.await_active("moved", Some(&seventh)).await;
    setup.request_placement("LAST_SEEN").await;
    let (ninth, _) = setup.await_active("restarted", Some(&eighth)).await;
    setup.request_placement("FORCE_RESTART_LAST_SEEN").await;
    let (tenth, _) = setup.await_active("restarted by force", Some(&ninth)).await;
    setup.redeploy().await;
    setup.await_active("redeployed", Some(&tenth)).await;
    println!("{}", setup.lock.observations());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_active_has_ended_before_the_host_of_its_standby_takes_over() {
    let setup = Setup::new(3, Some(1)).await;
    let (first, node) = setup.await_active("at first", None).await;
    let path = format!("/v1/services/{}", setup.service);
    wait_for_view(&setup.ada, &path, LIMIT, |view| {
        view.deployment.as_ref().is_some_and(|it| it.healthy)
    })
    .await;
    setup.drain(&node, None).await;
    let (_, other_node) = setup.await_active("failed over", Some(&first)).await;
    assert_ne!(other_node, node);
    println!("{}", setup.lock.observations());
}
