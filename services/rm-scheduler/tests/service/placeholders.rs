//! Tasks take the places of their placeholders (application protocol, 5.6).

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::{DemandEntry, Part};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_service::invariants::{Invariants, RuleResult};
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{AllocationId, Size};

use super::neighbours::{block, job, node};
use super::world::{Allocations, World, of};

const GROUP: &str = "app_1.g0";

fn placeholders(members: u64, quanta: u64) -> DemandEntry {
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

fn task(id: &str, quanta: u64, replaces: Option<&AllocationId>) -> DemandEntry {
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

fn standing(all: &Allocations, work: &str) -> Vec<AllocationEntry> {
    let all = of(all, work).into_iter();
    all.filter(AllocationEntry::holds).collect()
}

impl World {
    async fn held(&self, members: u64, quanta: u64) -> Vec<AllocationEntry> {
        self.around.ask(&placeholders(members, quanta));
        let all = self
            .until("placeholders", |all| {
                standing(all, GROUP).len() as u64 == members
            })
            .await;
        standing(&all, GROUP)
    }

    /// A round was taken after what was said before.
    async fn another_round(&self, probe: &str) {
        let mut small = job(probe, "ann");
        (small.max_processes, small.remaining_tasks) = (1, 1);
        self.around.ask(&small);
        self.until_one(probe, "is there", AllocationEntry::holds)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_is_a_row_and_its_task_stands_where_it_stood() {
    let world = World::new(&[4, 4]).await;
    let held = world.held(2, 3).await;
    for place in &held {
        assert_eq!(place.state, AllocationState::Running);
        assert!(place.launch.is_none());
    }
    world.around.ask(&task("app_1.0", 2, Some(&held[0].id)));
    let is_there = AllocationEntry::holds;
    let process = world.until_one("app_1.0", "is there", is_there).await;
    assert_eq!(process.node, held[0].node);
    assert_eq!(process.size, Size::memory(2 * GIB));
    assert!(process.launch.is_some());
    let all = world.allocations().await;
    let ended = &all[held[0].id.as_str()];
    assert_eq!(ended.state, AllocationState::Ended);
    let reason = ended.vacate.as_ref().map(|it| it.reason);
    assert_eq!(reason, Some(VacateReason::Replaced));
    // Its room is another's, and none is granted in its stead: nobody said so.
    world.another_round("job_p").await;
    assert_eq!(standing(&world.allocations().await, GROUP).len(), 1);
    let mut fewer = placeholders(1, 3);
    fewer.settled.insert(held[0].id.clone());
    world.around.ask(&fewer);
    world
        .until("its burial", |all| !all.contains_key(held[0].id.as_str()))
        .await;
    assert_eq!(standing(&world.allocations().await, GROUP).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_to_another_node_where_its_placeholders_takes_nothing_new() {
    let world = World::new(&[4]).await;
    let held = world.held(1, 3).await;
    world.around.nodes.put("n1", &{
        let mut closed = node("n1", 4);
        closed.health = hayward_node_status_api::Health::Suspect;
        closed
    });
    // Nodes and demand are heard of apart.
    world.settled().await;
    world.around.ask(&task("app_1.0", 3, Some(&held[0].id)));
    world.around.node("n2", 2);
    world.another_round("job_p").await;
    let all = world.allocations().await;
    assert!(standing(&all, "app_1.0").is_empty(), "there is no room");
    assert!(all[held[0].id.as_str()].holds(), "and its place is kept");
    world.around.node("n3", 4);
    let is_there = AllocationEntry::holds;
    let process = world.until_one("app_1.0", "is there", is_there).await;
    assert_eq!(process.node.as_str(), "n3");
    assert!(!world.allocations().await[held[0].id.as_str()].holds());
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_stands_on_a_node_than_fits() {
    let world = World::new(&[4]).await;
    let held = world.held(1, 2).await;
    let mut other = job("job_o", "ann");
    (other.max_processes, other.remaining_tasks) = (2, 2);
    world.around.ask(&other);
    world
        .until("the node to be full", |all| {
            standing(all, "job_o").len() == 2
        })
        .await;
    // Larger than its placeholder, and nothing beside that is free.
    world.around.ask(&task("app_1.0", 3, Some(&held[0].id)));
    world.around.node("n2", 1);
    world.another_round("job_p").await;
    let all = world.allocations().await;
    assert!(standing(&all, "app_1.0").is_empty());
    assert!(all[held[0].id.as_str()].holds());
}

/// Two placeholders of 2 on a node of 4. One task of 4 would need the room of both; the other needs
/// no more than its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_task_counts_on_the_room_of_a_placeholder_that_stays() {
    let world = World::new(&[4, 1, 1]).await;
    let held = world.held(2, 2).await;
    for (own, other) in [(0, 1), (1, 0)] {
        world.around.ask(&task("app_1.0", 4, Some(&held[own].id)));
        world.around.ask(&task("app_1.1", 5, Some(&held[other].id)));
        world.another_round(&format!("job_p{own}")).await;
        let all = world.allocations().await;
        assert!(standing(&all, "app_1.0").is_empty());
        assert!(standing(&all, "app_1.1").is_empty());
        assert_eq!(standing(&all, GROUP).len(), 2, "both are kept");
    }
}

/// Its owner hears that it leaves, and says what is to become of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_leaves_its_node_gets_no_second_process() {
    let world = World::new(&[4]).await;
    world.around.ask(&task("app_1.0", 1, None));
    let process = world.running("app_1.0").await;
    let name = process.node.to_string();
    world.around.node("n2", 4);
    world.around.nodes.put(&name, &{
        let mut off = node(&name, 4);
        off.schedulable = false;
        off
    });
    let leaves = |it: &AllocationEntry| it.vacate.is_some();
    world.until_one("app_1.0", "leaves", leaves).await;
    world.another_round("job_p").await;
    assert_eq!(of(&world.allocations().await, "app_1.0").len(), 1);
    world.report(&process, ContainerState::Ended);
    world.until_one("app_1.0", "ended", |it| !it.holds()).await;
    world.another_round("job_q").await;
    assert_eq!(of(&world.allocations().await, "app_1.0").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_has_ended_is_not_run_again_before_that_is_settled() {
    let world = World::new(&[4]).await;
    world.around.ask(&task("app_1.0", 1, None));
    let process = world.running("app_1.0").await;
    world.report(&process, ContainerState::Ended);
    world.until_one("app_1.0", "ended", |it| !it.holds()).await;
    world.another_round("job_p").await;
    assert!(standing(&world.allocations().await, "app_1.0").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_that_is_lost_is_granted_again_when_its_owner_says_so() {
    let world = World::new(&[4, 4]).await;
    let held = world.held(2, 3).await;
    let lost = held[0].node.to_string();
    world.around.nodes.put(&lost, &{
        let mut gone = node(&lost, 4);
        gone.health = hayward_node_status_api::Health::Lost;
        gone
    });
    world
        .until("the loss", |all| !all[held[0].id.as_str()].holds())
        .await;
    world.around.node("n3", 4);
    world.another_round("job_p").await;
    assert_eq!(standing(&world.allocations().await, GROUP).len(), 1);
    let mut again = placeholders(2, 3);
    again.settled.insert(held[0].id.clone());
    world.around.ask(&again);
    world
        .until("the repair", |all| standing(all, GROUP).len() == 2)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_is_done_whole_or_not_at_all_through_a_crash() {
    let mut world = World::new(&[4]).await;
    let held = world.held(1, 3).await;
    world.around.ask(&task("app_1.0", 3, Some(&held[0].id)));
    world.restart().await;
    let is_there = AllocationEntry::holds;
    world.until_one("app_1.0", "is there", is_there).await;
    let all = world.allocations().await;
    assert_eq!(standing(&all, "app_1.0").len(), 1);
    assert!(standing(&all, GROUP).is_empty());
    world.restart().await;
    world
        .until("the same", |all| {
            standing(all, "app_1.0").len() == 1 && standing(all, GROUP).is_empty()
        })
        .await;
}

/// What an exchange that is refused puts back was there all along.
#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_that_stays_on_a_blocked_node_breaks_no_invariant() {
    let world = World::new(&[4]).await;
    let held = world.held(1, 3).await;
    let mut mark = block(BlockKind::Node, held[0].node.as_str(), None);
    mark.action = BlockAction::Mark;
    world.around.block(&mark);
    world.settled().await;
    world.around.ask(&task("app_1.0", 3, Some(&held[0].id)));
    world.around.node("n2", 1);
    world.another_round("job_p").await;
    let all = world.allocations().await;
    assert!(all[held[0].id.as_str()].holds(), "its place is kept");
    assert!(standing(&all, "app_1.0").is_empty());
    let viewer = world.client("viewer");
    let seen = until("blocked nodes looked at", async || {
        let all: Invariants = viewer.get("/v1/invariants").await.unwrap();
        let rule = all.rules.into_iter().find(|it| it.id == "I16")?;
        (rule.examined > 0).then_some(rule)
    })
    .await;
    assert_eq!(seen.result, RuleResult::Holds, "{seen:#?}");
}
