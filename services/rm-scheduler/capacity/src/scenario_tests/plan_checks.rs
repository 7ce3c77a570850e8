//! Tests of the checks of a plan before its commit, which are independent of the planners: `check`
//! refuses invalid plans, and gangs are committed as a whole or not at all.

use hayward_rm_scheduler_domain::{
    Fault, Plan, check,
    gangs::{GangGrants, MAX_GRANTS_PER_ROUND, limit_grants},
};
use serde_json::json;

use super::VCORE;
use crate::fixture::{Fixture, gang_named, granted_works};

/// Creates work with three processes in the queue `root.p.a`. The queue may have four vcores, and
/// each user may have three of them.
fn fixture() -> Fixture {
    let limits = json!([{"users": ["*"], "max_resources": {"vcore": 3}}]);
    let leaf = json!({"resources": {"max": {"vcore": 4}}, "limits": limits});
    let parent = json!({"queues": {"a": leaf, "b": {}}});
    let root = json!({"submit_acl": "*", "queues": {"p": parent}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    fixture.add_processes("job_1", "root.p.a", 3, VCORE);
    fixture
}

fn check_faults(fixture: &Fixture, plan: &Plan) -> Vec<Fault> {
    let violations = check(&fixture.snapshot, plan).err().unwrap_or_default();
    violations.into_iter().map(|it| it.fault).collect()
}

#[test]
fn a_grant_needs_an_existing_leaf() {
    let fixture = fixture();
    let faults_with_class = |class: &str| {
        let mut plan = fixture.plan();
        plan.grants.truncate(1);
        plan.grants[0].class = class.into();
        check_faults(&fixture, &plan)
    };
    for invalid in ["root", "root.p", "root.p.a.c", "elsewhere.p.a", "normal"] {
        assert_eq!(
            faults_with_class(invalid),
            [Fault::WrongClass(invalid.to_owned())]
        );
    }
    // A queue may be created below an inner queue.
    assert_eq!(faults_with_class("root.p.made"), []);
}

#[test]
fn a_grant_over_a_maximum_is_refused() {
    let mut fixture = fixture();
    let mut plan = fixture.plan();
    fixture.add_processes("job_1", "root.p.a", 9, VCORE);
    fixture
        .snapshot
        .demand
        .get_mut("job_1")
        .unwrap()
        .max_processes = 9;
    let over_quota = |would_hold: u64, limit: u64| Fault::OverQuota {
        queue: "root.p.a".to_owned(),
        resource: "vcore".to_owned(),
        would_hold: would_hold * VCORE,
        limit: limit * VCORE,
    };
    // The limit of one user.
    plan.grants.push(plan.grants[0].clone());
    assert_eq!(check_faults(&fixture, &plan), [over_quota(4, 3)]);
    // The maximum of the queue.
    let queues = fixture.snapshot.queues.values_mut().next().unwrap();
    let parent = queues.root.children.get_mut("p").unwrap();
    parent.children.get_mut("a").unwrap().limits.clear();
    assert_eq!(check_faults(&fixture, &plan), []);
    plan.grants.push(plan.grants[0].clone());
    assert_eq!(check_faults(&fixture, &plan), [over_quota(5, 4)]);
}

#[test]
fn queued_work_stays_in_its_pool_and_may_be_preempted() {
    let mut fixture = fixture();
    let plan = fixture.plan();
    let mut plan_with_fixed_grant = plan.clone();
    plan_with_fixed_grant.grants.truncate(1);
    plan_with_fixed_grant.grants[0].fixed = true;
    assert!(matches!(
        check_faults(&fixture, &plan_with_fixed_grant)[..],
        [Fault::Misdescribed(_)]
    ));
    fixture.snapshot.queues.clear();
    assert!(matches!(
        check_faults(&fixture, &plan)[..],
        [Fault::OutsidePools { .. }, ..]
    ));
}

/// Creates a plan with grants of a job, a gang in two parts, another gang, and another job.
fn fixture_with_gangs() -> (Fixture, Plan) {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    fixture.add_processes("job_1", "root.a", 2, VCORE);
    fixture.add_gang_part("job_2", "root.a", gang_named("one", 2), VCORE);
    fixture.add_gang_part("job_3", "root.a", gang_named("one", 1), VCORE);
    fixture.add_gang_part("job_4", "root.a", gang_named("two", 1), VCORE);
    fixture.add_processes("job_5", "root.a", 1, VCORE);
    let plan = fixture.plan();
    let order = [
        "job_1", "job_1", "job_2", "job_2", "job_3", "job_4", "job_5",
    ];
    assert_eq!(granted_works(&plan), order);
    (fixture, plan)
}

#[test]
fn a_gang_is_dropped_as_a_whole_when_one_grant_is_dropped() {
    let (fixture, plan) = fixture_with_gangs();
    let planned = GangGrants::new(&fixture.snapshot, &plan.grants);
    // Removes one grant. Returns whether a gang was dropped, and the remaining grants.
    let drop_grant = |index: usize| {
        let mut plan = plan.clone();
        plan.grants.remove(index);
        let has_dropped = planned.drop_incomplete(&fixture.snapshot, &mut plan.grants);
        (has_dropped, granted_works(&plan).join(" "))
    };
    assert_eq!(
        drop_grant(0),
        (false, "job_1 job_2 job_2 job_3 job_4 job_5".to_owned())
    );
    for index in 2..5 {
        assert_eq!(
            drop_grant(index),
            (true, "job_1 job_1 job_4 job_5".to_owned())
        );
    }
    assert_eq!(
        drop_grant(5),
        (false, "job_1 job_1 job_2 job_2 job_3 job_5".to_owned())
    );
}

#[test]
fn a_plan_too_large_for_one_commit_is_cut_between_gangs() {
    let (fixture, plan) = fixture_with_gangs();
    // Maximum number of grants, number of remaining grants, and whether the plan is cut.
    for (limit, remaining, is_cut) in [
        (7, 7, false),
        (6, 6, true),
        (5, 5, true),
        (4, 2, true),
        (2, 2, true),
    ] {
        let mut grants = plan.grants.clone();
        assert_eq!(limit_grants(&fixture.snapshot, &mut grants, limit), is_cut);
        assert_eq!(grants, plan.grants[..remaining]);
    }
}

#[test]
fn a_gang_larger_than_one_commit_is_refused() {
    let (mut fixture, _) = fixture_with_gangs();
    let limit = MAX_GRANTS_PER_ROUND as u64;
    fixture.add_gang_part("job_most", "root.a", gang_named("most", limit), 1);
    fixture.add_gang_part("job_more", "root.a", gang_named("more", limit), 1);
    fixture.add_gang_part("job_more_2", "root.a", gang_named("more", 1), 1);
    let plan = fixture.plan();
    for (id, refused) in [
        ("job_most", false),
        ("job_more", true),
        ("job_more_2", true),
    ] {
        let verdict = &plan.verdicts[id];
        assert_eq!(verdict.refused, refused, "{id}: {verdict:?}");
    }
    let detail = &plan.verdicts["job_more"].detail;
    assert!(
        detail.contains("10001 processes of its gang more"),
        "{detail}"
    );
}
