//! Tests of the publication `failures`: facts for and against a node, for example failed and
//! successful attempts. The blocklist blocks nodes by them.

use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::node_publications::{FactEntry, FactKind};
use hayward_vocabulary::{Exit, ExitCause};

use super::fixture::{Allocations, Fixture, is_staying};
use super::neighbours::{job, node};

/// Submits a job with one process and waits for its allocation.
async fn submit_one(fixture: &Fixture, work: &str) -> AllocationEntry {
    let mut demand = job(work, "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.until_one(work, "is there", is_staying).await
}

fn failed_exit(cause: ExitCause) -> Exit {
    Exit {
        cause_code: Some("disk_full".into()),
        ..Exit::of(cause, "no room on the disk")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_a_vacate_is_a_fact_that_survives_a_restart() {
    let mut fixture = Fixture::new(&[4]).await;
    let first = submit_one(&fixture, "job_a").await;
    fixture.end(&first, failed_exit(ExitCause::LaunchFailed));
    let is_failure = |fact: &FactEntry| fact.what == FactKind::Failed;
    let fact: FactEntry = fixture
        .until_entry("failures", first.id.as_str(), "is a failure", is_failure)
        .await;
    let attempt = fact.attempt.as_ref().unwrap();
    assert_eq!((fact.node.as_str(), attempt.work.as_str()), ("n1", "job_a"));
    assert_eq!(attempt.cause, ExitCause::LaunchFailed);
    assert_eq!(attempt.cause_code.as_deref(), Some("disk_full"));
    assert!(!attempt.ran);

    // An attempt that ran is marked so.
    let second = fixture
        .until_one("job_a", "has a successor", |it| {
            is_staying(it) && it.id != first.id
        })
        .await;
    fixture.report(&second, ContainerState::Running);
    fixture.end(&second, failed_exit(ExitCause::UserError));
    let second: FactEntry = fixture
        .until_entry("failures", second.id.as_str(), "is a failure", is_failure)
        .await;
    fixture.kill();
    fixture.start().await;
    let facts = fixture.entries::<FactEntry>("failures").await;
    assert_eq!(facts[first.id.as_str()], fact);
    assert!(facts.values().any(|it| *it == second));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_after_a_vacate_and_a_success_are_no_facts() {
    let fixture = Fixture::new(&[4]).await;
    let first = submit_one(&fixture, "job_a").await;
    fixture.neighbours.demand.remove("job_a");
    let is_vacated = |it: &AllocationEntry| it.vacate.is_some();
    fixture.until_one("job_a", "is vacated", is_vacated).await;
    // The attempt failed after the vacate.
    fixture.end(&first, failed_exit(ExitCause::UserError));
    let second = submit_one(&fixture, "job_b").await;
    fixture.end(&second, Exit::of(ExitCause::Success, "done"));
    fixture.settle().await;
    // `not_offered`: the node no longer offers what it offered at the grant. That is no failure.
    let third = submit_one(&fixture, "job_c").await;
    let refused = Exit {
        cause_code: Some("not_offered".into()),
        ..Exit::of(ExitCause::Node, "this node runs no images")
    };
    fixture.end(&third, refused);
    let successor = |it: &AllocationEntry| is_staying(it) && it.id != third.id;
    fixture
        .until_one("job_c", "has a successor", successor)
        .await;
    assert!(fixture.entries::<FactEntry>("failures").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_is_a_fact_on_a_node_with_failures() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.worked_ms = 100;
    fixture.start().await;
    let before = submit_one(&fixture, "job_old").await;
    let first = submit_one(&fixture, "job_a").await;
    fixture.end(&first, failed_exit(ExitCause::Node));
    let any_fact = |_: &FactEntry| true;
    fixture
        .until_entry("failures", first.id.as_str(), "is published", any_fact)
        .await;
    // The success of an attempt that began before the failure proves nothing.
    fixture.end(&before, Exit::of(ExitCause::Success, "done"));
    let after = fixture
        .until_one("job_a", "has a successor", |it| {
            is_staying(it) && it.id != first.id
        })
        .await;
    fixture.report(&after, ContainerState::Running);
    let worked = |fact: &FactEntry| fact.what == FactKind::Worked;
    let fact = fixture
        .until_entry("failures", after.id.as_str(), "worked", worked)
        .await;
    assert!(fact.attempt.unwrap().ran);
    let facts = fixture.entries::<FactEntry>("failures").await;
    assert!(!facts.contains_key(before.id.as_str()));
    // A later failure counts.
    fixture.end(&after, failed_exit(ExitCause::UserLimit));
    let is_failure = |fact: &FactEntry| fact.what == FactKind::Failed;
    fixture
        .until_entry("failures", after.id.as_str(), "is a failure", is_failure)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_bounded_for_each_node() {
    let mut fixture = Fixture::not_started(&[8, 8]).await;
    fixture.settings.facts_a_node = 3;
    fixture.start().await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 12;
    fixture.neighbours.submit(&demand);
    let all = fixture
        .until("twelve processes", |all| all.len() == 12)
        .await;
    for entry in all.values() {
        fixture.end(entry, failed_exit(ExitCause::LaunchFailed));
    }
    let all_ended = |all: &Allocations| all.values().filter(|it| !it.holds()).count() == 12;
    fixture.until("twelve ends", all_ended).await;
    let facts = fixture.entries::<FactEntry>("failures").await;
    for node in ["n1", "n2"] {
        let facts_of_node = facts.values().filter(|it| it.node.as_str() == node);
        assert!((1..=3).contains(&facts_of_node.count()), "{facts:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_is_published_for_a_limited_time() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.facts_kept_ms = 4_000;
    fixture.start().await;
    let first = submit_one(&fixture, "job_a").await;
    fixture.end(&first, failed_exit(ExitCause::Node));
    let any_fact = |_: &FactEntry| true;
    let key = first.id.as_str();
    fixture
        .until_entry("failures", key, "is published", any_fact)
        .await;
    fixture.until_withdrawn("failures", key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beginning_and_end_of_silence_of_a_node_are_facts() {
    let fixture = Fixture::new(&[4]).await;
    fixture.settle().await;
    let until_fact = |what: FactKind| {
        let fixture = &fixture;
        async move {
            hayward_testkit::until("the fact", async || {
                let facts = fixture.entries::<FactEntry>("failures").await;
                let count = facts.values().filter(|it| it.what == what).count();
                (count == 1).then_some(())
            })
            .await;
        }
    };
    let mut silent = node("n1", 4);
    for health in [Health::Suspect, Health::Lost] {
        silent.health = health;
        fixture.neighbours.nodes.put("n1", &silent);
        until_fact(FactKind::Silenced).await;
    }
    fixture.neighbours.node("n1", 4);
    until_fact(FactKind::Heard).await;
    let facts = fixture.entries::<FactEntry>("failures").await;
    assert!(facts.keys().all(|key| key.starts_with("node/n1/")));
}
