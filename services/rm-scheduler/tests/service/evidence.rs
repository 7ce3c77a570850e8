//! What is told of machines: `failures` and `machines`.

use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::evidence::{FactEntry, MachineEntry, What};
use hayward_vocabulary::{Exit, ExitCause};

use super::neighbours::{job, node};
use super::world::{Allocations, World, stays};

async fn one(world: &World, work: &str) -> AllocationEntry {
    let mut demand = job(work, "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    world.until_one(work, "is there", stays).await
}

fn failed(cause: ExitCause) -> Exit {
    Exit {
        cause_code: Some("disk_full".into()),
        ..Exit::of(cause, "no room on the disk")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_asked_for_is_a_fact_and_outlives_the_scheduler() {
    let mut world = World::new(&[4]).await;
    let first = one(&world, "job_a").await;
    world.end(&first, failed(ExitCause::LaunchFailed));
    let bad = |fact: &FactEntry| fact.what == What::Failed;
    let fact: FactEntry = world
        .until_entry("failures", first.id.as_str(), "is told", bad)
        .await;
    let attempt = fact.attempt.as_ref().unwrap();
    assert_eq!((fact.node.as_str(), attempt.work.as_str()), ("n1", "job_a"));
    assert_eq!(attempt.cause, ExitCause::LaunchFailed);
    assert_eq!(attempt.cause_code.as_deref(), Some("disk_full"));
    assert!(!attempt.ran);

    // One that was heard to run says so.
    let second = world
        .until_one("job_a", "again", |it| stays(it) && it.id != first.id)
        .await;
    world.report(&second, ContainerState::Running);
    world.end(&second, failed(ExitCause::UserError));
    let second: FactEntry = world
        .until_entry("failures", second.id.as_str(), "is told", bad)
        .await;
    world.kill();
    world.start().await;
    let facts = world.entries::<FactEntry>("failures").await;
    assert_eq!(facts[first.id.as_str()], fact);
    assert!(facts.values().any(|it| *it == second));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_23_an_intended_end_is_no_fact_and_neither_is_a_success() {
    let world = World::new(&[4]).await;
    let first = one(&world, "job_a").await;
    world.around.demand.remove("job_a");
    let told = |it: &AllocationEntry| it.vacate.is_some();
    world.until_one("job_a", "told to go", told).await;
    // It made an error of being asked to end.
    world.end(&first, failed(ExitCause::UserError));
    let second = one(&world, "job_b").await;
    world.end(&second, Exit::of(ExitCause::Success, "done"));
    world.settled().await;
    // Placed by what its node offered before it was restarted: nobody failed.
    let third = one(&world, "job_c").await;
    let refused = Exit {
        cause_code: Some("not_offered".into()),
        ..Exit::of(ExitCause::Node, "this node runs no images")
    };
    world.end(&third, refused);
    let successor = |it: &AllocationEntry| stays(it) && it.id != third.id;
    world.until_one("job_c", "its successor", successor).await;
    assert!(world.entries::<FactEntry>("failures").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_counts_on_a_machine_with_a_record() {
    let mut world = World::prepared(&[4]).await;
    world.settings.worked_ms = 100;
    world.start().await;
    let before = one(&world, "job_old").await;
    let first = one(&world, "job_a").await;
    world.end(&first, failed(ExitCause::Node));
    let told = |_: &FactEntry| true;
    world
        .until_entry("failures", first.id.as_str(), "is told", told)
        .await;
    // What was there before the failure shows nothing by ending well.
    world.end(&before, Exit::of(ExitCause::Success, "done"));
    let after = world
        .until_one("job_a", "again", |it| stays(it) && it.id != first.id)
        .await;
    world.report(&after, ContainerState::Running);
    let worked = |fact: &FactEntry| fact.what == What::Worked;
    let fact = world
        .until_entry("failures", after.id.as_str(), "worked", worked)
        .await;
    assert!(fact.attempt.unwrap().ran);
    let facts = world.entries::<FactEntry>("failures").await;
    assert!(!facts.contains_key(before.id.as_str()));
    // If it fails after all, that is what counts.
    world.end(&after, failed(ExitCause::UserLimit));
    let bad = |fact: &FactEntry| fact.what == What::Failed;
    world
        .until_entry("failures", after.id.as_str(), "failed", bad)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_bounded_for_each_node() {
    let mut world = World::prepared(&[8, 8]).await;
    world.settings.facts_a_node = 3;
    world.start().await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 12;
    world.around.ask(&demand);
    let all = world.until("all of it", |all| all.len() == 12).await;
    for entry in all.values() {
        world.end(entry, failed(ExitCause::LaunchFailed));
    }
    let over = |all: &Allocations| all.values().filter(|it| !it.holds()).count() == 12;
    world.until("all over", over).await;
    let facts = world.entries::<FactEntry>("failures").await;
    for node in ["n1", "n2"] {
        let here = facts.values().filter(|it| it.node.as_str() == node).count();
        assert!((1..=3).contains(&here), "{facts:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_is_told_for_a_time() {
    let mut world = World::prepared(&[4]).await;
    world.settings.facts_kept_ms = 4_000;
    world.start().await;
    let first = one(&world, "job_a").await;
    world.end(&first, failed(ExitCause::Node));
    let told = |_: &FactEntry| true;
    let key = first.id.as_str();
    world.until_entry("failures", key, "is told", told).await;
    world.until_gone("failures", key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_of_a_node_and_its_end_are_facts() {
    let world = World::new(&[4]).await;
    world.settled().await;
    let what = |what: What| {
        let world = &world;
        async move {
            hayward_testkit::until("the fact", async || {
                let facts = world.entries::<FactEntry>("failures").await;
                let count = facts.values().filter(|it| it.what == what).count();
                (count == 1).then_some(())
            })
            .await;
        }
    };
    let mut silent = node("n1", 4);
    for health in [Health::Suspect, Health::Lost] {
        silent.health = health;
        world.around.nodes.put("n1", &silent);
        what(What::Silenced).await;
    }
    world.around.node("n1", 4);
    what(What::Heard).await;
    let facts = world.entries::<FactEntry>("failures").await;
    assert!(facts.keys().all(|key| key.starts_with("node/n1/")));
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_told_as_the_policy_sees_them_and_change_with_their_meaning() {
    let world = World::new(&[4, 8]).await;
    let any = |_: &MachineEntry| true;
    let told: MachineEntry = world.until_entry("machines", "n2", "is there", any).await;
    assert_eq!(
        (told.pool.as_str(), told.ready, told.quanta),
        ("default", true, 8)
    );
    world.around.node("n3", 2);
    world.until_entry("machines", "n3", "has joined", any).await;
    let mut restarted = node("n2", 8);
    restarted.agent_instance = "second".into();
    restarted.schedulable = false;
    world.around.nodes.put("n2", &restarted);
    let off = |it: &MachineEntry| !it.ready;
    world.until_entry("machines", "n2", "is off", off).await;
    world.around.nodes.remove("n1");
    world.until_gone("machines", "n1").await;
}
