//! Load test: many jobs on many nodes. `HAYWARD_MANY_NODES` and `HAYWARD_MANY_JOBS` set the
//! numbers. Times are printed and not checked.

use std::time::Instant;

use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::NodeEntry;
use hayward_rm_scheduler_api::views::RoundList;
use hayward_testkit::until;

use super::fixture::Fixture;
use super::neighbours::{container, job, node};

const QUANTA_PER_NODE: usize = 16;
const PROCESSES_PER_JOB: usize = 4;
const USER_COUNT: usize = 97;

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

fn nodes_of_a_fleet(node_count: usize) -> Vec<(String, NodeEntry)> {
    (0..node_count)
        .map(|index| {
            let name = format!("n{index:05}");
            let entry = node(&name, QUANTA_PER_NODE as u64);
            (name, entry)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_get_processes_and_successors_of_ended_ones() {
    let (node_count, job_count) = (
        env_or_default("HAYWARD_MANY_NODES", 50),
        env_or_default("HAYWARD_MANY_JOBS", 500),
    );
    let quanta = u64::try_from(node_count * QUANTA_PER_NODE).unwrap();
    let mut fixture = Fixture::not_started(&[]).await;
    fixture.settings.server.lease_ms = 5_000;
    let fleet = nodes_of_a_fleet(node_count);
    fixture.neighbours.nodes.put_all(&fleet);
    let jobs: Vec<_> = (0..job_count)
        .map(|index| {
            let name = format!("job_{index:06}");
            let mut demand = job(&name, &format!("user{}", index % USER_COUNT));
            demand.max_processes = PROCESSES_PER_JOB as u64;
            (name, demand)
        })
        .collect();
    fixture.neighbours.demand.put_all(&jobs);
    let started = Instant::now();
    fixture.start().await;
    let expected = quanta.min(u64::try_from(job_count * PROCESSES_PER_JOB).unwrap());
    // Each step of ten thousand quanta has its own time limit.
    for part in 1..=expected.div_ceil(10_000) {
        let goal = expected.min(part * 10_000);
        let is_reached = async || fixture.shares().await.filter(|shares| shares.held >= goal);
        until("use of all quanta", is_reached).await;
    }
    println!("full after {:?}", started.elapsed());
    until_idle_round(&fixture).await;
    println!("quiet after {:?}", started.elapsed());
    let all = fixture.allocations().await;

    // One process in a hundred ends.
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
    until("successors", async || {
        (fixture.allocations().await.len() >= all.len()).then_some(())
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
