//! Tests of gang events during a restart, and of completions during a replacement.

use hayward_rm_scheduler_api::VacateReason;
use hayward_testkit::until;

use super::super::{fixture, put, put_task, task_of_group, transition, with_short_lease};
use super::{gang, gone};

#[tokio::test(flavor = "multi_thread")]
async fn an_end_during_a_restart_is_settled_and_the_gang_continues() {
    let mut fixture = with_short_lease().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &gang("", 3)).await;
    put_task(&ann, "app", "a", &task_of_group("g")).await;
    let places = fixture.grant_gang("app").await;
    let demand = fixture.requested("app", "a").await;
    let chosen = demand.part.clone().unwrap().replaces.unwrap();
    fixture.kill();
    let taken = places.iter().find(|it| it.id == chosen).unwrap();
    let lost = places.iter().find(|it| it.id != chosen).unwrap();
    fixture.scheduler.grant_on(&demand, taken.node.as_str());
    gone(taken, VacateReason::Replaced, &fixture);
    gone(lost, VacateReason::NodeLost, &fixture);
    fixture.start().await;
    fixture.task_in("app", "a", "Bound").await;
    fixture.counters("app", (3, 1, 1)).await;
    let group = until("both ends to be noted", async || {
        let group = fixture.group_wants("app", 2).await;
        let noted = [taken, lost]
            .iter()
            .all(|it| group.settled.contains(&it.id));
        noted.then_some(group)
    })
    .await;
    fixture.scheduler.grant_on(&group, "node-9");
    let view = fixture.counters("app", (4, 1, 1)).await;
    assert_eq!(view.task_groups[0].held, 2);
    assert!(!view.timers.contains_key("gang_repair"));
}

/// The scheduler makes the exchange before it sees that the task was completed.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_completed_during_its_exchange_is_no_loss() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &gang("", 2)).await;
    put_task(&ann, "app", "a", &task_of_group("g")).await;
    let places = fixture.grant_gang("app").await;
    let demand = fixture.requested("app", "a").await;
    let chosen = demand.part.clone().unwrap().replaces.unwrap();
    assert!(transition(&ann, "app/tasks/a", "complete").await.applied);
    let taken = places.iter().find(|it| it.id == chosen).unwrap();
    gone(taken, VacateReason::Replaced, &fixture);
    let view = fixture.counters("app", (2, 1, 0)).await;
    assert!(!view.timers.contains_key("gang_repair"));
    let group = fixture.group_wants("app", 1).await;
    assert!(group.settled.contains(&chosen));
}

/// A task that waits for a replacement survives its cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_survives_the_failure_of_its_application_during_a_replacement() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &gang("", 1)).await;
    put_task(&ann, "app", "a", &task_of_group("g")).await;
    let places = fixture.grant_gang("app").await;
    let demand = fixture.requested("app", "a").await;
    assert!(demand.part.clone().unwrap().replaces.is_some());
    assert!(transition(&ann, "app", "fail").await.applied);
    until("it to be asked for on its own", async || {
        let demand = fixture.requested("app", "a").await;
        demand.part?.replaces.is_none().then_some(())
    })
    .await;
    let process = fixture.scheduler.grant_on(&demand, "node-5");
    gone(&places[0], VacateReason::Replaced, &fixture);
    fixture.task_in("app", "a", "Bound").await;
    let view = fixture.app("app").await;
    assert_eq!(view.tasks[0].allocation.as_ref(), Some(&process.id));
}
