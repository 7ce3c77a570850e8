//! Tests of replacements of placeholders that a restart, a completion or a failure interrupts.

use hayward_rm_scheduler_api::VacateReason;
use hayward_testkit::until;

use super::super::{
    fixture, fixture_with_short_lease, put_application, put_task, task_body_of_group, transition,
};
use super::{end_allocation, gang};

#[tokio::test(flavor = "multi_thread")]
async fn an_end_during_a_restart_is_settled_and_the_gang_continues() {
    let mut fixture = fixture_with_short_lease().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 3)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let placeholders = fixture.grant_gang("app").await;
    let demand = fixture.task_demand("app", "a").await;
    let chosen = demand.part.clone().unwrap().replaces.unwrap();
    fixture.kill();
    let replaced = placeholders.iter().find(|it| it.id == chosen).unwrap();
    let lost = placeholders.iter().find(|it| it.id != chosen).unwrap();
    fixture.scheduler.grant_on(&demand, replaced.node.as_str());
    end_allocation(replaced, VacateReason::Replaced, &fixture);
    end_allocation(lost, VacateReason::NodeLost, &fixture);
    fixture.start().await;
    fixture.wait_for_task("app", "a", "Bound").await;
    fixture.wait_for_counters("app", (3, 1, 1)).await;
    let group = until("both ends to be settled", async || {
        let group = fixture.wait_for_group_demand("app", 2).await;
        let are_settled = [replaced, lost]
            .iter()
            .all(|it| group.settled.contains(&it.id));
        are_settled.then_some(group)
    })
    .await;
    fixture.scheduler.grant_on(&group, "node-9");
    let view = fixture.wait_for_counters("app", (4, 1, 1)).await;
    assert_eq!(view.task_groups[0].held, 2);
    assert!(!view.timers.contains_key("gang_repair"));
}

/// The scheduler makes the exchange before it sees that the task was completed.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_completed_during_its_exchange_is_no_loss() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 2)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let placeholders = fixture.grant_gang("app").await;
    let demand = fixture.task_demand("app", "a").await;
    let chosen = demand.part.clone().unwrap().replaces.unwrap();
    assert!(transition(&ann, "app/tasks/a", "complete").await.applied);
    let replaced = placeholders.iter().find(|it| it.id == chosen).unwrap();
    end_allocation(replaced, VacateReason::Replaced, &fixture);
    let view = fixture.wait_for_counters("app", (2, 1, 0)).await;
    assert!(!view.timers.contains_key("gang_repair"));
    let group = fixture.wait_for_group_demand("app", 1).await;
    assert!(group.settled.contains(&chosen));
}

/// A task that waits to replace a placeholder survives when the replacement is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_survives_the_failure_of_its_application_during_a_replacement() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &gang("", 1)).await;
    put_task(&ann, "app", "a", &task_body_of_group("g")).await;
    let placeholders = fixture.grant_gang("app").await;
    let demand = fixture.task_demand("app", "a").await;
    assert!(demand.part.clone().unwrap().replaces.is_some());
    assert!(transition(&ann, "app", "fail").await.applied);
    until("its demand without a placeholder", async || {
        let demand = fixture.task_demand("app", "a").await;
        demand.part?.replaces.is_none().then_some(())
    })
    .await;
    let process = fixture.scheduler.grant_on(&demand, "node-5");
    end_allocation(&placeholders[0], VacateReason::Replaced, &fixture);
    fixture.wait_for_task("app", "a", "Bound").await;
    let view = fixture.application("app").await;
    assert_eq!(view.tasks[0].allocation.as_ref(), Some(&process.id));
}
