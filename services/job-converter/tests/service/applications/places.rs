//! Placement constraints and preemption flags of tasks reach the scheduler. Invalid ones are
//! refused.

use hayward_job_converter_api::applications::TaskAccepted;
use hayward_rm_scheduler_api::WaitReason;
use hayward_vocabulary::NodeName;
use http::Method;
use serde_json::{Value, json};

use super::{fixture, problem, put, put_task, task};

fn with(more: &Value) -> Value {
    let mut body = task();
    let fields = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_its_node_and_preemption_flags() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &json!({ "queueName": "root.a" })).await;
    let body = with(&json!({
        "requiredNode": "node-3", "preempts": false, "preemptable": false,
    }));
    put_task(&ann, "app", "there", &body).await;
    put_task(&ann, "app", "anywhere", &task()).await;
    fixture.judge_queue(WaitReason::Satisfied, false).await;
    let queued = fixture.requested("app", "there").await.queued.unwrap();
    let node = queued.required_node.as_ref().map(NodeName::as_str);
    assert_eq!(
        (node, queued.preempts, queued.preemptable),
        (Some("node-3"), false, false)
    );
    let queued = fixture.requested("app", "anywhere").await.queued.unwrap();
    assert_eq!(
        (queued.required_node, queued.preempts, queued.preemptable),
        (None, true, true)
    );
}

/// Placement constraints apply with and without a queue.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_respect_nodes_and_anti_affinity() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &json!({})).await;
    let body = with(&json!({ "machines": ["node-1", "node-2"], "apart": {} }));
    put_task(&ann, "app", "one", &body).await;
    put_task(
        &ann,
        "app",
        "two",
        &with(&json!({ "apart": { "byLabel": "rack" } })),
    )
    .await;
    let (one, two) = (
        fixture.requested("app", "one").await,
        fixture.requested("app", "two").await,
    );
    let machines: Vec<&str> = one.machines.iter().map(NodeName::as_str).collect();
    assert_eq!(machines, ["node-1", "node-2"]);
    let (one, two) = (one.apart.unwrap(), two.apart.unwrap());
    assert_eq!(one.group, two.group);
    assert_eq!(
        (one.by_label, two.by_label.as_deref()),
        (None, Some("rack"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_have_their_preemption_flags() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    let gang = json!({ "taskGroups": [group], "preempts": false, "preemptable": false });
    let (_, view) = put(&ann, "app", &gang).await;
    let work = view.task_groups[0].work.clone();
    let requested = hayward_testkit::until("demand of the gang", async || {
        fixture.demand().await.remove(work.as_str())
    });
    let queued = requested.await.queued.unwrap();
    assert_eq!((queued.preempts, queued.preemptable), (false, false));
    let other = json!({ "taskGroups": gang["taskGroups"] });
    let (_, view) = put(&ann, "app", &other).await;
    assert_eq!(view.ignored_fields, ["preempts", "preemptable"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_task_is_refused_with_all_faults() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "plain", &json!({})).await;
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    put(&ann, "gang", &json!({ "taskGroups": [group] })).await;
    let wishes = json!({
        "machines": ["node-1"], "requiredNode": "node-3", "preempts": false,
        "preemptable": true, "apart": { "byLabel": "" },
    });
    let mut of_group = with(&wishes);
    of_group["taskGroupName"] = json!("g");
    for (id, body, expected) in [
        (
            "plain",
            with(&wishes),
            vec![
                "/apart/byLabel",
                "/requiredNode",
                "/preempts",
                "/preemptable",
            ],
        ),
        (
            "gang",
            of_group,
            vec!["/apart/byLabel", "/machines", "/requiredNode", "/apart"],
        ),
    ] {
        let path = format!("/v1/applications/{id}/tasks/t");
        let call = ann.call(Method::PUT, path).body(&body);
        let (status, reported) = problem(call.answer::<TaskAccepted>().await);
        let faults = reported["errors"].as_array().unwrap();
        let pointers: Vec<&str> = faults
            .iter()
            .map(|it| it["pointer"].as_str().unwrap())
            .collect();
        assert_eq!((status, pointers), (422, expected), "{id}");
    }
}

/// The tag would bypass all rules. The response warns that it has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_asks_for_a_recovery_queue_is_answered() {
    let fixture = fixture().await;
    let tags = json!({ "tags": { "application.create.force": "true" } });
    let (status, view) = put(&fixture.user("ann"), "app", &tags).await;
    assert_eq!(status, 201);
    assert!(
        view.warnings[0]
            .message
            .contains("application.create.force")
    );
}
