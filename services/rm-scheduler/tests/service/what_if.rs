//! Tests of `POST /v1/what-if`: forecasts come true, change nothing, and need permission.

use std::collections::BTreeMap;

use hayward_container_manager_api::ContainerState;
use hayward_publication::Update;
use hayward_rm_scheduler_api::node_publications::BlockerReason;
use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_api::views::RoundList;
use hayward_rm_scheduler_api::what_if::{Forecast, NewNodes, Submission, VacatedProcess, WhatIf};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, WaitReason};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Size, UserName, WorkKind};
use serde_json::Value;

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{job, reservation, service};

async fn post_forecast(
    fixture: &Fixture,
    name: &str,
    request: &WhatIf,
) -> Result<Forecast, ClientError> {
    fixture
        .client(name)
        .post("/v1/what-if", request, None)
        .await
}

fn submission(kind: WorkKind, name: &str, user: &str) -> Submission {
    Submission {
        queue: None,
        pool: None,
        name: Some(name.parse().unwrap()),
        kind,
        user: Some(user.parse().unwrap()),
        class: None,
        size: None,
        processes: None,
        tasks: None,
        task_ms: None,
        threads: None,
        machines: Vec::new(),
    }
}

fn request_with(submission: Submission) -> WhatIf {
    WhatIf {
        submissions: vec![submission],
        rounds: Some(30),
        ..WhatIf::default()
    }
}

