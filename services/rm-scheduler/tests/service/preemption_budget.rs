//! Tests of the preemption budget: how much may be preempted per hour, also across a restart (B5).

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::shares::{Budgets, PoolBudget, UserBudget};
use hayward_rm_scheduler_api::{VerdictEntry, WaitReason};
use hayward_service::Code;
use hayward_vocabulary::{Unblock, UserName};
use http::Method;
use http::header::IF_MATCH;

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::job;

impl Fixture {
    async fn set_budget(&self, generation: u64, percent: u64) {
        let mut policy = Policy::default();
        policy.settings.preemption_pool_percent_per_hour = Some(percent);
        let client = self.client("operator");
        let call = client.call(Method::PUT, "/v1/policy");
        let call = call.header(IF_MATCH, &format!("\"{generation}\""));
        let _: PolicyView = call.body(&policy).send().await.unwrap();
    }

    async fn until_leaving(&self, count: usize) -> Allocations {
        let leaving = move |all: &Allocations| {
            let leaving = allocations_of(all, "job_a")
                .into_iter()
                .filter(|entry| !is_staying(entry));
            leaving.count() == count
        };
        self.until("this number of processes to leave", leaving)
            .await
    }

    fn end_leaving(&self, all: &Allocations) {
        for entry in all.values().filter(|entry| !is_staying(entry)) {
            self.report(entry, ContainerState::Ended);
        }
    }

    async fn until_budget_spent(&self) -> VerdictEntry {
        let waits_for_budget =
            |it: &VerdictEntry| matches!(it.unblock, Some(Unblock::RaisePreemptionBudget { .. }));
        self.until_verdict_matches("job_b", "that the budget is spent", waits_for_budget)
            .await
    }
}

/// Returns the published budgets of a tree with eight quanta.
fn budgets_with(allowed: u64, spent: u64) -> Budgets {
    let ann = UserName::new("ann").unwrap();
    let pool = PoolBudget {
        pool: "default".into(),
        allowed: Some(allowed),
        spent,
    };
    let user = UserBudget {
        tree: "default".into(),
        user: ann,
        allowed: Some(16),
        spent,
    };
    Budgets {
        pool_percent_per_hour: Some(allowed * 100 / 8),
        user_percent_per_hour: Some(200),
        pools: vec![pool],
        users: vec![user],
        others: Vec::new(),
    }
}

/// Preemptions of the last hour still count against the budget after the restart (B5).
#[tokio::test(flavor = "multi_thread")]
async fn preemptions_of_the_last_hour_survive_a_restart() {
    let mut fixture = Fixture::new(&[8]).await;
    fixture.set_budget(0, 25).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("eight processes", |all| all.len() == 8).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.neighbours.submit(&job("job_b", "bob"));
    let all = fixture.until_leaving(2).await;
    fixture.end_leaving(&all);
    let two_run = |all: &super::fixture::Allocations| allocations_of(all, "job_b").len() == 2;
    let all = fixture.until("two processes of job_b", two_run).await;
    for entry in allocations_of(&all, "job_b") {
        fixture.report(&entry, ContainerState::Running);
    }
    let verdict = fixture.until_budget_spent().await;
    assert_eq!(verdict.reason, WaitReason::WaitingForPreemption);
    let has_detail = verdict.detail.contains("2 of 2 quanta an hour");
    assert!(has_detail, "{verdict:?}");
    let numbers = ["allowed", "spent"].map(|it| verdict.numbers[&format!("budget_{it}_quanta")]);
    assert_eq!(numbers, [2, 2]);
    assert_eq!(fixture.shares().await.unwrap().budgets, budgets_with(2, 2));
    let sql = "select body::text from rm_scheduler.carried where kind = 'spent'";
    let rows = fixture.rows(sql).await;
    assert!(!rows.is_empty());

    fixture.restart().await;
    fixture.settle().await;
    fixture.neighbours.submit(&job("job_c", "bob"));
    fixture
        .until_verdict_matches("job_c", "a verdict", |_| true)
        .await;
    fixture.settle().await;
    assert_eq!(fixture.rows(sql).await, rows, "nothing more was preempted");
    assert_eq!(fixture.shares().await.unwrap().budgets, budgets_with(2, 2));
    fixture.neighbours.demand.remove("job_c");
    fixture.until_budget_spent().await;

    // 38 percent of eight quanta allow three preemptions, so exactly one more follows.
    fixture.set_budget(1, 38).await;
    let before = allocations_of(&all, "job_b").len();
    let all = fixture
        .until("one more process of job_a to leave", |all| {
            allocations_of(all, "job_a")
                .iter()
                .any(|entry| !is_staying(entry) && entry.holds())
        })
        .await;
    fixture.end_leaving(&all);
    fixture
        .until("one more process of job_b", |all| {
            allocations_of(all, "job_b").len() == before + 1
        })
        .await;
    let spent = fixture.shares().await.unwrap().budgets.pools[0].spent;
    assert_eq!(spent, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_out_of_bounds_is_refused_with_a_pointer() {
    let fixture = Fixture::new(&[1]).await;
    let mut policy = Policy::default();
    policy.settings.preemption_user_percent_per_hour = Some(1_000_001);
    let client = fixture.client("operator");
    let call = client
        .call(Method::PUT, "/v1/policy")
        .header(IF_MATCH, "\"0\"");
    let refused = call.body(&policy).send::<PolicyView>().await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, Code::Invalid);
    let fault = &problem.errors[0];
    let pointer = "/settings/preemption_user_percent_per_hour";
    assert!(fault.pointer.ends_with(pointer), "{fault:?}");
    assert_eq!(fault.detail, "must be at most 1000000, which is no limit");
}
