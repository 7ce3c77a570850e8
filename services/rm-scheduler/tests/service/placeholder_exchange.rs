//! Tests of gangs. A placeholder holds space for a task that does not exist yet. When the task is
//! submitted, its process replaces the placeholder on the same node.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::{DemandEntry, Part};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_service::invariants::{Invariants, RuleResult};
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{AllocationId, Size};

use super::fixture::{Allocations, Fixture, allocations_of};
use super::neighbours::{block, job, node};

const GROUP: &str = "app_1.g0";

fn placeholder_demand(members: u64, quanta: u64) -> DemandEntry {
    DemandEntry {
        size: Size::memory(quanta * GIB),
        max_processes: members,
        remaining_tasks: members,
        task_ms: None,
        part: Some(Part::default()),
        launch: None,
        ..job(GROUP, "ann")
    }
}

fn task_demand(id: &str, quanta: u64, replaces: Option<&AllocationId>) -> DemandEntry {
    let part = Part {
        replaces: replaces.cloned(),
    };
    DemandEntry {
        size: Size::memory(quanta * GIB),
        max_processes: 1,
        remaining_tasks: 1,
        task_ms: None,
        part: Some(part),
        ..job(id, "ann")
    }
}

fn held_allocations(all: &Allocations, work: &str) -> Vec<AllocationEntry> {
    let all = allocations_of(all, work).into_iter();
    all.filter(AllocationEntry::holds).collect()
}

impl Fixture {
    async fn until_placeholders(&self, members: u64, quanta: u64) -> Vec<AllocationEntry> {
        self.neighbours.submit(&placeholder_demand(members, quanta));
        let all = self
            .until("placeholders", |all| {
                held_allocations(all, GROUP).len() as u64 == members
            })
            .await;
        held_allocations(&all, GROUP)
    }

