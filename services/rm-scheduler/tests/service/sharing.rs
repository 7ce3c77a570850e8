//! Tests of sharing between users: preemption up to the fair share, and published shares and
//! ledgers whose sums agree.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::shares::{CapParts, ClassShare, Shares, Tally};
use hayward_rm_scheduler_api::{VacateReason, WaitReason};
use hayward_testkit::until;

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{block, job, node, reservation, service};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_user_gets_half_once_the_first_has_left_it() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("four processes", |all| all.len() == 4).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.neighbours.submit(&job("job_b", "bob"));
    let all = fixture
        .until("two processes to leave", |all| {
            all.values().filter(|entry| !is_staying(entry)).count() == 2
        })
        .await;
    fixture
        .until_verdict("job_b", WaitReason::WaitingForPreemption)
        .await;
    fixture.settle().await;
    // A leaving process holds its space until its end is proven.
    assert!(allocations_of(&fixture.allocations().await, "job_b").is_empty());
    let leaving: Vec<_> = all.values().filter(|entry| !is_staying(entry)).collect();
    for (index, entry) in leaving.iter().enumerate() {
        assert_eq!(
            entry.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
        fixture.report(entry, ContainerState::Ended);
        fixture
            .until("the next process of job_b", |all| {
                allocations_of(all, "job_b").len() == index + 1
            })
            .await;
    }
    fixture.settle().await;
    let all = fixture.allocations().await;
    for work in ["job_a", "job_b"] {
        let mut staying = allocations_of(&all, work);
        staying.retain(is_staying);
        assert_eq!(staying.len(), 2, "{work}");
    }
    let shares = fixture.shares().await.unwrap();
    let normal = shares
        .classes
        .iter()
        .find(|class| class.class == "normal")
        .unwrap();
    let due: Vec<(&str, u64)> = normal
        .users
        .iter()
        .map(|user| (user.user.as_str(), user.tally.due))
        .collect();
    assert_eq!(due, [("ann", 2), ("bob", 2)]);
    assert_other_users_are_a_sum(&fixture, normal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allocations_and_the_fairness_ledger_balance() {
    let fixture = Fixture::new(&[8, 8, 4]).await;
    fixture.neighbours.submit(&reservation("rsv_a", "ann", 4));
    fixture.neighbours.submit(&service("svc_a.0", "bob"));
    let mut low = job("job_l", "cy");
    low.class = Some("low".into());
    fixture.neighbours.submit(&low);
    fixture.neighbours.submit(&job("job_n", "dee"));
    fixture
        .until("everything in use", |all| {
            all.values().map(|entry| entry.order).sum::<u64>() == 20
        })
        .await;
    let due = |shares: &Shares, class: &str| {
        let found = shares.classes.iter().find(|it| it.class == class);
        found.unwrap().tally.due
    };
    // The classes `normal` and `low` share 15 quanta by their weights 100 and 50. At first one user
    // may hold more than its share, and lent quanta count as due until they are given back.
    let shares = until("even shares", async || {
        fixture.confirm_all_ends().await;
        let shares = fixture.shares().await?;
        let even = (due(&shares, "normal"), due(&shares, "low")) == (10, 5);
        (even && shares.free == 0).then_some(shares)
    })
    .await;
    assert_eq!((shares.capacity, shares.held, shares.free), (20, 20, 0));
    assert_adds_up(&shares);
    assert_eq!((due(&shares, "reserve"), due(&shares, "service")), (4, 1));

    // Returns the due and the received quantum milliseconds of a user.
    let line = |shares: &Shares, user: &str| {
        let line = shares
            .ledger
            .iter()
            .find(|line| line.user.as_str() == user)
            .cloned();
        line.map_or((0, 0), |line| {
            (line.due_quantum_ms, line.received_quantum_ms)
        })
    };
    // The last change may cause one more round. Afterwards time alone causes none.
    let mut before = shares;
    until("time to be charged without a round", async || {
        let now = fixture.shares().await?;
        if now.round != before.round {
            before = now;
            return None;
        }
        let (due_before, received_before) = line(&before, "dee");
        let (due, received) = line(&now, "dee");
        let is_charged = due > due_before && received > received_before;
        (now.at > before.at && is_charged).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_changes_only_the_ledger_is_committed_once_a_second() {
    let fixture = Fixture::new(&[3, 5, 7]).await;
    for (work, user, quanta) in [("job_a", "ann", 2), ("job_b", "bob", 3), ("job_c", "cy", 1)] {
        let mut demand = job(work, user);
        demand.size.memory_bytes *= quanta;
        fixture.neighbours.submit(&demand);
    }
    fixture.until("four processes", |all| all.len() > 3).await;
    fixture.settle().await;
    let (mut revision, mut start) = (fixture.revision(), fixture.shares().await.unwrap());
    // Measures more than a second without a round, so that all earlier changes are complete.
    let end = until("a second to pass without a round", async || {
        let now = fixture.shares().await.unwrap();
        if now.round != start.round {
            (revision, start) = (fixture.revision(), now);
            return None;
        }
        (now.at.ms_since(start.at) > 1_200).then_some(now)
    })
    .await;
    let commits = fixture.revision() - revision;
    let seconds = end.at.ms_since(start.at) / 1_000 + 1;
    assert!(commits <= seconds, "{commits} commits in {seconds} seconds");
}

/// Asserts every equation between the numbers of the shares.
fn assert_adds_up(shares: &Shares) {
    let mut in_classes = Tally::default();
    for class in &shares.classes {
        let mut in_class = Tally::default();
        for user in &class.users {
            let mut of_user = Tally::default();
            for work in &user.work {
                let tally = &work.tally;
                assert_eq!(tally.due, work.counted * work.order, "{work:?}");
                assert_eq!(work.wanted, min_cap(&work.cap), "{work:?}");
                add_tally(&mut of_user, tally);
            }
            assert_eq!(user.tally, of_user, "{user:?}");
            assert_eq!(user.given, user.left + user.tally.divided, "{user:?}");
            add_tally(&mut in_class, &user.tally);
        }
        assert_eq!(class.tally, in_class, "{}", class.class);
        let given: u64 = class.users.iter().map(|user| user.given).sum();
        assert_eq!(class.given, class.left + given, "{}", class.class);
        add_tally(&mut in_classes, &class.tally);
    }
    let mut by_priority = Tally::default();
    for group in &shares.priorities {
        add_tally(&mut by_priority, &group.tally);
    }
    assert_eq!(by_priority, in_classes);
    add_tally(&mut in_classes, &shares.unclassed);
    let all = in_classes;
    assert_eq!(all.due, all.divided + all.resting + all.lent);
    assert_eq!(all.held, all.staying + all.granted + all.vacating);
    assert_pools_add_up(shares, &all);
}

fn assert_pools_add_up(shares: &Shares, all: &Tally) {
    let (mut held, mut usable, mut free) = (shares.elsewhere, 0, 0);
    for pool in &shares.pools {
        let closed = pool.lost + pool.offline + pool.blocked + pool.declined + pool.withheld;
        assert_eq!(pool.total, pool.usable + closed, "{pool:?}");
        assert_eq!(pool.usable + pool.over, pool.held + pool.free, "{pool:?}");
        let idle = &pool.idle;
        let reasons = idle.meant + idle.kept + idle.split + idle.capped + idle.unasked;
        assert_eq!(pool.free, reasons, "{pool:?}");
        held += pool.held + pool.held_closed;
        usable += pool.usable;
        free += pool.free;
    }
    assert_eq!(
        (shares.held, shares.capacity, shares.free),
        (held, usable, free)
    );
    assert_eq!(shares.held, all.held);
    let mut available = usable - shares.pools.iter().map(|pool| pool.fixed).sum::<u64>();
    for turn in shares.priorities.iter().filter_map(|group| group.turn) {
        assert_eq!(turn.available, available, "{turn:?}");
        available -= turn.taken;
    }
}

fn min_cap(cap: &CapParts) -> u64 {
    let parts = [cap.initialization, cap.doubling, cap.room];
    let base = cap.prediction.unwrap_or(cap.base);
    parts.into_iter().flatten().fold(base, u64::min)
}

fn add_tally(sum: &mut Tally, tally: &Tally) {
    sum.due += tally.due;
    sum.divided += tally.divided;
    sum.resting += tally.resting;
    sum.lent += tally.lent;
    sum.held += tally.held;
    sum.staying += tally.staying;
    sum.granted += tally.granted;
    sum.vacating += tally.vacating;
    sum.closed += tally.closed;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_add_up_from_capacity_to_each_job_while_nodes_are_marked_and_lost() {
    let fixture = Fixture::new(&[8, 6, 4, 3]).await;
    fixture.neighbours.submit(&service("svc_a.0", "bob"));
    let mut large = job("job_l", "cy");
    large.size.memory_bytes *= 3;
    fixture.neighbours.submit(&large);
    let mut low = job("job_s", "dee");
    (low.class, low.max_processes) = (Some("low".into()), 7);
    fixture.neighbours.submit(&low);
    // The amounts depend on how many of the submissions one round absorbs.
    let has = |all: &Allocations, work: &str| all.values().any(|it| it.work.as_str() == work);
    let each = |all: &Allocations| ["svc_a.0", "job_l", "job_s"].map(|work| has(all, work));
    let all = fixture
        .until("some of each", |all| each(all) == [true; 3])
        .await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.settle().await;
    assert_adds_up(&fixture.shares().await.unwrap());

    let mut marked = block(BlockKind::Node, "n1", None);
    marked.action = BlockAction::Mark;
    fixture.neighbours.block(&marked);
    let mut lost = node("n3", 4);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put("n3", &lost);
    fixture.neighbours.submit(&reservation("rsv_a", "eve", 6));
    let shares = until("both changes to be counted", async || {
        let shares = fixture.shares().await?;
        (shares.pools[0].blocked == 8 && shares.pools[0].lost == 4).then_some(shares)
    })
    .await;
    assert_adds_up(&shares);
    assert_eq!((shares.pools[0].total, shares.capacity), (21, 9));
    fixture.settle().await;
    let shares = fixture.shares().await.unwrap();
    assert_adds_up(&shares);
    // Allocations on the marked node stay due.
    let resting: u64 = shares.classes.iter().map(|class| class.tally.resting).sum();
    assert!(resting > 0, "{shares:#?}");
    assert!(shares.pools[0].held_closed >= resting);
}

/// A user sees only own work, and the sum of the work of all others (S12).
async fn assert_other_users_are_a_sum(fixture: &Fixture, whole: &ClassShare) {
    let seen: Shares = fixture.client("ann").get("/v1/shares").await.unwrap();
    let text = serde_json::to_string(&seen).unwrap();
    assert!(!text.contains("bob") && !text.contains("job_b"), "{text}");
    let normal = seen.classes.iter().find(|it| it.class == whole.class);
    let normal = normal.unwrap();
    assert_eq!(normal.tally, whole.tally);
    let others = normal.others.as_ref().unwrap();
    assert_eq!((others.users, others.tally.due), (1, 2));
    assert_eq!(normal.users, whole.users[..1]);
}
