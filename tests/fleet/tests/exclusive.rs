//! Exclusive work never runs twice, whatever makes it leave its node. The work is a program that
//! takes a lock, is slow to release it, and writes what it found (I4).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_container_manager_api::placements::{PlacementStatus, PlacementView};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission};
use hayward_job_converter_api::unreachable::{UnreachableChoice, UnreachableWord};
use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Pace, TestFleet, reaches, service, submit};
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
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&dir, open).expect("open to all");
        Self(dir)
    }

    /// Returns the command that takes the lock. A killed process leaves its lock behind, so `/proc`
    /// shows whether the holder lives.
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

    fn seen(&self) -> String {
        std::fs::read_to_string(self.0.join("seen")).unwrap_or_default()
    }

    fn was_taken_by(&self, allocation: &AllocationId) -> bool {
        let took = format!("took {allocation}");
        self.seen().lines().any(|line| line == took)
    }

    fn was_never_taken_twice(&self, road: &str) {
        let seen = self.seen();
        assert!(!seen.contains("twice"), "{road}: {seen}");
    }
}

struct Story {
    fleet: TestFleet,
    ada: Client,
    lock: Lock,
    id: WorkId,
}

impl Story {
    async fn new(nodes: u32, standbys: Option<u32>) -> Self {
        let mut fleet = TestFleet::at(Pace::patient()).await;
        for number in 1..=nodes {
            fleet.start_agent(&format!("node-{number}"), &Agent::default());
        }
        fleet.nodes_take_work(nodes as usize).await;
        let ada = fleet.client("job-converter", "user-ada");
        let lock = Lock::new(fleet.dir.path());
        let body = wanted(&lock, standbys);
        let id = submit(&ada, "services", &body).await;
        Self {
            fleet,
            ada,
            lock,
            id,
        }
    }

    /// Waits until the active runs as another allocation than `other` and has its lock. Returns its
    /// allocation and node.
    async fn runs(&self, road: &str, other: Option<&AllocationId>) -> (AllocationId, NodeName) {
        let path = format!("/v1/services/{}", self.id);
        let view = reaches(&self.ada, &path, LIMIT, |view| {
            active(view, other).is_some()
        });
        let (allocation, node) = active(&view.await, other).expect("just seen");
        until_within(
            &format!("{road}: {allocation} to start"),
            LIMIT,
            async || self.lock.was_taken_by(&allocation).then_some(()),
        )
        .await;
        self.lock.was_never_taken_twice(road);
        (allocation, node)
    }

    async fn places(&self, to: &str) {
        let client = self.fleet.client("container-manager", "user-ada");
        let path = format!("/v1/deployments/{}/placements", self.id);
        let order = json!({
            "processor_id": "0", "destination_host": to, "request_expiry_ms": 60_000,
        });
        // container-manager observes the end of a drain a little later.
        until_within("the order to be taken in", LIMIT, async || {
            let view: PlacementView = client.post(&path, &order, None).await.ok()?;
            (view.status_code != PlacementStatus::BadRequest).then_some(())
        })
        .await;
    }

