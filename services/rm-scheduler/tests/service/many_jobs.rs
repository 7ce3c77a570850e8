//! Load test: many jobs on many nodes. `HAYWARD_MANY_NODES` and `HAYWARD_MANY_JOBS` set the
//! numbers. Times are printed and not checked.

use std::time::Instant;

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::views::RoundList;
use hayward_testkit::until;

use super::fixture::Fixture;
use super::neighbours::{container, job, node};

fn env_or_default(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Waits for a round without decisions. `Fixture::settle` would not end here, because with many
/// jobs nearly every round changes stored deficits.
async fn until_idle_round(fixture: &Fixture) {
    until("a round that decides nothing", async || {
        fixture.force_round().await;
        let list: RoundList = fixture
            .client("viewer")
            .get("/v1/rounds?limit=1")
            .await
            .unwrap();
        let now = fixture.shares().await?.round;
        (list.rounds.first()?.round < now).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_are_served_and_later_changes_of_some_are_absorbed() {
    let (nodes, work) = (
        env_or_default("HAYWARD_MANY_NODES", 50),
        env_or_default("HAYWARD_MANY_JOBS", 500),
    );
    let quanta = u64::try_from(nodes * 16).unwrap();
    let mut fixture = Fixture::not_started(&[]).await;
    fixture.settings.server.lease_ms = 5_000;
    let fleet: Vec<_> = (0..nodes)
        .map(|index| (format!("n{index:05}"), node(&format!("n{index:05}"), 16)))
        .collect();
    fixture.neighbours.nodes.put_all(&fleet);
    let jobs: Vec<_> = (0..work)
        .map(|index| {
            let name = format!("job_{index:06}");
            let mut demand = job(&name, &format!("user{}", index % 97));
            demand.max_processes = 4;
            (name, demand)
        })
        .collect();
    fixture.neighbours.demand.put_all(&jobs);
    let started = Instant::now();
    fixture.start().await;
    let expected = quanta.min(u64::try_from(work * 4).unwrap());
    // Each step of ten thousand quanta has its own time limit.
    for part in 1..=expected.div_ceil(10_000) {
        let goal = expected.min(part * 10_000);
        let held = async || fixture.shares().await.filter(|shares| shares.held >= goal);
        until("everything in use", held).await;
    }
    println!("full after {:?}", started.elapsed());
    until_idle_round(&fixture).await;
    println!("quiet after {:?}", started.elapsed());
    let all = fixture.allocations().await;

    let ended: Vec<_> = all
        .values()
        .step_by(100)
        .map(|entry| {
            (
                entry.id.to_string(),
                container(entry, ContainerState::Ended),
            )
        })
        .collect();
    let started = Instant::now();
    fixture.neighbours.containers.put_all(&ended);
    let replaced = all.len() + ended.len();
    until("successors", async || {
        (fixture.allocations().await.len() >= replaced.min(all.len())).then_some(())
    })
    .await;
    until_idle_round(&fixture).await;
    println!(
        "{} ends taken in after {:?}",
        ended.len(),
        started.elapsed()
    );
    print_rounds(&fixture).await;
}

async fn print_rounds(fixture: &Fixture) {
    let list: RoundList = fixture.client("viewer").get("/v1/rounds").await.unwrap();
    for round in list.rounds {
        println!(
            "round {}: {} us, {} grants, {} vacated, {} verdicts",
            round.round,
            round.planning_us,
            round.grants.len(),
            round.vacated.len(),
            round.waiting.len()
        );
        assert!(round.refused.is_empty(), "{:?}", round.refused);
    }
}
