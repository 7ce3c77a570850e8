//! Failures of long-running services on real processes. An active fails over to the node of its
//! standby when its own node is lost. Failures are counted until a service is degraded or has
//! failed (Standbys in `docs/spec/container-placement.md`).

use std::collections::BTreeSet;
use std::time::Duration;

use hayward_job_converter_api::service_processors::{
    Deployment, ProcessorState, ProcessorView, RetriesSubmission,
};
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_tests_fleet::{ActivityLog, TestFleet, service, submit, wait_for_view};
use hayward_vocabulary::{AllocationId, NodeName};

const LIMIT: Duration = Duration::from_mins(1);
const MS_PER_CENTISECOND: u64 = 10;

fn find_processor<'d>(deployment: &'d Deployment, name: &str) -> &'d ProcessorView {
    let mut processors = deployment.processors.iter();
    processors
        .find(|it| it.processor == name)
        .expect("a processor")
}

/// Asserts that processors that need separate hosts never share one.
fn assert_on_distinct_hosts(view: &WorkView) {
    let deployment = view.deployment.as_ref().expect("processors");
    let processors = deployment.processors.iter();
    let hosts: Vec<&NodeName> = processors
        .filter(|it| it.allocation.is_some())
        .filter_map(|it| it.host.as_ref())
        .collect();
    let distinct: BTreeSet<&&NodeName> = hosts.iter().collect();
    assert_eq!(distinct.len(), hosts.len(), "two on one node: {view:?}");
}

/// Waits until both processors run, the active as another allocation than `previous`.
async fn wait_until_both_run(
    ada: &Client,
    path: &str,
    previous: Option<&AllocationId>,
) -> (ProcessorView, ProcessorView) {
    let view = wait_for_view(ada, path, LIMIT, |view| {
        assert_on_distinct_hosts(view);
        let deployment = view.deployment.as_ref().expect("processors");
        deployment.healthy && find_processor(deployment, "0").allocation.as_ref() != previous
    })
    .await;
    let deployment = view.deployment.expect("processors");
    let processor_named = |name| find_processor(&deployment, name).clone();
    (processor_named("0"), processor_named("0-0"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_of_the_standby_takes_over_when_the_node_of_the_active_is_lost() {
    let mut fleet = TestFleet::start_with_agents(3).await;
    let ada = fleet.client("job-converter", "user-ada");
    let activity = ActivityLog::new(fleet.dir.path(), "echo");
    let body = ServiceSubmission {
        command: activity.command(),
        standbys: Some(1),
        retries: Some(RetriesSubmission::default()),
        ..service(&[], 1)
    };
    let id = submit(&ada, "services", &body).await;
    let path = format!("/v1/services/{id}");
    let (active, standby) = wait_until_both_run(&ada, &path, None).await;
    let (lost_host, standby_host) = (active.host.expect("a host"), standby.host.expect("a host"));
    let lost_allocation = active.allocation.expect("an allocation");
    fleet.lose_node(lost_host.as_str());
    let (new_active, new_standby) = wait_until_both_run(&ada, &path, Some(&lost_allocation)).await;
    assert_eq!(
        new_active.host.as_ref(),
        Some(&standby_host),
        "the host of the standby takes over"
    );
    let new_standby_host = new_standby.host.expect("a host");
    assert!(
        new_standby_host != standby_host && new_standby_host != lost_host,
        "{new_standby_host}"
    );
    assert_eq!(new_active.failures, None, "a lost node spends no retry");
    let successor = new_active.allocation.expect("an allocation");
    let last = activity.last_activity(&lost_allocation).expect("it ran");
    let first = activity
        .intervals()
        .into_iter()
        .find_map(|it| (it.allocation == successor).then_some(it.first))
        .expect("it runs");
    println!(
        "failover: {} ms from the last record of the active to the first one on {standby_host}",
        (first - last) * MS_PER_CENTISECOND
    );
}

/// Returns a service whose first processor fails at every start. With `fail_service`, the service
/// fails when the retries of a processor are exhausted.
fn failing_service(fail_service: bool) -> ServiceSubmission {
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
async fn exhausted_retries_degrade_a_service_or_end_it() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let degraded = submit(&ada, "services", &failing_service(false)).await;
    let path = format!("/v1/services/{degraded}");
    let view = wait_for_view(&ada, &path, LIMIT, |view| {
        let deployment = view.deployment.as_ref().expect("processors");
        find_processor(deployment, "0").state == ProcessorState::Failed
            && find_processor(deployment, "1").state == ProcessorState::Running
    })
    .await;
    let deployment = view.deployment.expect("processors");
    assert_eq!(
        (view.state, deployment.healthy),
        (WorkState::Running, false)
    );
    let failures = find_processor(&deployment, "0").failures.expect("a record");
    assert_eq!(failures.count, 2, "the record of the last retry");
    let failing = submit(&ada, "services", &failing_service(true)).await;
    let path = format!("/v1/services/{failing}");
    let view = wait_for_view(&ada, &path, LIMIT, |view| view.state.is_final()).await;
    assert_eq!(view.state, WorkState::Failed, "{view:?}");
    assert!(
        view.reason
            .expect("a reason")
            .contains("processor 0 has failed")
    );
}