    async fn blocks(&self, key: &str, mut order: Value) {
        let client = self.fleet.client("blocklist", "operator");
        order["action"] = json!("MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
        order["cause"] = json!("ECC errors");
        let _: Value = client.put(key, &order).await.expect("taken");
    }

    async fn unblocks(&self, key: &str) {
        let client = self.fleet.client("blocklist", "operator");
        let call = client.call(Method::DELETE, key);
        let _: Option<Value> = call.if_match_any().send().await.expect("removed");
    }

    async fn drains(&self, node: &NodeName, deadline_ms: Option<i64>) {
        let request = DrainRequest {
            reason: Some("new fan".to_owned()),
            deadline_ms,
            ..DrainRequest::default()
        };
        let client = self.fleet.client("node-status", "operator");
        let call = client.call(Method::PUT, format!("/v1/nodes/{node}/drain"));
        let call = call.body(&request).if_match_any();
        let _: DrainView = call.send().await.expect("taken");
    }

    async fn undrains(&self, node: &NodeName) {
        let client = self.fleet.client("node-status", "operator");
        let call = client.call(Method::DELETE, format!("/v1/nodes/{node}/drain"));
        let _: DrainView = call.if_match_any().send().await.expect("cancelled");
    }

    async fn redeploys(&self) {
        let path = format!("/v1/services/{}", self.id);
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let generation = view.deployment.expect("a deployment").generation;
        let mut body = wanted(&self.lock, None);
        let release = ("RELEASE".to_owned(), "2".to_owned());
        body.environment.extend([release]);
        let call = self.ada.call(Method::PUT, &path);
        let call = call.header(IF_MATCH, &format!("\"{generation}\""));
        let _: ServiceChanged = call.body(&body).send().await.expect("taken");
    }
}

fn wanted(lock: &Lock, standbys: Option<u32>) -> ServiceSubmission {
    ServiceSubmission {
        command: lock.command(),
        standbys,
        when_unreachable: Some(UnreachableChoice::Word(UnreachableWord::Exclusive)),
        ..service(&[], 1)
    }
}

fn active(view: &WorkView, other: Option<&AllocationId>) -> Option<(AllocationId, NodeName)> {
    let deployment = view.deployment.as_ref()?;
    let mut all = deployment.processors.iter();
    let allocation = all.find(|it| it.processor == "0")?.allocation.clone()?;
    let mut all = view.processes.iter();
    let process = all.find(|it| it.allocation == allocation && it.state == "running")?;
    (Some(&allocation) != other).then(|| (allocation, process.node.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_process_has_ended_before_its_successor_begins() {
    let story = Story::new(2, None).await;
    let (first, node) = story.runs("at first", None).await;

    let key = format!("/v1/blocklist/nodes/{node}");
    story.blocks(&key, json!({ "duration_ms": 600_000 })).await;
    let (second, _) = story.runs("node evacuated", Some(&first)).await;
    story.unblocks(&key).await;

    let key = format!("/v1/blocklist/workers/{second}");
    story.blocks(&key, json!({ "duration_ms": 600_000 })).await;
    let (third, node) = story.runs("worker evacuated", Some(&second)).await;

    let key = format!("/v1/blocklist/nodes/{node}");
    let scope = format!("JOB:{}", story.id);
    let order = json!({ "duration_ms": 600_000, "scope": scope });
    story.blocks(&key, order).await;
    let (fourth, node) = story.runs("blocked for the service", Some(&third)).await;
    story.unblocks(&format!("{key}?scope={scope}")).await;

    let key = format!("/v1/blocklist/nodes/{node}");
    let order = json!({
        "duration_ms": 600_000, "evacuation": { "policy": "GRACEFUL", "grace_ms": 600_000 },
    });
    story.blocks(&key, order).await;
    let (fifth, node) = story.runs("evacuated gracefully", Some(&fourth)).await;
    story.unblocks(&key).await;

    story.drains(&node, None).await;
    let (sixth, elsewhere) = story.runs("drained", Some(&fifth)).await;
    story.undrains(&node).await;

    story.drains(&elsewhere, Some(1)).await;
    let (seventh, node) = story.runs("drained by a deadline", Some(&sixth)).await;
    story.undrains(&elsewhere).await;
    story.fleet.nodes_take_work(2).await;

    let other = if node.as_str() == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    story.places(other).await;
    let (eighth, _) = story.runs("moved", Some(&seventh)).await;
    story.places("LAST_SEEN").await;
    let (ninth, _) = story.runs("restarted", Some(&eighth)).await;
    story.places("FORCE_RESTART_LAST_SEEN").await;
    let (tenth, _) = story.runs("restarted by force", Some(&ninth)).await;
    story.redeploys().await;
    story.runs("redeployed", Some(&tenth)).await;
    println!("{}", story.lock.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_active_has_ended_before_the_host_of_its_standby_takes_over() {
    let story = Story::new(3, Some(1)).await;
    let (first, node) = story.runs("at first", None).await;
    let path = format!("/v1/services/{}", story.id);
    reaches(&story.ada, &path, LIMIT, |view| {
        view.deployment.as_ref().is_some_and(|it| it.healthy)
    })
    .await;
    story.drains(&node, None).await;
    let (_, elsewhere) = story.runs("failed over", Some(&first)).await;
    assert_ne!(elsewhere, node);
    println!("{}", story.lock.seen());
}
