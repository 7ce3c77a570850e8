//! Services with standbys, host affinity, counted retries and failover, as seen by the scheduler
//! and a user.

use hayward_job_converter_api::service_processors::{Deployment, ProcessorState, ProcessorView};
use hayward_job_converter_api::{DemandEntry, WorkState, WorkView};
use hayward_rm_scheduler_api::{AllocationEntry, Vacate, VacateReason, WaitReason};
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Role, Timestamp, WorkId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, fresh_key, refusal, submit};

/// Submits a service of ann and returns its id.
pub async fn submit_service(fixture: &Fixture, body: Value) -> WorkId {
    let ann = fixture.user("ann");
    let answer = submit(&ann, "/v1/services", &body, &fresh_key()).await;
    answer.unwrap().id
}

fn service_with_standby() -> Value {
    json!({ "name": "echo", "command": ["/bin/echo", "{instance}"], "standbys": 1,
            "retries": { "count": 8 } })
}

fn failed_exit(code: i32) -> Exit {
    Exit {
        code: Some(code),
        ..Exit::of(ExitCause::UserError, "")
    }
}

/// Returns the demand entry of a processor once it satisfies the condition.
pub async fn wait_for_demand(
    fixture: &Fixture,
    id: &WorkId,
    matches: impl Fn(&DemandEntry) -> bool,
) -> DemandEntry {
    until(&format!("the demand of {id}"), async || {
        let all = fixture.demand().await;
        all.get(id.as_str()).filter(|entry| matches(entry)).cloned()
    })
    .await
}

fn requests_host(entry: &DemandEntry, host: Option<&str>) -> bool {
    entry.max_processes == 1 && entry.host.as_ref().map(AsRef::as_ref) == host
}

/// Returns the view of a service once its deployment satisfies the condition.
pub async fn wait_for_deployment(
    fixture: &Fixture,
    id: &WorkId,
    matches: impl Fn(&Deployment) -> bool,
) -> (WorkView, Deployment) {
    until(&format!("the processors of {id}"), async || {
        let view = fixture.view(id).await;
        let deployment = view.deployment.clone()?;
        matches(&deployment).then_some((view, deployment))
    })
    .await
}

fn processor<'d>(deployment: &'d Deployment, name: &str) -> &'d ProcessorView {
    let mut all = deployment.processors.iter();
    all.find(|it| it.processor == name).unwrap()
}

/// Grants a running process on the node.
pub async fn run_process(fixture: &Fixture, id: &WorkId, node: &str) -> AllocationEntry {
    let entry = wait_for_demand(fixture, id, |entry| entry.max_processes == 1).await;
    let allocation = fixture.scheduler.grant_on(&entry, node);
    let service = id.parent();
    wait_for_deployment(fixture, &service, |deployment| {
        let mut all = deployment.processors.iter();
        all.any(|it| it.allocation.as_ref() == Some(&allocation.id))
    })
    .await;
    allocation
}

/// Waits until the end is settled.
async fn wait_until_settled(fixture: &Fixture, id: &WorkId, allocation: &AllocationId) {
    wait_for_demand(fixture, id, |entry| entry.settled.contains(allocation)).await;
}

