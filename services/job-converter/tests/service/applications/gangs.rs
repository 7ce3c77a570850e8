//! Tests of gangs, which are requested, stored and released as a whole. Each gang is one task group
//! `g`. The counters of a group are the numbers of placeholders that were created, replaced, and
//! ended otherwise.

mod interrupted_replacements;

use std::collections::BTreeMap;

use hayward_job_converter_api::DemandEntry;
use hayward_job_converter_api::applications::{ApplicationView, TaskAccepted};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause, WorkKind};
use http::Method;
use serde_json::{Value, json};

use super::{
    expect_problem, fixture, fixture_with_short_lease, put_application, put_task,
    task_body_of_group,
};
use crate::fixture::Fixture;

/// Returns an application with one task group and these policy parameters.
fn gang(policy: &str, members: u32) -> Value {
    json!({
        "queueName": "root.a",
        "priority": 7,
        "schedulingPolicyParameters": policy,
        "taskGroups": [{
            "name": "g", "minMember": members,
            "minResource": { "cpu": "500m", "memory": "1Gi" },
        }],
    })
}

impl Fixture {
    async fn group_demand(&self, id: &str) -> DemandEntry {
        until("demand of the group", async || {
            let view = self.application(id).await;
            self.demand()
                .await
                .remove(view.task_groups[0].work.as_str())
        })
        .await
    }

    async fn wait_for_group_demand(&self, id: &str, members: u64) -> DemandEntry {
        until(&format!("{members} of the group wanted"), async || {
            let view = self.application(id).await;
            let entry = self
                .demand()
                .await
                .remove(view.task_groups[0].work.as_str());
            entry.filter(|it| it.max_processes == members)
        })
        .await
    }

    /// Grants members one after the other. The real scheduler grants all in one commit, and both
    /// must work.
    async fn grant_gang(&self, id: &str) -> Vec<AllocationEntry> {
        let demand = self.group_demand(id).await;
        let nodes = (0..demand.max_processes).map(|number| format!("node-{number}"));
        nodes
            .map(|node| self.scheduler.grant_on(&demand, &node))
            .collect()
    }

    async fn wait_for_counters(&self, id: &str, expected: (u32, u32, u32)) -> ApplicationView {
        self.wait_for_application(id, &format!("counters {expected:?}"), |view| {
            let group = &view.task_groups[0];
            (group.count, group.replaced, group.timedout) == expected
        })
        .await
    }
}

/// Vacates and ends an allocation.
fn end_allocation(entry: &AllocationEntry, reason: VacateReason, fixture: &Fixture) {
    let entry = fixture.scheduler.vacate_for(entry, reason);
    let cause = match reason {
        VacateReason::NodeLost => ExitCause::Node,
        _ => ExitCause::Intended,
    };
    fixture.scheduler.end(&entry, Exit::of(cause, "ended"));
}

/// The gang is requested as a whole, held and replaced, and the counters match.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_replace_the_placeholders_of_a_complete_gang() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 2)).await;
    for name in ["a", "b"] {
        put_task(&ann, "app", name, &task_body_of_group("g")).await;
    }
    let demand = fixture.group_demand("app").await;
    let queued = demand.queued.clone().unwrap();
    assert_eq!(queued.gang.as_ref().map(|it| it.min), Some(2));
    assert_eq!(
        (queued.queue.as_deref(), queued.priority),
        (Some("root.a"), 7)
    );
    assert_eq!((demand.kind, demand.max_processes), (WorkKind::Job, 2));
    assert!(demand.launch.is_none());
    // The scheduler has not considered the gang yet.
    let view = fixture.application("app").await;
    assert_eq!(view.state, "Submitted");
    fixture
        .scheduler
        .publish_verdict(&demand.work, WaitReason::GangIncomplete, false);
    fixture
        .wait_for_states("app", "Reserving", "Accepted")
        .await;
    assert_eq!(
        fixture.demand().await.len(),
        1,
        "no task is requested while the application reserves"
    );
    let placeholders = fixture.grant_gang("app").await;
    let view = fixture.wait_for_states("app", "Running", "Running").await;
    assert_eq!(view.task_groups[0].held, 2);
    let mut placed = BTreeMap::new();
    for name in ["a", "b"] {
        let demand = fixture.task_demand("app", name).await;
        let placeholder_id = demand.part.clone().unwrap().replaces.unwrap();
        let placeholder = placeholders
            .iter()
            .find(|it| it.id == placeholder_id)
            .unwrap();
        assert!(placed.insert(placeholder_id, demand.work.clone()).is_none());
        // The scheduler makes the exchange in one commit.
        let process = fixture
            .scheduler
            .grant_on(&demand, placeholder.node.as_str());
        end_allocation(placeholder, VacateReason::Replaced, &fixture);
        fixture.wait_for_task("app", name, "Bound").await;
        assert_eq!(process.node, placeholder.node);
    }
    let view = fixture.wait_for_counters("app", (2, 2, 0)).await;
    assert_eq!(view.task_groups[0].held, 0);
    assert_eq!(
        fixture.demand().await.len(),
        2,
        "the group asks for nothing any more"
    );
    assert_eq!(view.scheduling_state.as_deref(), Some("Running"));
}