    /// Submits a small job and waits for its process. Then a round has absorbed all changes so far.
    async fn until_another_round(&self, probe: &str) {
        let mut small = job(probe, "ann");
        (small.max_processes, small.remaining_tasks) = (1, 1);
        self.neighbours.submit(&small);
        self.until_one(probe, "is there", AllocationEntry::holds)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_takes_the_node_of_its_placeholder() {
    let fixture = Fixture::new(&[4, 4]).await;
    let held = fixture.until_placeholders(2, 3).await;
    for place in &held {
        assert_eq!(place.state, AllocationState::Running);
        assert!(place.launch.is_none());
    }
    fixture
        .neighbours
        .submit(&task_demand("app_1.0", 2, Some(&held[0].id)));
    let is_there = AllocationEntry::holds;
    let process = fixture.until_one("app_1.0", "is there", is_there).await;
    assert_eq!(process.node, held[0].node);
    assert_eq!(process.size, Size::memory(2 * GIB));
    assert!(process.launch.is_some());
    let all = fixture.allocations().await;
    let ended = &all[held[0].id.as_str()];
    assert_eq!(ended.state, AllocationState::Ended);
    let reason = ended.vacate.as_ref().map(|it| it.reason);
    assert_eq!(reason, Some(VacateReason::Replaced));
    // The rest of the space goes to other work. No new placeholder is granted, although the demand
    // still lists two.
    fixture.until_another_round("job_p").await;
    assert_eq!(
        held_allocations(&fixture.allocations().await, GROUP).len(),
        1
    );
    let mut one_placeholder = placeholder_demand(1, 3);
    one_placeholder.settled.insert(held[0].id.clone());
    fixture.neighbours.submit(&one_placeholder);
    fixture
        .until("the removal of the placeholder", |all| {
            !all.contains_key(held[0].id.as_str())
        })
        .await;
    assert_eq!(
        held_allocations(&fixture.allocations().await, GROUP).len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_to_another_node_if_that_of_its_placeholder_is_closed() {
    let fixture = Fixture::new(&[4]).await;
    let held = fixture.until_placeholders(1, 3).await;
    fixture.neighbours.nodes.put("n1", &{
        let mut closed = node("n1", 4);
        closed.health = hayward_node_status_api::Health::Suspect;
        closed
    });
    // Nodes and demand arrive independently.
    fixture.settle().await;
    fixture
        .neighbours
        .submit(&task_demand("app_1.0", 3, Some(&held[0].id)));
    fixture.neighbours.node("n2", 2);
    fixture.until_another_round("job_p").await;
    let all = fixture.allocations().await;
    assert!(
        held_allocations(&all, "app_1.0").is_empty(),
        "no open node has enough space"
    );
    assert!(all[held[0].id.as_str()].holds(), "the placeholder stays");
    fixture.neighbours.node("n3", 4);
    let is_there = AllocationEntry::holds;
    let process = fixture.until_one("app_1.0", "is there", is_there).await;
    assert_eq!(process.node.as_str(), "n3");
    assert!(!fixture.allocations().await[held[0].id.as_str()].holds());
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_never_overcommit_a_node() {
    let fixture = Fixture::new(&[4]).await;
    let held = fixture.until_placeholders(1, 2).await;
    let mut other = job("job_o", "ann");
    (other.max_processes, other.remaining_tasks) = (2, 2);
    fixture.neighbours.submit(&other);
    fixture
        .until("the node to be full", |all| {
            held_allocations(all, "job_o").len() == 2
        })
        .await;
    // The task is larger than its placeholder, and the node has no free space.
    fixture
        .neighbours
        .submit(&task_demand("app_1.0", 3, Some(&held[0].id)));
    fixture.neighbours.node("n2", 1);
    fixture.until_another_round("job_p").await;
    let all = fixture.allocations().await;
    assert!(held_allocations(&all, "app_1.0").is_empty());
    assert!(all[held[0].id.as_str()].holds());
}

/// Two placeholders of 2 quanta fill a node. A task of 4 quanta would need the space of both, and a
/// task of 5 quanta fits nowhere. So both placeholders stay.
#[tokio::test(flavor = "multi_thread")]
async fn the_space_of_a_placeholder_that_stays_is_not_used() {
    let fixture = Fixture::new(&[4, 1, 1]).await;
    let held = fixture.until_placeholders(2, 2).await;
    for (own, other) in [(0, 1), (1, 0)] {
        fixture
            .neighbours
            .submit(&task_demand("app_1.0", 4, Some(&held[own].id)));
        fixture
            .neighbours
            .submit(&task_demand("app_1.1", 5, Some(&held[other].id)));
        fixture.until_another_round(&format!("job_p{own}")).await;
        let all = fixture.allocations().await;
        assert!(held_allocations(&all, "app_1.0").is_empty());
        assert!(held_allocations(&all, "app_1.1").is_empty());
        assert_eq!(
            held_allocations(&all, GROUP).len(),
            2,
            "both placeholders stay"
        );
    }
}

/// The owner of the task sees that the process leaves, and decides what follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_leaves_its_node_gets_no_second_process() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&task_demand("app_1.0", 1, None));
    let process = fixture.report_running("app_1.0").await;
    let name = process.node.to_string();
    fixture.neighbours.node("n2", 4);
    fixture.neighbours.nodes.put(&name, &{
        let mut off = node(&name, 4);
        off.schedulable = false;
        off
    });
    let leaves = |it: &AllocationEntry| it.vacate.is_some();
    fixture.until_one("app_1.0", "leaves", leaves).await;
    fixture.until_another_round("job_p").await;
    assert_eq!(
        allocations_of(&fixture.allocations().await, "app_1.0").len(),
        1
    );
    fixture.report(&process, ContainerState::Ended);
    fixture
        .until_one("app_1.0", "ended", |it| !it.holds())
        .await;
    fixture.until_another_round("job_q").await;
    assert_eq!(
        allocations_of(&fixture.allocations().await, "app_1.0").len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_task_is_not_run_again_before_it_is_settled() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&task_demand("app_1.0", 1, None));
    let process = fixture.report_running("app_1.0").await;
    fixture.report(&process, ContainerState::Ended);
    fixture
        .until_one("app_1.0", "ended", |it| !it.holds())
        .await;
    fixture.until_another_round("job_p").await;
    assert!(held_allocations(&fixture.allocations().await, "app_1.0").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_placeholder_is_granted_again_when_its_owner_asks() {
    let fixture = Fixture::new(&[4, 4]).await;
    let held = fixture.until_placeholders(2, 3).await;
    let lost = held[0].node.to_string();
    fixture.neighbours.nodes.put(&lost, &{
        let mut gone = node(&lost, 4);
        gone.health = hayward_node_status_api::Health::Lost;
        gone
    });
    fixture
        .until("the end of the lost placeholder", |all| {
            !all[held[0].id.as_str()].holds()
        })
        .await;
    fixture.neighbours.node("n3", 4);
    fixture.until_another_round("job_p").await;
    assert_eq!(
        held_allocations(&fixture.allocations().await, GROUP).len(),
        1
    );
    let mut two_placeholders = placeholder_demand(2, 3);
    two_placeholders.settled.insert(held[0].id.clone());
    fixture.neighbours.submit(&two_placeholders);
    fixture
        .until("two placeholders", |all| {
            held_allocations(all, GROUP).len() == 2
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_is_atomic_over_a_crash() {
    let mut fixture = Fixture::new(&[4]).await;
    let held = fixture.until_placeholders(1, 3).await;
    fixture
        .neighbours
        .submit(&task_demand("app_1.0", 3, Some(&held[0].id)));
    fixture.restart().await;
    let is_there = AllocationEntry::holds;
    fixture.until_one("app_1.0", "is there", is_there).await;
    let all = fixture.allocations().await;
    assert_eq!(held_allocations(&all, "app_1.0").len(), 1);
    assert!(held_allocations(&all, GROUP).is_empty());
    fixture.restart().await;
    fixture
        .until("the task without its placeholder", |all| {
            held_allocations(all, "app_1.0").len() == 1 && held_allocations(all, GROUP).is_empty()
        })
        .await;
}

/// An exchange that is refused leaves the placeholder as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_on_a_blocked_node_breaks_no_invariant() {
    let fixture = Fixture::new(&[4]).await;
    let held = fixture.until_placeholders(1, 3).await;
    let mut mark = block(BlockKind::Node, held[0].node.as_str(), None);
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    fixture.settle().await;
    fixture
        .neighbours
        .submit(&task_demand("app_1.0", 3, Some(&held[0].id)));
    fixture.neighbours.node("n2", 1);
    fixture.until_another_round("job_p").await;
    let all = fixture.allocations().await;
    assert!(all[held[0].id.as_str()].holds(), "the placeholder stays");
    assert!(held_allocations(&all, "app_1.0").is_empty());
    let viewer = fixture.client("viewer");
    let seen = until("a check of the rule about blocked nodes", async || {
        let all: Invariants = viewer.get("/v1/invariants").await.unwrap();
        let rule = all.rules.into_iter().find(|it| it.id == "I16")?;
        (rule.examined > 0).then_some(rule)
    })
    .await;
    assert_eq!(seen.result, RuleResult::Holds, "{seen:#?}");
}
