//! Who has to make room for whom, and whether the books balance.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::{VacateReason, WaitReason};
use hayward_testkit::until;

use super::neighbours::{job, reservation, service};
use super::world::{World, of, stays};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_user_gets_half_once_the_first_has_left_it() {
    let world = World::new(&[4]).await;
    world.around.ask(&job("job_a", "ann"));
    let all = world.until("all of it", |all| all.len() == 4).await;
    for entry in all.values() {
        world.report(entry, ContainerState::Running);
    }
    world.around.ask(&job("job_b", "bob"));
    let all = world
        .until("two to go", |all| {
            all.values().filter(|e| !stays(e)).count() == 2
        })
        .await;
    world
        .until_verdict("job_b", WaitReason::WaitingForPreemption)
        .await;
    world.settled().await;
    // What leaves holds its room until it is proven gone.
    assert!(of(&world.allocations().await, "job_b").is_empty());
    let leaving: Vec<_> = all.values().filter(|entry| !stays(entry)).collect();
    for (at, entry) in leaving.iter().enumerate() {
        assert_eq!(
            entry.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
        world.report(entry, ContainerState::Ended);
        world
            .until("room", |all| of(all, "job_b").len() == at + 1)
            .await;
    }
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(
        of(&all, "job_a")
            .iter()
            .filter(|entry| stays(entry))
            .count(),
        2
    );
    assert_eq!(
        of(&all, "job_b")
            .iter()
            .filter(|entry| stays(entry))
            .count(),
        2
    );
    let shares = world.shares().await.unwrap();
    let normal = shares
        .classes
        .iter()
        .find(|class| class.class == "normal")
        .unwrap();
    let due: Vec<(&str, u64)> = normal
        .users
        .iter()
        .map(|user| (user.user.as_str(), user.due))
        .collect();
    assert_eq!(due, [("ann", 2), ("bob", 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_balance_and_the_ledger_counts_on() {
    let world = World::new(&[8, 8, 4]).await;
    world.around.ask(&reservation("rsv_a", "ann", 4));
    world.around.ask(&service("svc_a.0", "bob"));
    let mut low = job("job_l", "cy");
    low.class = Some("low".into());
    world.around.ask(&low);
    world.around.ask(&job("job_n", "dee"));
    world
        .until("everything in use", |all| {
            all.values().map(|entry| entry.order).sum::<u64>() == 20
        })
        .await;
    world.settled().await;
    let shares = world.shares().await.unwrap();
    assert_eq!((shares.capacity, shares.held, shares.free), (20, 20, 0));
    assert_eq!(
        shares.classes.iter().map(|class| class.held).sum::<u64>(),
        shares.held
    );
    for class in &shares.classes {
        assert_eq!(
            class.users.iter().map(|user| user.held).sum::<u64>(),
            class.held
        );
        assert_eq!(
            class.users.iter().map(|user| user.due).sum::<u64>(),
            class.due
        );
    }
    let due = |class: &str| {
        shares
            .classes
            .iter()
            .find(|c| c.class == class)
            .unwrap()
            .due
    };
    assert_eq!((due("reserve"), due("service")), (4, 1));
    // 15 remaining quanta at 100 to 50.
    assert_eq!((due("normal"), due("low")), (10, 5));

    let line = |shares: &hayward_rm_scheduler_api::views::Shares, user: &str| {
        let line = shares
            .ledger
            .iter()
            .find(|line| line.user.as_str() == user)
            .cloned();
        line.map_or((0, 0), |line| {
            (line.due_quantum_ms, line.received_quantum_ms)
        })
    };
    // The last news may make a round yet; after it, time alone makes none.
    let mut before = shares;
    until("time to be charged without a round", async || {
        let now = world.shares().await?;
        if now.round != before.round {
            before = now;
            return None;
        }
        let ((due, received), then) = (line(&now, "dee"), line(&before, "dee"));
        (now.at > before.at && due > then.0 && received > then.1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_news_nothing_is_committed_but_the_ledger_once_a_second() {
    let world = World::new(&[3, 5, 7]).await;
    for (work, user, quanta) in [("job_a", "ann", 2), ("job_b", "bob", 3), ("job_c", "cy", 1)] {
        let mut demand = job(work, user);
        demand.size.memory_bytes *= quanta;
        world.around.ask(&demand);
    }
    world.until("something", |all| all.len() > 3).await;
    world.settled().await;
    let (revision, start) = (world.revision(), world.shares().await.unwrap());
    // By the scheduler's own account of time: a good second.
    let end = until("a second to pass", async || {
        let now = world.shares().await.unwrap();
        (now.at.ms_since(start.at) > 1_200).then_some(now)
    })
    .await;
    let commits = world.revision() - revision;
    let seconds = end.at.ms_since(start.at) / 1_000 + 1;
    assert!(commits <= seconds, "{commits} commits in {seconds} seconds");
    assert_eq!(end.round, start.round);
}
