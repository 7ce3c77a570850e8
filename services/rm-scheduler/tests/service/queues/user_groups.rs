//! Tests of user groups in queues: access lists, limits and placement rules that name groups.

use super::*;

/// Returns three queues. Only the group `ops` may use `ops`. Members of the group `dev` may
/// together use three quanta in `dev`. Work of the group `night` that names no queue is placed in
/// `late`.
fn queues_by_group() -> Value {
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

fn job_with_groups(
    id: &str,
    user: &str,
    groups: &[&str],
    queue: Option<&str>,
    processes: u64,
) -> DemandEntry {
    let mut demand = queued_job(id, user, queue.unwrap_or_default(), processes);
    let queued = demand.queued.as_mut().unwrap();
    queued.groups = groups.iter().map(|group| (*group).to_owned()).collect();
    if queue.is_none() {
        (queued.queue, queued.pool) = (None, Some("batch".to_owned()));
    }
    demand
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_a_group_admits_its_members_and_explains_the_refusal_of_others() {
    let fixture = Fixture::new(&[4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&queues_by_group()))
        .await
        .unwrap();
    let ops = Some("root.ops");
    fixture
        .neighbours
        .submit(&job_with_groups("job_ops", "ann", &["dev", "ops"], ops, 1));
    fixture
        .neighbours
        .submit(&job_with_groups("job_dev", "ben", &["dev"], ops, 1));
    fixture
        .neighbours
        .submit(&job_with_groups("job_none", "cat", &[], ops, 1));
    // The user is named `ops` like the group. An access list of groups does not match users.
    fixture
        .neighbours
        .submit(&job_with_groups("job_name", "ops", &[], ops, 1));
    let all = until_running(&fixture, "job_ops", 1).await;
    assert_eq!(allocations_of(&all, "job_ops")[0].class, "root.ops");
    for (work, subject) in [
        ("job_dev", "user ben (groups dev)"),
        ("job_none", "user cat"),
        ("job_name", "user ops"),
    ] {
        let refused = fixture.until_verdict(work, WaitReason::NotAuthorised).await;
        assert!(refused.refused, "{refused:?}");
        assert_eq!(
            refused.detail,
            format!("{subject} may not submit to queue root.ops")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_a_group_counts_all_its_members_together() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&queues_by_group()))
        .await
        .unwrap();
    let dev = Some("root.dev");
    fixture
        .neighbours
        .submit(&job_with_groups("job_ann", "ann", &["dev"], dev, 2));
    until_running(&fixture, "job_ann", 2).await;
    fixture
        .neighbours
        .submit(&job_with_groups("job_ben", "ben", &["dev"], dev, 5));
    until_running(&fixture, "job_ben", 1).await;
    let waits = fixture
        .until_verdict("job_ben", WaitReason::UserQuota)
        .await;
    assert!(!waits.refused, "{waits:?}");
    assert!(waits.detail.contains("group dev"), "{}", waits.detail);
    // Only the limit counts, because the pool has free space.
    let queue = find_queue(&fixture, "root.dev").await.unwrap();
    assert_eq!(queue.used["memory"], 3 * GIB);
    // The space that one member gives back goes to the other member.
    fixture.neighbours.demand.remove("job_ann");
    fixture.confirm_all_ends().await;
    until_running(&fixture, "job_ben", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_work_counts_against_its_group_also_after_a_restart() {
    let mut fixture = Fixture::new(&[4, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&queues_by_group()))
        .await
        .unwrap();
    let dev = Some("root.dev");
    fixture
        .neighbours
        .submit(&job_with_groups("job_ann", "ann", &["dev"], dev, 3));
    until_running(&fixture, "job_ann", 3).await;
    fixture.neighbours.demand.remove("job_ann");
    let all_vacated = |all: &Allocations| {
        allocations_of(all, "job_ann")
            .iter()
            .all(|it| it.vacate.is_some())
    };
    fixture
        .until("all processes of job_ann to leave", all_vacated)
        .await;
    for (work, user, restarts) in [("job_ben", "ben", false), ("job_cat", "cat", true)] {
        if restarts {
            fixture.restart().await;
        }
        fixture
            .neighbours
            .submit(&job_with_groups(work, user, &["dev"], dev, 3));
        let waits = fixture.until_verdict(work, WaitReason::UserQuota).await;
        assert!(waits.detail.contains("group dev"), "{}", waits.detail);
    }
    fixture.confirm_all_ends().await;
    let three = |all: &Allocations| count_held(all, "job_ben") + count_held(all, "job_cat") == 3;
    fixture
        .until("three processes of the other users", three)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_rule_can_use_groups() {
    let fixture = Fixture::new(&[4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&queues_by_group()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&job_with_groups("job_night", "ann", &["night"], None, 1));
    fixture
        .neighbours
        .submit(&job_with_groups("job_day", "ben", &["day"], None, 1));
    let all = until_running(&fixture, "job_night", 1).await;
    assert_eq!(allocations_of(&all, "job_night")[0].class, "root.late");
    let refused = fixture.until_verdict("job_day", WaitReason::NoClass).await;
    assert!(refused.refused, "{refused:?}");
}
