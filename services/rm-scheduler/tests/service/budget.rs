//! B5: what may be taken back in an hour, over a restart of the scheduler.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::shares::{Budgets, PoolBudget, UserBudget};
use hayward_rm_scheduler_api::{VerdictEntry, WaitReason};
use hayward_service::Code;
use hayward_vocabulary::{Unblock, UserName};
use http::Method;
use http::header::IF_MATCH;

use super::neighbours::job;
use super::world::{Allocations, World, of, stays};

impl World {
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
            let told = of(all, "job_a").into_iter().filter(|entry| !stays(entry));
            told.count() == count
        };
        self.until("so many to leave", leaving).await
    }

    fn end_leaving(&self, all: &Allocations) {
        for entry in all.values().filter(|entry| !stays(entry)) {
            self.report(entry, ContainerState::Ended);
        }
    }

    async fn until_braked(&self) -> VerdictEntry {
        let braked =
            |it: &VerdictEntry| matches!(it.unblock, Some(Unblock::RaisePreemptionBudget { .. }));
        self.until_told("job_b", "that the budget is spent", braked)
            .await
    }
}

fn spent(allowed: u64, spent: u64) -> Budgets {
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

#[tokio::test(flavor = "multi_thread")]
async fn b_5_what_was_taken_back_in_the_hour_outlives_the_scheduler() {
    let mut world = World::new(&[8]).await;
    world.set_budget(0, 25).await;
    world.around.ask(&job("job_a", "ann"));
    let all = world.until("all of it", |all| all.len() == 8).await;
    for entry in all.values() {
        world.report(entry, ContainerState::Running);
    }
    world.around.ask(&job("job_b", "bob"));
    let all = world.until_leaving(2).await;
    world.end_leaving(&all);
    let all = world
        .until("bob's two", |all| of(all, "job_b").len() == 2)
        .await;
    for entry in of(&all, "job_b") {
        world.report(&entry, ContainerState::Running);
    }
    let braked = world.until_braked().await;
    assert_eq!(braked.reason, WaitReason::WaitingForPreemption);
    assert!(
        braked.detail.contains("2 of 2 quanta an hour"),
        "{braked:?}"
    );
    let numbers = ["allowed", "spent"].map(|it| braked.numbers[&format!("budget_{it}_quanta")]);
    assert_eq!(numbers, [2, 2]);
    assert_eq!(world.shares().await.unwrap().budgets, spent(2, 2));
    let sql = "select body::text from rm_scheduler.carried where kind = 'spent'";
    let rows = world.rows(sql).await;
    assert!(!rows.is_empty());

    world.restart().await;
    world.settled().await;
    world.around.ask(&job("job_c", "bob"));
    world.until_told("job_c", "its turn", |_| true).await;
    world.settled().await;
    assert_eq!(world.rows(sql).await, rows, "nothing more was taken back");
    assert_eq!(world.shares().await.unwrap().budgets, spent(2, 2));
    world.around.demand.remove("job_c");
    world.until_braked().await;

    // The smallest change does it, at once and no further.
    world.set_budget(1, 38).await;
    let before = of(&all, "job_b").len();
    let all = world
        .until("one more to leave", |all| {
            of(all, "job_a")
                .iter()
                .any(|entry| !stays(entry) && entry.holds())
        })
        .await;
    world.end_leaving(&all);
    world
        .until("one more of bob's", |all| {
            of(all, "job_b").len() == before + 1
        })
        .await;
    let spent = world.shares().await.unwrap().budgets.pools[0].spent;
    assert_eq!(spent, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_beyond_all_bounds_is_refused_and_named() {
    let world = World::new(&[1]).await;
    let mut policy = Policy::default();
    policy.settings.preemption_user_percent_per_hour = Some(1_000_001);
    let client = world.client("operator");
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