#[tokio::test]
async fn an_active_and_its_standby_are_requested_on_different_hosts() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_with_standby()).await;
    let (active, standby) = (id.instance(0), id.standby(0, 0));
    let (active_demand, standby_demand) = (
        fixture.demand_of(&active).await,
        fixture.demand_of(&standby).await,
    );
    for entry in [&active_demand, &standby_demand] {
        let apart = entry.apart.as_ref().unwrap();
        assert_eq!((&apart.group, &apart.by_label), (&active, &None));
        let processor = entry.processor.as_ref().unwrap();
        assert_eq!(processor.deployment, format!("{id}-1"));
        assert!(processor.host_affinity && !processor.failed);
    }
    assert_eq!(active_demand.processor.unwrap().role, Role::Active);
    let role = Role::Standby {
        of: active.clone(),
        replica: 0,
    };
    assert_eq!(standby_demand.processor.unwrap().role, role);
    assert!(
        standby_demand.submitted_at > active_demand.submitted_at,
        "actives are served before their standbys"
    );
    for (entry, name, role) in [
        (&active_demand.launch, "0", "active"),
        (&standby_demand.launch, "0-0", "standby"),
    ] {
        let environment = &entry.as_ref().unwrap().environment;
        assert_eq!(environment["HAYWARD_PROCESSOR"], name);
        assert_eq!(environment["HAYWARD_ROLE"], role);
        assert_eq!(environment["HAYWARD_DEPLOYMENT"], format!("{id}-1"));
    }
    run_process(&fixture, &active, "n1").await;
    run_process(&fixture, &standby, "n2").await;
    let (_, deployment) = wait_for_deployment(&fixture, &id, |it| it.healthy).await;
    assert_eq!(
        processor(&deployment, "0-0")
            .host
            .as_ref()
            .unwrap()
            .as_str(),
        "n2"
    );
}

#[tokio::test]
async fn a_failover_to_a_standby_continues_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let id = submit_service(&fixture, service_with_standby()).await;
    let (active, standby) = (id.instance(0), id.standby(0, 0));
    let lost = run_process(&fixture, &active, "n1").await;
    let standby_process = run_process(&fixture, &standby, "n2").await;
    // The active is requested on its own node, because the scheduler must not place it before a
    // standby is chosen.
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n1"))).await;
    let lost = fixture.scheduler.vacate_for(&lost, VacateReason::NodeLost);
    wait_for_demand(&fixture, &standby, |entry| entry.max_processes == 0).await;
    wait_for_demand(&fixture, &active, |entry| entry.max_processes == 0).await;
    let (_, deployment) = wait_for_deployment(&fixture, &id, |it| !it.healthy).await;
    let failover = processor(&deployment, "0").failover.clone().unwrap();
    assert_eq!(failover.waits_for, Some(standby.clone()));
    fixture.kill_and_restart().await;
    wait_for_demand(&fixture, &standby, |entry| entry.max_processes == 0).await;
    let standby_process = fixture
        .scheduler
        .vacate_for(&standby_process, VacateReason::WorkGone);
    fixture
        .scheduler
        .end(&standby_process, Exit::of(ExitCause::Intended, ""));
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n2"))).await;
    wait_for_demand(&fixture, &standby, |entry| requests_host(entry, None)).await;
    fixture.scheduler.end(&lost, Exit::of(ExitCause::Node, ""));
    run_process(&fixture, &active, "n2").await;
    run_process(&fixture, &standby, "n3").await;
    let (_, deployment) = wait_for_deployment(&fixture, &id, |it| it.healthy).await;
    let active = processor(&deployment, "0");
    assert_eq!((&active.failover, &active.failures), (&None, &None));
}

/// For a lost node, the scheduler publishes vacate and end in one step.
#[tokio::test]
async fn a_loss_and_an_end_in_one_update_start_a_failover() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_with_standby()).await;
    let (active, standby) = (id.instance(0), id.standby(0, 0));
    let lost = run_process(&fixture, &active, "n1").await;
    let standby_process = run_process(&fixture, &standby, "n2").await;
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n1"))).await;
    let vacate = Vacate {
        reason: VacateReason::NodeLost,
        detail: "node n1 was lost".to_owned(),
        since: Timestamp::from_unix_ms(0),
        purge: true,
    };
    let lost = AllocationEntry {
        vacate: Some(vacate),
        ..lost
    };
    fixture.scheduler.end(&lost, Exit::of(ExitCause::Node, ""));
    wait_for_demand(&fixture, &standby, |entry| entry.max_processes == 0).await;
    wait_for_demand(&fixture, &active, |entry| entry.max_processes == 0).await;
    let standby_process = fixture
        .scheduler
        .vacate_for(&standby_process, VacateReason::WorkGone);
    fixture
        .scheduler
        .end(&standby_process, Exit::of(ExitCause::Intended, ""));
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n2"))).await;
    wait_for_demand(&fixture, &standby, |entry| requests_host(entry, None)).await;
}

