//! Tests that the placement constraints and preemption flags of tasks reach the scheduler, and that
//! invalid ones are refused.

use hayward_job_converter_api::applications::TaskAccepted;
use hayward_rm_scheduler_api::WaitReason;
use hayward_vocabulary::NodeName;
use http::Method;
use serde_json::{Value, json};

use super::{expect_problem, fixture, put_application, put_task, task_body};

fn task_with(fields: &Value) -> Value {
    let mut body = task_body();
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demand_of_a_task_has_its_required_node_and_preemption_flags() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({ "queueName": "root.a" })).await;
    let body = task_with(&json!({
        "requiredNode": "node-3", "preempts": false, "preemptable": false,
    }));
    put_task(&ann, "app", "there", &body).await;
    put_task(&ann, "app", "anywhere", &task_body()).await;
    fixture
        .publish_queue_verdict(WaitReason::Satisfied, false)
        .await;
    let queued = fixture.task_demand("app", "there").await.queued.unwrap();
    let node = queued.required_node.as_ref().map(NodeName::as_str);
    assert_eq!(
        (node, queued.preempts, queued.preemptable),
        (Some("node-3"), false, false)
    );
    let queued = fixture.task_demand("app", "anywhere").await.queued.unwrap();
    assert_eq!(
        (queued.required_node, queued.preempts, queued.preemptable),
        (None, true, true)
    );
}

/// Placement constraints apply with and without a queue.
#[tokio::test(flavor = "multi_thread")]
async fn the_demand_of_a_task_has_its_nodes_and_anti_affinity() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    let body = task_with(&json!({ "machines": ["node-1", "node-2"], "apart": {} }));
    put_task(&ann, "app", "one", &body).await;
    put_task(
        &ann,
        "app",
        "two",
        &task_with(&json!({ "apart": { "byLabel": "rack" } })),
    )
    .await;
    let (first, second) = (
        fixture.task_demand("app", "one").await,
        fixture.task_demand("app", "two").await,
    );
    let machines: Vec<&str> = first.machines.iter().map(NodeName::as_str).collect();
    assert_eq!(machines, ["node-1", "node-2"]);
    let (first, second) = (first.apart.unwrap(), second.apart.unwrap());
    assert_eq!(first.group, second.group);
    assert_eq!(
        (first.by_label, second.by_label.as_deref()),
        (None, Some("rack"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demand_of_placeholders_has_their_preemption_flags() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    let gang = json!({ "taskGroups": [group], "preempts": false, "preemptable": false });
    let (_, view) = put_application(&ann, "app", &gang).await;
    let work = view.task_groups[0].work.clone();
    let demand = hayward_testkit::until("demand of the gang", async || {
        fixture.demand().await.remove(work.as_str())
    });
    let queued = demand.await.queued.unwrap();
    assert_eq!((queued.preempts, queued.preemptable), (false, false));
    let other = json!({ "taskGroups": gang["taskGroups"] });
    let (_, view) = put_application(&ann, "app", &other).await;
    assert_eq!(view.ignored_fields, ["preempts", "preemptable"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_task_is_refused_with_all_faults() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "plain", &json!({})).await;
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    put_application(&ann, "gang", &json!({ "taskGroups": [group] })).await;
    let constraints = json!({
        "machines": ["node-1"], "requiredNode": "node-3", "preempts": false,
        "preemptable": true, "apart": { "byLabel": "" },
    });
    let mut task_in_group = task_with(&constraints);
    task_in_group["taskGroupName"] = json!("g");
    for (id, body, expected) in [
        (
            "plain",
            task_with(&constraints),
            vec![
                "/apart/byLabel",
                "/requiredNode",
                "/preempts",
                "/preemptable",
            ],
        ),
        (
            "gang",
            task_in_group,
            vec!["/apart/byLabel", "/machines", "/requiredNode", "/apart"],
        ),
    ] {
        let path = format!("/v1/applications/{id}/tasks/t");
        let call = ann.call(Method::PUT, path).body(&body);
        let (status, problem) = expect_problem(call.send_for_response::<TaskAccepted>().await);
        let faults = problem["errors"].as_array().unwrap();
        let pointers: Vec<&str> = faults
            .iter()
            .map(|it| it["pointer"].as_str().unwrap())
            .collect();
        assert_eq!((status, pointers), (422, expected), "{id}");
    }
}
