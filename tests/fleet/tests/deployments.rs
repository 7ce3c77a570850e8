//! Long-running services on real processes. An active fails over to the node of its standby when
//! its own node is lost. Failures are counted until a service is degraded or has failed (container
//! placement, Standbys).

use std::collections::BTreeSet;
use std::time::Duration;

use hayward_job_converter_api::processors::{
    Deployment, ProcessorState, ProcessorView, RetriesSubmission,
};
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_tests_fleet::{Marks, TestFleet, reaches, service, submit};
use hayward_vocabulary::{AllocationId, NodeName};

const LIMIT: Duration = Duration::from_mins(1);

fn processor<'d>(deployment: &'d Deployment, name: &str) -> &'d ProcessorView {
    let mut all = deployment.processors.iter();
    all.find(|it| it.processor == name).expect("a processor")
}

/// Asserts that processors that need separate hosts never share one.
fn is_apart(view: &WorkView) {
    let deployment = view.deployment.as_ref().expect("processors");
    let placed = deployment.processors.iter();
    let hosts: Vec<&NodeName> = placed
        .filter(|it| it.allocation.is_some())
        .filter_map(|it| it.host.as_ref())
        .collect();
    let distinct: BTreeSet<&&NodeName> = hosts.iter().collect();
    assert_eq!(distinct.len(), hosts.len(), "two on one node: {view:?}");
}

/// Waits until both processors run, the active as another allocation than `before`.
async fn both_run(
    ada: &Client,
    path: &str,
    before: Option<&AllocationId>,
) -> (ProcessorView, ProcessorView) {
    let view = reaches(ada, path, LIMIT, |view| {
        is_apart(view);
        let deployment = view.deployment.as_ref().expect("processors");
        deployment.healthy && processor(deployment, "0").allocation.as_ref() != before
    })
    .await;
    let deployment = view.deployment.expect("processors");
    let processor_named = |name| processor(&deployment, name).clone();
    (processor_named("0"), processor_named("0-0"))
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_38_the_host_of_the_standby_takes_over() {
    let mut fleet = TestFleet::with_agents(3).await;
    let ada = fleet.client("job-converter", "user-ada");
    let marks = Marks::new(fleet.dir.path(), "echo");
    let body = ServiceSubmission {
        command: marks.command(),
        standbys: Some(1),
        retries: Some(RetriesSubmission::default()),
        ..service(&[], 1)
    };
    let id = submit(&ada, "services", &body).await;
    let path = format!("/v1/services/{id}");
    let (active, standby) = both_run(&ada, &path, None).await;
    let (lost, host) = (active.host.expect("a host"), standby.host.expect("a host"));
    let gone = active.allocation.expect("an allocation");
    fleet.lose(lost.as_str());
    let (now, then) = both_run(&ada, &path, Some(&gone)).await;
    assert_eq!(
        now.host.as_ref(),
        Some(&host),
        "the host of the standby takes over"
    );
    let elsewhere = then.host.expect("a host");
    assert!(elsewhere != host && elsewhere != lost, "{elsewhere}");
    assert_eq!(now.failures, None, "a lost node spends no retry");
    let successor = now.allocation.expect("an allocation");
    let last = marks.last_of(&gone).expect("it ran");
    let first = marks
        .lives()
        .into_iter()
        .find_map(|(id, first, _)| (id == successor).then_some(first))
        .expect("it runs");
    println!(
        "failover: {} ms from the last sign of the active to the first one on {host}",
        (first - last) * 10
    );
}

fn failing(fail_service: bool) -> ServiceSubmission {
    let script = "test $HAYWARD_PROCESSOR = 0 && exit 3; sleep 1000";
    ServiceSubmission {
        retries: Some(RetriesSubmission {
            count: 2,
            fail_service,
            ..RetriesSubmission::default()
        }),
        ..service(&["sh", "-c", script], 2)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn section_10_exhausted_retries_degrade_a_service_or_end_it() {
    let fleet = TestFleet::with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let degraded = submit(&ada, "services", &failing(false)).await;
    let path = format!("/v1/services/{degraded}");
    let view = reaches(&ada, &path, LIMIT, |view| {
        let deployment = view.deployment.as_ref().expect("processors");
        processor(deployment, "0").state == ProcessorState::Failed
            && processor(deployment, "1").state == ProcessorState::Running
    })
    .await;
    let deployment = view.deployment.expect("processors");
    assert_eq!(
        (view.state, deployment.healthy),
        (WorkState::Running, false)
    );
    let failures = processor(&deployment, "0").failures.expect("a record");
    assert_eq!(failures.count, 2, "the record of the last retry");
    let ends = submit(&ada, "services", &failing(true)).await;
    let path = format!("/v1/services/{ends}");
    let view = reaches(&ada, &path, LIMIT, |view| view.state.is_final()).await;
    assert_eq!(view.state, WorkState::Failed, "{view:?}");
    assert!(
        view.reason
            .expect("a reason")
            .contains("processor 0 has failed")
    );
}