/// Standby 0-0 is on n2, standby 0-1 on n3, and the active on n1. Then 0-0 restarts on n4.
#[tokio::test]
async fn the_longest_running_standby_takes_over() {
    let fixture = Fixture::new().await;
    let body = json!({ "name": "echo", "command": ["/bin/echo"], "standbys": 2,
                       "retries": { "count": 8 } });
    let id = submit_service(&fixture, body).await;
    let (active, first, second) = (id.instance(0), id.standby(0, 0), id.standby(0, 1));
    let lost = run_process(&fixture, &active, "n1").await;
    let other_standby = run_process(&fixture, &first, "n2").await;
    let running_standby = run_process(&fixture, &second, "n3").await;
    let lost_standby = fixture
        .scheduler
        .vacate_for(&other_standby, VacateReason::NodeLost);
    fixture
        .scheduler
        .end(&lost_standby, Exit::of(ExitCause::Node, ""));
    wait_until_settled(&fixture, &first, &lost_standby.id).await;
    let entry = wait_for_demand(&fixture, &first, |entry| entry.max_processes == 1).await;
    let start = Timestamp::from_unix_ms(60_000);
    fixture.scheduler.grant_at(&entry, "n4", start);
    wait_for_deployment(&fixture, &id, |it| it.healthy).await;
    let lost = fixture.scheduler.vacate_for(&lost, VacateReason::NodeLost);
    fixture.scheduler.end(&lost, Exit::of(ExitCause::Node, ""));
    wait_for_demand(&fixture, &second, |entry| entry.max_processes == 0).await;
    let demand_of_first = wait_for_demand(&fixture, &first, |entry| entry.max_processes == 1).await;
    assert_eq!(
        demand_of_first.host, None,
        "a standby that has just started keeps running"
    );
    let running_standby = fixture
        .scheduler
        .vacate_for(&running_standby, VacateReason::WorkGone);
    fixture
        .scheduler
        .end(&running_standby, Exit::of(ExitCause::Intended, ""));
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n3"))).await;
}

/// The active is lost first, and its failover has already chosen.
#[tokio::test]
async fn a_standby_lost_during_a_failover_is_skipped_at_once() {
    let fixture = Fixture::with_settings(|settings| settings.request_timeout_ms = 600_000).await;
    let body = json!({ "name": "echo", "command": ["/bin/echo"], "standbys": 2,
                       "retries": { "count": 8 } });
    let id = submit_service(&fixture, body).await;
    let (active, first, second) = (id.instance(0), id.standby(0, 0), id.standby(0, 1));
    let lost = run_process(&fixture, &active, "n1").await;
    let other_standby = run_process(&fixture, &first, "n2").await;
    run_process(&fixture, &second, "n3").await;
    let lost = fixture.scheduler.vacate_for(&lost, VacateReason::NodeLost);
    fixture.scheduler.end(&lost, Exit::of(ExitCause::Node, ""));
    wait_for_demand(&fixture, &first, |entry| entry.max_processes == 0).await;
    let lost_standby = fixture
        .scheduler
        .vacate_for(&other_standby, VacateReason::NodeLost);
    fixture
        .scheduler
        .end(&lost_standby, Exit::of(ExitCause::Node, ""));
    wait_for_demand(&fixture, &second, |entry| entry.max_processes == 0).await;
    wait_for_demand(&fixture, &first, |entry| requests_host(entry, None)).await;
}