/// Returns the number of processes of each piece of work on each node.
fn processes_by_node<'a>(
    all: impl Iterator<Item = &'a AllocationEntry>,
) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for entry in all.filter(|entry| is_staying(entry)) {
        let key = (entry.work.to_string(), entry.node.to_string());
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_comes_true_to_the_process_and_the_node() {
    let fixture = Fixture::new(&[4, 4]).await;
    // Tasks are so long that none ends during the test, so the order of losses is fixed.
    let mut first = job("job_a", "ann");
    first.task_ms = Some(3_600_000);
    fixture.neighbours.submit(&first);
    let all = fixture.until("eight processes", |all| all.len() == 8).await;
    // A running process loses only unfinished work. The time of its start no longer counts.
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let runs = |entry: &AllocationEntry| entry.state == AllocationState::Running;
    fixture.until("all run", |all| all.values().all(runs)).await;
    fixture.settle().await;

    let wanted = submission(WorkKind::Job, "job_b", "ben");
    let wanted = Submission {
        processes: Some(1_000),
        tasks: Some(1_000_000),
        task_ms: Some(1_000),
        ..wanted
    };
    let forecast = post_forecast(&fixture, "operator", &request_with(wanted))
        .await
        .unwrap();
    assert!(forecast.settled, "{forecast:#?}");
    let moved = |work: &str| {
        let found = forecast.moves.iter().find(|it| it.work.as_str() == work);
        found.map(|it| (it.now, it.without, it.with)).unwrap()
    };
    assert_eq!((moved("job_a"), moved("job_b")), ((8, 8, 4), (0, 0, 4)));
    let mut expected = processes_by_node(fixture.allocations().await.values());
    for leave in &forecast.leaves {
        assert_eq!(leave.beneficiary.as_ref().unwrap().as_str(), "job_b");
        assert_eq!(leave.for_user.as_ref().unwrap().as_str(), "ben");
        assert!(leave.allocation.is_some() && leave.lost_ms.is_some());
        let place = (leave.work.to_string(), leave.node.to_string());
        *expected.get_mut(&place).unwrap() -= 1;
    }
    for start in &forecast.starts {
        let place = (start.work.to_string(), start.node.to_string());
        *expected.entry(place).or_default() += start.processes;
    }

    let mut entry = job("job_b", "ben");
    entry.submitted_at = hayward_vocabulary::Timestamp::from_unix_ms(2);
    fixture.neighbours.submit(&entry);
    let has_vacate = |all: &Allocations| all.values().any(|entry| entry.vacate.is_some());
    fixture.until("a vacated process", has_vacate).await;
    let all = fixture.confirm_all_ends().await;
    expected.retain(|_, count| *count > 0);
    assert_eq!(processes_by_node(all.values()), expected);
}

/// Returns the path that reads the changes of a publication from now on.
async fn path_since_now(fixture: &Fixture, name: &str) -> String {
    let path = format!("/v1/{name}/publication");
    let update: Update<Value> = fixture.client("job-converter").get(&path).await.unwrap();
    format!("{path}?since={}", update.cursor)
}

async fn newest_round(fixture: &Fixture) -> u64 {
    let list: RoundList = fixture.client("viewer").get("/v1/rounds").await.unwrap();
    list.rounds[0].round
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_changes_nothing() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("four processes", |all| all.len() == 4).await;
    fixture.settle().await;
    // Only the fairness ledger is written, once a second.
    let revision = fixture.revision();
    let (allocations, verdicts) = (
        path_since_now(&fixture, "allocations").await,
        path_since_now(&fixture, "verdicts").await,
    );
    let newest = newest_round(&fixture).await;
    let mut policy = Policy::default();
    policy.classes.get_mut("normal").unwrap().weight = Some(7);
    let every_change = WhatIf {
        submissions: vec![submission(WorkKind::Service, "svc_x", "ben")],
        policy: Some(policy),
        drain: vec!["n1".parse().unwrap()],
        add_nodes: vec![NewNodes {
            name: None,
            count: 2,
            pool: None,
            size: Size {
                cpu_milli: 64_000,
                ..Size::memory(4 * GIB)
            },
        }],
        withdraw: vec!["job_a".parse().unwrap()],
        ..WhatIf::default()
    };
    for name in ["operator", "viewer"] {
        let forecast = post_forecast(&fixture, name, &every_change).await.unwrap();
        assert!(forecast.revision >= revision);
        assert_eq!(forecast.starts.len(), 1);
        assert!(forecast.starts[0].node.as_str().starts_with("what-if-"));
        assert_eq!(forecast.leaves.len(), 4);
        assert_eq!(
            (
                forecast.shares.capacity.without,
                forecast.shares.capacity.with
            ),
            (4, 8)
        );
    }
    fixture.settle().await;
    for since in [allocations, verdicts] {
        let update: Update<Value> = fixture.client("job-converter").get(&since).await.unwrap();
        assert!(!update.full && update.is_empty(), "{since}");
    }
    assert_eq!(newest_round(&fixture).await, newest);
    let policy: hayward_rm_scheduler_api::policy::PolicyView =
        fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(policy.generation, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_explains_waits_and_moves_work_of_a_lost_node() {
    let fixture = Fixture::new(&[4, 4]).await;
    let mut entry = service("svc_a.0", "ann");
    entry.size = Size::memory(3 * GIB);
    fixture.neighbours.submit(&entry);
    let allocation = fixture.until_one("svc_a.0", "starts", is_staying).await;
    fixture.settle().await;
    let huge = Submission {
        size: Some(Size::memory(64 * GIB)),
        ..submission(WorkKind::Job, "job_huge", "ben")
    };
    let forecast = post_forecast(&fixture, "viewer", &request_with(huge))
        .await
        .unwrap();
    assert_eq!(forecast.waits[0].reason, WaitReason::NoHostLargeEnough);
    assert!(forecast.starts.is_empty() && forecast.settled);

    let lost = WhatIf {
        lose: vec![allocation.node.clone()],
        ..WhatIf::default()
    };
    let forecast = post_forecast(&fixture, "viewer", &lost).await.unwrap();
    assert_eq!(forecast.leaves[0].allocation.as_ref(), Some(&allocation.id));
    assert_eq!(forecast.starts.len(), 1);
    assert_ne!(forecast.starts[0].node, allocation.node);
    assert!(
        forecast.moves.is_empty(),
        "the work has one process before and after"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitter_forecasts_its_own_work_and_sees_no_other_work() {
    let fixture = Fixture::new(&[8]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.neighbours.submit(&job("job_b", "ben"));
    until("four processes of job_b", async || {
        let all = fixture.confirm_all_ends().await;
        (allocations_of(&all, "job_b").len() >= 4).then_some(())
    })
    .await;
    let own = WhatIf {
        withdraw: vec!["job_a".parse().unwrap()],
        ..WhatIf::default()
    };
    let forecast = post_forecast(&fixture, "ann", &own).await.unwrap();
    assert!(
        forecast.starts.is_empty(),
        "ann must not see processes of ben: {forecast:#?}"
    );
    assert!(!forecast.leaves.is_empty());
    let all = post_forecast(&fixture, "viewer", &own).await.unwrap();
    assert!(!all.starts.is_empty());
    assert_eq!(forecast.shares.classes.len(), all.shares.classes.len());
    // Ann sees ben as a sum, and the totals add up (S12).
    let text = serde_json::to_string(&forecast).unwrap();
    assert!(!text.contains("ben") && !text.contains("job_b"), "{text}");
    for (own, whole) in forecast.shares.classes.iter().zip(&all.shares.classes) {
        let known: u64 = own.users.iter().map(|it| it.due.with).sum();
        let others = own.others.map_or(0, |it| it.due.with);
        let sum: u64 = whole.users.iter().map(|it| it.due.with).sum();
        assert_eq!((known + others, own.due), (sum, whole.due), "{own:?}");
    }
    let wanted = submission(WorkKind::Service, "svc_x", "ann");
    let more = Submission {
        class: Some("high".to_owned()),
        ..submission(WorkKind::Job, "job_y", "ann")
    };
    for wanted in [wanted, more] {
        let (own, all) = (
            post_forecast(&fixture, "ann", &request_with(wanted.clone()))
                .await
                .unwrap(),
            post_forecast(&fixture, "viewer", &request_with(wanted))
                .await
                .unwrap(),
        );
        let is_lost_to_ann = |leave: &&VacatedProcess| {
            let cause = leave.for_user.as_ref().map(UserName::as_str);
            leave.user.as_str() == "ben" && cause == Some("ann")
        };
        let lost_to_ann = all.leaves.iter().filter(is_lost_to_ann).count() as u64;
        let others = own.leaves_of_others.unwrap_or_default();
        assert_eq!(others.processes, lost_to_ann, "{all:#?}");
        assert!(own.leaves.iter().all(|it| it.user.as_str() == "ann"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_forecast_names_the_fields_that_are_not_permitted() {
    let fixture = Fixture::new(&[8]).await;
    fixture.settle().await;
    let others = WhatIf {
        submissions: vec![submission(WorkKind::Job, "job_x", "ben")],
        drain: vec!["n1".parse().unwrap()],
        ..WhatIf::default()
    };
    let refused = post_forecast(&fixture, "ann", &others).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, Code::Forbidden);
    let pointers: Vec<&str> = problem
        .errors
        .iter()
        .map(|it| it.pointer.as_str())
        .collect();
    assert_eq!(pointers, ["/drain", "/submissions/0/user"]);
    let neighbour = post_forecast(&fixture, "job-converter", &WhatIf::default()).await;
    assert_eq!(
        neighbour.unwrap_err().problem().unwrap().code,
        Code::Forbidden
    );
    let anonymous: Result<Forecast, _> = fixture
        .anonymous_client()
        .post("/v1/what-if", &WhatIf::default(), None)
        .await;
    assert_eq!(
        anonymous.unwrap_err().problem().unwrap().code,
        Code::Unauthenticated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_the_body_are_reported_at_once() {
    let fixture = Fixture::new(&[4]).await;
    fixture.settle().await;
    let mut policy = Policy::default();
    policy.classes.get_mut("low").unwrap().pool = Some("nowhere".into());
    let invalid = WhatIf {
        policy: Some(policy),
        drain: vec!["n9".parse().unwrap()],
        withdraw: vec!["job_none".parse().unwrap()],
        rounds: Some(0),
        ..WhatIf::default()
    };
    let refused = post_forecast(&fixture, "operator", &invalid)
        .await
        .unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, Code::Invalid);
    let pointers: Vec<&str> = problem
        .errors
        .iter()
        .map(|it| it.pointer.as_str())
        .collect();
    let expected = [
        "/policy/classes/low/pool",
        "/withdraw/0",
        "/drain/0",
        "/rounds",
    ];
    assert_eq!(pointers, expected);
    let unknown: Result<Forecast, _> = fixture
        .client("operator")
        .post("/v1/what-if", &serde_json::json!({"drian": ["n1"]}), None)
        .await;
    assert_eq!(unknown.unwrap_err().problem().unwrap().code, Code::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_preview_lists_what_moves_and_what_stays() {
    let fixture = Fixture::new(&[4, 4, 3]).await;
    // A reservation gets a whole node, here one of four quanta.
    fixture.neighbours.submit(&reservation("rsv_a", "cy", 3));
    let reserved = fixture.until_one("rsv_a", "is held", is_staying).await;
    let mut limited = service("svc_a.0", "ann");
    limited.size = Size::memory(3 * GIB);
    limited.disruption_limit = Some(1);
    fixture.neighbours.submit(&limited);
    let first = fixture.until_one("svc_a.0", "starts", is_staying).await;
    let drain_request = |node: &hayward_vocabulary::NodeName| WhatIf {
        drain: vec![node.clone()],
        ..WhatIf::default()
    };
    fixture.settle().await;
    let forecast = post_forecast(&fixture, "viewer", &drain_request(&first.node))
        .await
        .unwrap();
    let preview = &forecast.drains[0];
    assert_eq!((preview.total, preview.without_room), (1, 0));
    assert_eq!(preview.estimate_ms, None);
    let why = preview.no_estimate.as_ref().unwrap();
    assert!(why.contains("svc_a.0 has started"), "{why}");

    fixture.report(&first, ContainerState::Running);
    let runs = |entry: &AllocationEntry| entry.state == AllocationState::Running;
    let running = fixture.until_one("svc_a.0", "runs", runs).await;
    fixture.settle().await;
    let forecast = post_forecast(&fixture, "viewer", &drain_request(&first.node))
        .await
        .unwrap();
    let preview = &forecast.drains[0];
    let moved = &preview.moves[0];
    assert_eq!((&moved.allocation, moved.user.as_str()), (&first.id, "ann"));
    assert!(moved.to.is_some() && moved.to.as_ref() != Some(&first.node));
    assert_eq!(
        (moved.disruption_limit, moved.stop_grace_ms),
        (Some(1), 1_000)
    );
    let start_ms = running.running_since.unwrap().ms_since(running.granted_at);
    assert_eq!(preview.estimate_ms, Some(1_000 + start_ms));

    let forecast = post_forecast(&fixture, "operator", &drain_request(&reserved.node))
        .await
        .unwrap();
    let preview = &forecast.drains[0];
    let remaining = &preview.stays[0];
    assert_eq!(
        (remaining.why, remaining.user.as_str()),
        (BlockerReason::Reservation, "cy")
    );
    assert!(preview.estimate_ms.is_none() && preview.moves.is_empty());
    assert!(
        preview
            .no_estimate
            .as_ref()
            .unwrap()
            .contains("rsv_a of cy")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_preview_counts_processes_without_space_elsewhere() {
    let fixture = Fixture::new(&[4, 2]).await;
    let mut wide = job("job_a", "ann");
    wide.max_processes = 6;
    fixture.neighbours.submit(&wide);
    fixture.until("six processes", |all| all.len() == 6).await;
    fixture.settle().await;
    let both = WhatIf {
        drain: vec!["n2".parse().unwrap(), "n1".parse().unwrap()],
        ..WhatIf::default()
    };
    let forecast = post_forecast(&fixture, "viewer", &both).await.unwrap();
    let counts = |index: usize| {
        let drain = &forecast.drains[index];
        (drain.total, drain.without_room)
    };
    assert_eq!((counts(0), counts(1)), ((2, 2), (4, 4)));
    let reasons = forecast.drains.iter().flat_map(|drain| &drain.moves);
    let blocked = |reason| reason == Some(WaitReason::AllBlocked);
    assert!(
        reasons.map(|it| it.why_not).all(blocked),
        "{:#?}",
        forecast.drains
    );
    assert!(
        forecast.drains[0]
            .no_estimate
            .as_ref()
            .unwrap()
            .contains("find no space")
    );
}