/// A granted gang counts from its grant on, even before the next tick.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_gang_reserves_as_soon_as_it_is_accepted() {
    let fixture = Fixture::with_settings(|settings| settings.application_tick_ms = 700).await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 2)).await;
    fixture.grant_gang("app").await;
    let view = fixture.wait_for_states("app", "Running", "Running").await;
    let time_of = |state: &str| {
        let mut log = view.state_log.iter();
        let entry = log.find(|it| it.machine == "application" && it.state == state);
        entry.map(|it| it.at).unwrap()
    };
    assert_eq!(time_of("Accepted"), time_of("Reserving"));
}

/// All members are lost with their nodes. New members are requested and the owner is warned.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_lost_all_its_tasks_at_once_is_repaired() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 2)).await;
    for name in ["a", "b"] {
        put_task(&ann, "app", name, &task_body_of_group("g")).await;
    }
    let placeholders = fixture.grant_gang("app").await;
    let mut processes = Vec::new();
    for name in ["a", "b"] {
        let demand = fixture.task_demand("app", name).await;
        let placeholder_id = demand.part.clone().unwrap().replaces.unwrap();
        let placeholder = placeholders
            .iter()
            .find(|it| it.id == placeholder_id)
            .unwrap();
        processes.push(
            fixture
                .scheduler
                .grant_on(&demand, placeholder.node.as_str()),
        );
        end_allocation(placeholder, VacateReason::Replaced, &fixture);
        fixture.wait_for_task("app", name, "Bound").await;
    }
    for process in &processes {
        end_allocation(process, VacateReason::NodeLost, &fixture);
    }
    for name in ["a", "b"] {
        fixture.wait_for_task("app", name, "Killed").await;
    }
    let demand = fixture.wait_for_group_demand("app", 2).await;
    let view = fixture.wait_for_states("app", "Running", "Running").await;
    assert!(view.timers.contains_key("gang_repair"));
    // Both losses may be absorbed together, with one warning.
    assert!(!view.warnings.is_empty());
    for node in ["node-7", "node-8"] {
        fixture.scheduler.grant_on(&demand, node);
    }
    let view = fixture.wait_for_counters("app", (4, 2, 0)).await;
    assert_eq!(view.task_groups[0].held, 2);
    assert!(view.timers.contains_key("placeholder"));
    put_task(&ann, "app", "c", &task_body_of_group("g")).await;
    let demand = fixture.task_demand("app", "c").await;
    assert!(demand.part.unwrap().replaces.is_some());
}

/// The gang needs one member less after its owner returns a placeholder.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_needs_one_member_less_after_its_owner_completes_a_placeholder() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 3)).await;
    fixture.grant_gang("app").await;
    let view = fixture.wait_for_states("app", "Running", "Running").await;
    let placeholder = view.placeholders[0].id.clone();
    let path = format!("/v1/applications/app/tasks/{placeholder}/transitions");
    let call = fixture.user("bob").call(Method::POST, &path);
    let call = call.body(&json!({ "event": "complete" }));
    let refused =
        call.send_for_response::<hayward_job_converter_api::applications::TransitionResult>();
    assert_eq!(expect_problem(refused.await).0, 404);
    let result = super::transition(&ann, &format!("app/tasks/{placeholder}"), "complete").await;
    assert_eq!(
        (result.applied, result.state.as_deref()),
        (true, Some("Completed"))
    );
    let group = fixture.wait_for_group_demand("app", 2).await;
    assert_eq!(group.queued.unwrap().gang.map(|it| it.min), Some(2));
    let view = fixture.wait_for_counters("app", (3, 0, 1)).await;
    assert_eq!(view.task_groups[0].held, 2);
    assert!(!view.timers.contains_key("gang_repair"));
}

