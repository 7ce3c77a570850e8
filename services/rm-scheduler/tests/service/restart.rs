//! The scheduler is killed in the middle of things.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::{AllocationState, VacateReason, WaitReason};
use hayward_service::Code;
use http::Method;
use http::header::IF_MATCH;

use super::neighbours::{job, reservation};
use super::world::{World, of, stays};

#[tokio::test(flavor = "multi_thread")]
async fn allocations_and_incarnations_go_on_where_they_were() {
    let mut world = World::new(&[4, 4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 3;
    world.around.ask(&demand);
    let mut other = job("job_b", "bob");
    other.max_processes = 2;
    world.around.ask(&other);
    let all = world.until("five", |all| all.len() == 5).await;
    for entry in all.values() {
        world.report(entry, ContainerState::Running);
    }
    let running = |all: &super::world::Allocations| {
        all.values()
            .all(|entry| entry.state == AllocationState::Running)
    };
    let before = world.until("all running", running).await;
    world.settled().await;
    let ledger = world.shares().await.unwrap().ledger;

    // While nobody is there: one of ann's ends, and bob gives up.
    world.kill();
    let ended = of(&before, "job_a").remove(0);
    world.report(&ended, ContainerState::Ended);
    world.around.demand.remove("job_b");
    world.start().await;
    let all = world
        .until("the successor", |all| {
            of(all, "job_a").iter().any(|e| e.incarnation == 4)
        })
        .await;
    assert_eq!(
        of(&all, "job_a")
            .iter()
            .filter(|entry| stays(entry))
            .count(),
        3
    );
    for entry in of(&before, "job_a")
        .iter()
        .filter(|entry| entry.id != ended.id)
    {
        assert_eq!(all.get(entry.id.as_str()), Some(entry));
    }
    let gone = |all: &super::world::Allocations| {
        let told = |entry: &hayward_rm_scheduler_api::AllocationEntry| {
            entry
                .vacate
                .as_ref()
                .is_some_and(|vacate| vacate.reason == VacateReason::WorkGone)
        };
        of(all, "job_b").iter().all(told)
    };
    world.until("bob's to go", gone).await;
    world.settled().await;
    assert!(!world.verdicts().await.contains_key("job_b"));
    assert_eq!(world.allocations().await.len(), 6);
    let now = world.shares().await.unwrap().ledger;
    for line in ledger {
        let same = now
            .iter()
            .find(|now| now.user == line.user && now.class == line.class);
        let received = same.map_or(0, |same| same.received_quantum_ms);
        // Of three quanta, less than two seconds may be lost.
        assert!(
            line.received_quantum_ms <= received + 3 * 2_000,
            "{line:?} {same:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_it_never_grants_twice() {
    let mut world = World::new(&[16]).await;
    for at in 0..8 {
        let work = format!("job_{at}");
        let mut demand = job(&work, "ann");
        demand.max_processes = 2;
        world.around.ask(&demand);
        // The instant is any: some of these are granted before, some after.
        world.restart().await;
    }
    world.until("two each", |all| all.len() == 16).await;
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all.len(), 16);
    for at in 0..8 {
        let mut numbers: Vec<u64> = of(&all, &format!("job_{at}"))
            .iter()
            .map(|entry| entry.incarnation)
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2], "job_{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_news_commits_nothing() {
    let mut world = World::new(&[2, 8]).await;
    world.around.ask(&job("job_a", "ann"));
    world.around.ask(&reservation("rsv_a", "bob", 8));
    world.until("all in use", |all| all.len() == 3).await;
    world.settled().await;
    let before = (world.allocations().await, world.verdicts().await);
    world.restart().await;
    world.settled().await;
    assert_eq!((world.allocations().await, world.verdicts().await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_outlives_its_scheduler() {
    let mut world = World::new(&[1]).await;
    let mut policy = Policy::default();
    policy.classes.get_mut("high").unwrap().weight = Some(7);
    let call = world
        .client("operator")
        .call(Method::PUT, "/v1/policy")
        .header(IF_MATCH, "\"0\"");
    let set: PolicyView = call.body(&policy).send().await.unwrap();
    world.restart().await;
    let read: PolicyView = world.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(read, set);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_leads_and_the_other_takes_over() {
    let mut world = World::new(&[2]).await;
    let second = world.beside().await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    let before = world.until("one", |all| all.len() == 1).await;
    assert!(!second.is_leading());
    let refused: Result<serde_json::Value, _> = world
        .client_of(&second, "operator")
        .get("/v1/allocations")
        .await;
    assert_eq!(refused.unwrap_err().problem().unwrap().code, Code::Standby);

    world.take_over(second);
    let bob = job("job_b", "bob");
    world.around.ask(&bob);
    second_leads(&world).await;
    let all = world
        .until("bob's", |all| of(all, "job_b").len() == 1)
        .await;
    assert_eq!(all.len(), 2);
    for (id, entry) in &before {
        assert_eq!(all.get(id), Some(entry));
    }
    world.until_verdict("job_a", WaitReason::Satisfied).await;
}

async fn second_leads(world: &World) {
    hayward_testkit::until("the other to lead", async || {
        world
            .client("operator")
            .get::<serde_json::Value>("/v1/allocations")
            .await
            .ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rounds_remember_outlives_the_scheduler_and_idle_rounds_write_none_of_it() {
    let mut world = World::new(&[5]).await;
    world.around.ask(&job("job_a", "ann"));
    let all = world.until("all of it", |all| all.len() == 5).await;
    for entry in all.values() {
        world.report(entry, ContainerState::Running);
    }
    world.around.ask(&job("job_b", "bob"));
    world
        .until("two to go", |all| {
            all.values().filter(|entry| !stays(entry)).count() >= 2
        })
        .await;
    world.settled().await;
    // A hit is forgotten by itself, some rounds later.
    let rows = "select kind || ' ' || name || ' ' || body::text from rm_scheduler.carried
                where kind <> 'hit' order by kind, name";
    let before = world.rows(rows).await;
    // Of five quanta each is due two and a half: the class is even, and its users are not.
    let kinds = |kind: &str| before.iter().filter(|row| row.starts_with(kind)).count();
    assert_eq!(
        (kinds("claim"), kinds("class"), kinds("user")),
        (1, 1, 2),
        "{before:?}"
    );
    world.restart().await;
    world.settled().await;
    assert_eq!(world.rows(rows).await, before);

    world.around.demand.remove("job_b");
    hayward_testkit::until("bob to be forgotten", async || {
        (!world.verdicts().await.contains_key("job_b")).then_some(())
    })
    .await;
    world.settled().await;
    let after = world.rows(rows).await;
    let of_bob = |row: &String| row.contains("job_b") || row.contains("bob");
    assert!(!after.iter().any(of_bob), "{after:?}");
}