#[tokio::test]
async fn an_expired_host_request_accepts_any_host() {
    let fixture = Fixture::with_settings(|settings| settings.request_timeout_ms = 300).await;
    let body = json!({ "name": "echo", "command": ["/bin/true"], "host_affinity": true,
                       "retries": {} });
    let id = submit_service(&fixture, body).await;
    let active = id.instance(0);
    let first = run_process(&fixture, &active, "n1").await;
    fixture.scheduler.end(&first, failed_exit(3));
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, Some("n1"))).await;
    wait_for_demand(&fixture, &active, |entry| requests_host(entry, None)).await;
    let (_, deployment) = wait_for_deployment(&fixture, &id, |_| true).await;
    let failures = processor(&deployment, "0").failures.unwrap();
    assert_eq!((failures.count, failures.last_delay_ms), (1, 0));
}

#[tokio::test]
async fn last_hosts_outlive_restarts_and_deployments() {
    let mut fixture = Fixture::with_short_lease().await;
    let body = json!({ "name": "echo", "command": ["/bin/true"], "host_affinity": true });
    let id = submit_service(&fixture, body.clone()).await;
    let first = run_process(&fixture, &id.instance(0), "n7").await;
    let ann = fixture.user("ann");
    let path = format!("/v1/services/{id}");
    ann.delete::<WorkView>(&path).await.unwrap();
    fixture
        .scheduler
        .end(&first, Exit::of(ExitCause::Intended, ""));
    fixture.wait_for_state(&id, WorkState::Cancelled).await;
    fixture.kill_and_restart().await;
    let again = submit_service(&fixture, body.clone()).await;
    assert_ne!(again, id, "a deployment of its own");
    let entry = wait_for_demand(&fixture, &again.instance(0), |entry| {
        requests_host(entry, Some("n7"))
    })
    .await;
    assert_eq!(entry.processor.unwrap().deployment, format!("{again}-1"));
    // A service of another user with the same name is independent.
    let bob = fixture.user("bob");
    let other = submit(&bob, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    wait_for_demand(&fixture, &other.id.instance(0), |entry| {
        requests_host(entry, None)
    })
    .await;
}

#[tokio::test]
async fn exhausted_retries_fail_the_service_or_leave_it_unhealthy() {
    let mut fixture = Fixture::with_short_lease().await;
    let body = |fail: bool| {
        json!({ "command": ["/bin/false"], "instances": 2,
                "retries": { "count": 1, "fail_service": fail } })
    };
    let (failing, unhealthy) = (
        submit_service(&fixture, body(true)).await,
        submit_service(&fixture, body(false)).await,
    );
    let mut others = Vec::new();
    for id in [&failing, &unhealthy] {
        others.push(run_process(&fixture, &id.instance(1), "n2").await);
        let first = run_process(&fixture, &id.instance(0), "n1").await;
        fixture.scheduler.end(&first, failed_exit(3));
        wait_until_settled(&fixture, &id.instance(0), &first.id).await;
    }
    // The count survives a restart.
    fixture.kill_and_restart().await;
    for id in [&failing, &unhealthy] {
        let (_, deployment) = wait_for_deployment(&fixture, id, |_| true).await;
        assert_eq!(processor(&deployment, "0").failures.unwrap().count, 1);
        let second = run_process(&fixture, &id.instance(0), "n1").await;
        fixture.scheduler.end(&second, failed_exit(3));
    }
    let view = fixture.wait_for_state(&failing, WorkState::Failed).await;
    assert!(view.reason.unwrap().contains("processor 0"));
    let (view, deployment) = wait_for_deployment(&fixture, &unhealthy, |it| {
        processor(it, "0").state == ProcessorState::Failed
    })
    .await;
    assert_eq!(
        (view.state, deployment.healthy),
        (WorkState::Running, false)
    );
    let entry = wait_for_demand(&fixture, &unhealthy.instance(0), |entry| {
        entry.max_processes == 0
    })
    .await;
    assert!(entry.processor.unwrap().failed);
    // The failed state survives a restart, and the service ends FAILED when the others complete.
    fixture.kill_and_restart().await;
    let (_, deployment) = wait_for_deployment(&fixture, &unhealthy, |_| true).await;
    assert_eq!(processor(&deployment, "0").state, ProcessorState::Failed);
    fixture
        .scheduler
        .end(&others[1], Exit::of(ExitCause::Success, ""));
    fixture.wait_for_state(&unhealthy, WorkState::Failed).await;
}

#[tokio::test]
async fn a_service_completes_only_with_counted_retries() {
    let fixture = Fixture::new().await;
    let body = json!({ "command": ["/bin/true"], "retries": {} });
    let (with_retries, without_retries) = (
        submit_service(&fixture, body).await,
        submit_service(&fixture, json!({ "command": ["/bin/true"] })).await,
    );
    for id in [&with_retries, &without_retries] {
        let only = run_process(&fixture, &id.instance(0), "n1").await;
        fixture
            .scheduler
            .end(&only, Exit::of(ExitCause::Success, ""));
    }
    fixture
        .wait_for_state(&with_retries, WorkState::Completed)
        .await;
    // This service has no retry settings. Its process is held back briefly, then requested again.
    wait_for_demand(&fixture, &without_retries.instance(0), |entry| {
        entry.max_processes == 0
    })
    .await;
    wait_for_demand(&fixture, &without_retries.instance(0), |entry| {
        entry.max_processes == 1
    })
    .await;
}

#[tokio::test]
async fn invalid_settings_name_their_field() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    for (change, pointer) in [
        (json!({ "standbys": 4 }), "/standbys"),
        (json!({ "instances": 9000, "standbys": 1 }), "/standbys"),
        (
            json!({ "standbys": 1, "machines": ["n1", "n1"] }),
            "/machines",
        ),
        (
            json!({ "fault_domain_label": "rack" }),
            "/fault_domain_label",
        ),
        (
            json!({ "standbys": 1, "fault_domain_label": " " }),
            "/fault_domain_label",
        ),
        (json!({ "retries": { "count": -2 } }), "/retries/count"),
        (
            json!({ "retries": { "window_ms": 0 } }),
            "/retries/window_ms",
        ),
        (
            json!({ "retries": { "last_delay_ms": 99_999_999_999_u64 } }),
            "/retries/last_delay_ms",
        ),
    ] {
        let mut body = json!({ "command": ["/bin/true"] });
        let change = change.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(change);
        let answer = submit(&ann, "/v1/services", &body, &fresh_key()).await;
        assert_eq!(refusal(answer), (422, vec![pointer.to_owned()]), "{body}");
    }
    let body = json!({ "command": ["/bin/true"], "retries": { "counts": 1 } });
    let answer = submit(&ann, "/v1/services", &body, &fresh_key()).await;
    assert_eq!(refusal(answer).0, 422);
}

/// The scheduler knows whether a fault domain is available.
#[tokio::test]
async fn an_unplaceable_standby_has_a_reason_while_its_active_runs() {
    let fixture = Fixture::new().await;
    let body = json!({ "name": "echo", "command": ["/bin/echo"], "standbys": 1,
                       "fault_domain_label": "rack" });
    let id = submit_service(&fixture, body).await;
    run_process(&fixture, &id.instance(0), "n1").await;
    let standby = id.standby(0, 0);
    fixture
        .scheduler
        .publish_verdict(&standby, WaitReason::AntiAffinity, false);
    let (view, deployment) = until("its reason", async || {
        let view = fixture.view(&id).await;
        let deployment = view.deployment.clone()?;
        let expected = view.reason.as_ref()?.contains("no node has 99 GiB");
        expected.then_some((view, deployment))
    })
    .await;
    assert_eq!(
        (view.state, deployment.healthy),
        (WorkState::Running, false)
    );
}