/// The scheduler refuses the gang, and the application shows its reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_can_never_fit_is_rejected_with_the_reason() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 3)).await;
    let demand = fixture.group_demand("app").await;
    fixture
        .scheduler
        .publish_verdict(&demand.work, WaitReason::QueueQuota, true);
    let view = fixture.wait_for_states("app", "Failed", "Rejected").await;
    let failure = view.failure.unwrap();
    assert_eq!(failure.code, "rejected");
    assert!(failure.message.contains("99 GiB"), "{failure:?}");
    assert!(fixture.demand().await.is_empty());
    let late = ann.call(Method::PUT, "/v1/applications/app/tasks/t");
    let (status, problem) = expect_problem(
        late.body(&task_body_of_group("g"))
            .send_for_response::<TaskAccepted>()
            .await,
    );
    assert_eq!(
        (status, problem["failureCode"].as_str()),
        (409, Some("rejected"))
    );
    // The id can be used again.
    let path = "/v1/applications/app";
    ann.call(Method::DELETE, path)
        .send_for_response::<()>()
        .await
        .unwrap();
    assert_eq!(put_application(&ann, "app", &gang("", 1)).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_group_is_refused_or_dropped_if_the_request_is_not_strict() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let mut body = gang("", 0);
    body["taskGroups"][0]["nodeSelector"] = json!({ "zone": "a" });
    let call = ann.call(Method::PUT, "/v1/applications/app").body(&body);
    let (status, problem) = expect_problem(call.send_for_response::<ApplicationView>().await);
    assert_eq!(status, 422);
    let pointers: Vec<&str> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(
        pointers,
        ["/taskGroups/0/nodeSelector", "/taskGroups/0/minMember"]
    );
    let (status, view) = put_application(&ann, "app?strict=false", &body).await;
    assert_eq!(status, 201);
    assert!(view.task_groups.is_empty() && view.warnings.len() == 2);
}

/// With the soft style, placeholders are released and the tasks continue one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_soft_timeout_runs_the_application_without_its_gang() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(
        &ann,
        "app",
        &gang("placeholderTimeoutInSeconds=1 gangAdmission=Partial", 3),
    )
    .await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let demand = fixture.group_demand("app").await;
    let gang = demand.queued.clone().unwrap().gang.unwrap();
    assert_eq!(gang.min, 0, "members are granted one by one");
    let placeholders = [
        fixture.scheduler.grant_on(&demand, "node-1"),
        fixture.scheduler.grant_on(&demand, "node-2"),
    ];
    fixture
        .wait_for_application("app", "two held", |view| view.task_groups[0].held == 2)
        .await;
    let view = fixture.wait_for_counters("app", (3, 0, 3)).await;
    let states: Vec<&str> = view
        .state_log
        .iter()
        .filter(|it| it.machine == "scheduling")
        .map(|it| it.state.as_str())
        .collect();
    assert_eq!(states[..3], ["Accepted", "Resuming", "Accepted"]);
    let demand = fixture.task_demand("app", "a").await;
    assert!(demand.part.unwrap().replaces.is_none());
    assert_eq!(fixture.demand().await.len(), 1);
    for placeholder in &placeholders {
        end_allocation(placeholder, VacateReason::WorkGone, &fixture);
        fixture.scheduler.remove(placeholder);
    }
    fixture.wait_for_counters("app", (3, 0, 3)).await;
}

/// An application without any grant fails with its code.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_admission_timeout_fails_the_application_and_its_id_stays() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let policy = "gangAdmissionTimeoutInSeconds=1 gangSchedulingStyle=Hard";
    put_application(&ann, "app", &gang(policy, 2)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let demand = fixture.group_demand("app").await;
    fixture
        .scheduler
        .publish_verdict(&demand.work, WaitReason::GangIncomplete, false);
    let view = fixture.wait_for_states("app", "Failed", "Failed").await;
    assert_eq!(view.failure.unwrap().code, "gang_timeout");
    assert_eq!(view.tasks[0].state, "Failed");
    assert!(fixture.demand().await.is_empty());
    let late = ann.call(Method::PUT, "/v1/applications/app/tasks/t");
    let (status, problem) = expect_problem(
        late.body(&task_body_of_group("g"))
            .send_for_response::<TaskAccepted>()
            .await,
    );
    assert_eq!(
        (status, problem["failureCode"].as_str()),
        (409, Some("gang_timeout"))
    );
    assert_eq!(put_application(&ann, "app", &gang(policy, 2)).await.0, 200);
}

/// The task needs more than its placeholders hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_larger_than_its_group_is_placed_on_its_own() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 2)).await;
    let mut large = task_body_of_group("g");
    large["resources"] = json!({ "cpu": "500m", "memory": "4Gi", "licence": "1" });
    put_task(&ann, "app", "large", &large).await;
    fixture.grant_gang("app").await;
    let view = fixture.wait_for_counters("app", (2, 0, 2)).await;
    assert!(view.warnings[0].message.contains("placeholder_mismatch"));
    assert!(view.warnings[0].message.contains("licence"));
    let demand = fixture.task_demand("app", "large").await;
    assert!(demand.part.unwrap().replaces.is_none());
    assert_eq!(fixture.demand().await.len(), 1);
}

