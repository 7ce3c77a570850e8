//! Lists of who may submit, limits and placement rules that go by groups (7.3 to 7.5).

use super::*;

/// `ops` is for the group of this name alone, `dev` has at most three quanta for all developers
/// together, and who is in `night` and asks for no queue is placed in `late`.
fn by_group() -> Value {
    json!({
        "queues": {
            "ops": { "submit_acl": " ops" },
            "dev": {
                "submit_acl": " dev",
                "limits": [{ "groups": ["dev"], "max_resources": { "memory": "3Gi" } }],
            },
            "late": { "submit_acl": " night" },
        },
        "placement": [
            { "rule": "provided" },
            { "rule": "fixed", "value": "root.late",
              "filter": { "type": "allow", "groups": ["night"] } },
        ],
    })
}

fn asks(id: &str, who: (&str, &[&str]), queue: Option<&str>, processes: u64) -> DemandEntry {
    let mut demand = queued(id, (who.0, queue.unwrap_or_default()), processes);
    let queued = demand.queued.as_mut().unwrap();
    queued.groups = who.1.iter().map(|group| (*group).to_owned()).collect();
    if queue.is_none() {
        (queued.queue, queued.pool) = (None, Some("batch".to_owned()));
    }
    demand
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_a_group_admits_its_members_and_says_why_not_others() {
    let world = World::new(&[4, 4]).await;
    put(&world, "", &policy(&by_group())).await.unwrap();
    let ops = Some("root.ops");
    world
        .around
        .ask(&asks("job_ops", ("ann", &["dev", "ops"]), ops, 1));
    world
        .around
        .ask(&asks("job_dev", ("ben", &["dev"]), ops, 1));
    world.around.ask(&asks("job_none", ("cat", &[]), ops, 1));
    // No list goes by what somebody is called.
    world.around.ask(&asks("job_name", ("ops", &[]), ops, 1));
    let all = running(&world, "job_ops", 1).await;
    assert_eq!(of(&all, "job_ops")[0].class, "root.ops");
    for (work, who) in [
        ("job_dev", "user ben (groups dev)"),
        ("job_none", "user cat"),
        ("job_name", "user ops"),
    ] {
        let refused = world.until_verdict(work, WaitReason::NotAuthorised).await;
        assert!(refused.refused, "{refused:?}");
        assert_eq!(
            refused.detail,
            format!("{who} may not submit to queue root.ops")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_a_group_counts_what_its_members_have_together() {
    let world = World::new(&[4, 4, 4]).await;
    put(&world, "", &policy(&by_group())).await.unwrap();
    let dev = Some("root.dev");
    world
        .around
        .ask(&asks("job_ann", ("ann", &["dev"]), dev, 2));
    running(&world, "job_ann", 2).await;
    world
        .around
        .ask(&asks("job_ben", ("ben", &["dev"]), dev, 5));
    running(&world, "job_ben", 1).await;
    let waits = world.until_verdict("job_ben", WaitReason::UserQuota).await;
    assert!(!waits.refused, "{waits:?}");
    assert!(waits.detail.contains("group dev"), "{}", waits.detail);
    // There was room: the queue has eight quanta.
    let queue = queue(&world, "root.dev").await.unwrap();
    assert_eq!(queue.used["memory"], 3 * GIB);
    // What one of them gives back another one may have, once it is free.
    world.around.demand.remove("job_ann");
    world.let_go().await;
    running(&world, "job_ben", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stops_takes_up_the_room_of_its_group_also_over_a_restart() {
    let mut world = World::new(&[4, 4, 4]).await;
    put(&world, "", &policy(&by_group())).await.unwrap();
    let dev = Some("root.dev");
    world
        .around
        .ask(&asks("job_ann", ("ann", &["dev"]), dev, 3));
    running(&world, "job_ann", 3).await;
    world.around.demand.remove("job_ann");
    let told = |all: &Allocations| of(all, "job_ann").iter().all(|it| it.vacate.is_some());
    world.until("all are told to leave", told).await;
    for (work, user, restarts) in [("job_ben", "ben", false), ("job_cat", "cat", true)] {
        if restarts {
            world.restart().await;
        }
        world.around.ask(&asks(work, (user, &["dev"]), dev, 3));
        let waits = world.until_verdict(work, WaitReason::UserQuota).await;
        assert!(waits.detail.contains("group dev"), "{}", waits.detail);
    }
    world.let_go().await;
    let three = |all: &Allocations| held(all, "job_ben") + held(all, "job_cat") == 3;
    world.until("the room is others'", three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_rule_goes_by_groups() {
    let world = World::new(&[4, 4]).await;
    put(&world, "", &policy(&by_group())).await.unwrap();
    world
        .around
        .ask(&asks("job_night", ("ann", &["night"]), None, 1));
    world
        .around
        .ask(&asks("job_day", ("ben", &["day"]), None, 1));
    let all = running(&world, "job_night", 1).await;
    assert_eq!(of(&all, "job_night")[0].class, "root.late");
    let placed = world.until_verdict("job_day", WaitReason::NoClass).await;
    assert!(placed.refused, "{placed:?}");
}