/// A lost placeholder is requested again while the others are held (I13).
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_lost_a_member_is_repaired_or_released_whole() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "repaired", &gang("", 2)).await;
    put_application(&ann, "released", &gang("gangRepairInSeconds=0", 2)).await;
    let granted = fixture.grant_gang("repaired").await;
    let released = fixture.grant_gang("released").await;
    fixture
        .wait_for_states("repaired", "Running", "Running")
        .await;
    fixture
        .wait_for_states("released", "Running", "Running")
        .await;
    end_allocation(&granted[0], VacateReason::NodeLost, &fixture);
    let view = fixture.wait_for_counters("repaired", (2, 0, 1)).await;
    assert!(view.timers.contains_key("gang_repair"));
    let demand = fixture.wait_for_group_demand("repaired", 2).await;
    assert!(demand.settled.contains(&granted[0].id));
    fixture.scheduler.grant_on(&demand, "node-9");
    let view = fixture.wait_for_counters("repaired", (3, 0, 1)).await;
    assert_eq!(view.task_groups[0].held, 2);
    assert!(!view.timers.contains_key("gang_repair"));

    end_allocation(&released[1], VacateReason::NodeLost, &fixture);
    let view = fixture
        .wait_for_states("released", "Failed", "Failed")
        .await;
    assert_eq!(view.failure.unwrap().code, "gang_short");
}

/// The placeholder is lost before it is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_that_is_lost_before_the_exchange_leaves_its_task_waiting() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 1)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let placeholders = fixture.grant_gang("app").await;
    let demand = fixture.task_demand("app", "a").await;
    let replaced = demand.part.unwrap().replaces;
    assert_eq!(replaced, Some(placeholders[0].id.clone()));
    end_allocation(&placeholders[0], VacateReason::NodeLost, &fixture);
    // A placeholder is requested again, and the task replaces that one.
    let again = until("another placeholder wanted", async || {
        let entry = fixture.group_demand("app").await;
        Some(entry).filter(|it| it.settled.contains(&placeholders[0].id))
    })
    .await;
    let placeholder = fixture.scheduler.grant_on(&again, "node-7");
    until("the task to follow it", async || {
        let demand = fixture.task_demand("app", "a").await;
        demand.part?.replaces.filter(|it| *it == placeholder.id)
    })
    .await;
}

/// Unused placeholders are released when their application completes.
#[tokio::test(flavor = "multi_thread")]
async fn unused_placeholders_end_with_their_application() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 3)).await;
    fixture.grant_gang("app").await;
    fixture.wait_for_states("app", "Running", "Running").await;
    assert!(super::transition(&ann, "app", "complete").await.applied);
    let view = fixture.wait_for_counters("app", (3, 0, 3)).await;
    assert_eq!(view.state, "Completed");
    assert!(fixture.demand().await.is_empty());
}

/// The service crashes while reserving and during a replacement.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_the_middle_of_a_gang_changes_nothing() {
    let mut fixture = fixture_with_short_lease().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("placeholderTimeoutInSeconds=600", 2)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let demand = fixture.group_demand("app").await;
    let first = fixture.scheduler.grant_on(&demand, "node-1");
    fixture
        .wait_for_application("app", "one held", |view| view.task_groups[0].held == 1)
        .await;
    let before = fixture.application("app").await;
    fixture.kill_and_restart().await;
    let after = fixture
        .wait_for_application("app", "it is read", |view| view.why == before.why)
        .await;
    assert_eq!(
        (after.timers, after.placeholders),
        (before.timers, before.placeholders)
    );
    fixture.scheduler.grant_on(&demand, "node-2");
    let demand = fixture.task_demand("app", "a").await;
    let chosen = demand.part.unwrap().replaces.unwrap();
    fixture.kill_and_restart().await;
    let again = fixture.task_demand("app", "a").await;
    let again_chosen = again.part.as_ref().and_then(|part| part.replaces.as_ref());
    assert_eq!(again_chosen, Some(&chosen));
    let process = fixture.scheduler.grant_on(&again, "node-1");
    if first.id == chosen {
        end_allocation(&first, VacateReason::Replaced, &fixture);
    }
    fixture.wait_for_task("app", "a", "Bound").await;
    let view = fixture.wait_for_counters("app", (2, 1, 0)).await;
    assert_eq!(view.tasks[0].allocation.as_ref(), Some(&process.id));
    let group = fixture.wait_for_group_demand("app", 1).await;
    assert_eq!(group.queued.unwrap().gang.map(|it| it.min), Some(1));
    let settled = group.settled;
    assert!(first.id != chosen || settled.contains(&first.id));
    fixture.kill_and_restart().await;
    let settled_later = fixture.wait_for_group_demand("app", 1).await.settled;
    assert_eq!(settled_later, settled, "an end is settled once");
}
