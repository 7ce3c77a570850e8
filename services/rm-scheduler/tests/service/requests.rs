//! Second places for processes of services (container placement, 3.3): reserve first, and never one
//! too many nor none.

use hayward_container_manager_api::{ContainerState, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler_api::{
    AllocationEntry, AllocationState, ClosedEntry, ProcessorEntry, VacateReason,
};
use hayward_vocabulary::{Apart, Exit, ExitCause, NodeName, Processor, Role};

use super::neighbours::{block, service};
use super::world::{World, of, stays};

const WORK: &str = "svc_1.0";

pub fn process(id: &str, role: Role) -> DemandEntry {
    let mut demand = service(id, "ann");
    demand.service = Some("svc_1".parse().unwrap());
    demand.processor = Some(Processor {
        deployment: "dep_1".into(),
        role,
        host_affinity: true,
        failed: false,
    });
    demand
}

pub fn request(number: u32, of: Option<&AllocationEntry>, host: Option<&str>) -> RequestEntry {
    RequestEntry {
        id: format!("req_{number}"),
        work: WORK.parse().unwrap(),
        predecessor: of.map(|it| it.id.clone()),
        host: host.map(|name| NodeName::new(name).unwrap()),
        exclude: Vec::new(),
        force: false,
    }
}

pub fn put(world: &World, request: &RequestEntry) {
    world.around.requests.put(&request.id, request);
}

async fn answer(world: &World, id: &str) -> AllocationEntry {
    let answers = |it: &AllocationEntry| it.request.as_deref() == Some(id) && stays(it);
    world.until_one(WORK, "has a second place", answers).await
}

fn node(entry: &AllocationEntry) -> &str {
    entry.node.as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_place_is_held_beside_the_first_and_takes_over_from_it() {
    let world = World::new(&[4]).await;
    world.around.ask(&process(WORK, Role::Active));
    let old = world.running(WORK).await;
    world.around.node("n2", 4);
    put(&world, &request(1, Some(&old), Some("n2")));
    let new = answer(&world, "req_1").await;
    assert_eq!(
        (node(&new), new.predecessor.as_ref()),
        ("n2", Some(&old.id))
    );
    assert_eq!(new.state, AllocationState::Assigned);
    assert!(new.launch.is_some() && new.incarnation > old.incarnation);
    // Two live allocations of a work of one process, and none of them is one too many.
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all.values().filter(|it| stays(it)).count(), 2);

    world.report(&old, ContainerState::Ended);
    let ended = |it: &AllocationEntry| it.id == old.id && !it.holds();
    let ended = world.until_one(WORK, "ended", ended).await;
    assert_eq!(
        ended.vacate.unwrap().reason,
        VacateReason::Moved,
        "nobody's failure"
    );
    world.report(&new, ContainerState::Running);
    world.around.requests.remove("req_1");
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    let left: Vec<_> = all.iter().filter(|it| it.holds()).collect();
    assert_eq!(left.len(), 1, "everyday again: no third, and it is kept");
    assert_eq!(left[0].id, new.id);
    assert!(stays(left[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_not_wanted_any_more_is_given_back() {
    let world = World::new(&[4]).await;
    world.around.ask(&process(WORK, Role::Active));
    let old = world.running(WORK).await;
    put(&world, &request(1, Some(&old), None));
    let new = answer(&world, "req_1").await;
    world.around.requests.remove("req_1");
    let told = |it: &AllocationEntry| it.id == new.id && it.vacate.is_some();
    let told = world.until_one(WORK, "is given back", told).await;
    assert_eq!(told.vacate.unwrap().reason, VacateReason::Moved);
    world.report(&new, ContainerState::Ended);
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert!(
        all.iter().any(|it| it.id == old.id && stays(it)),
        "the first stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_room_nothing_is_held_and_nothing_touched() {
    let world = World::new(&[1]).await;
    let mut demand = process(WORK, Role::Active);
    world.around.ask(&demand);
    let old = world.running(WORK).await;
    put(&world, &request(1, Some(&old), Some("n1")));
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert_eq!(all.len(), 1);
    assert!(stays(&all[0]));
    // P1: it ends by itself, and the request stands in for its everyday restart …
    put(&world, &request(2, Some(&old), Some("n9")));
    world.around.requests.remove("req_1");
    world.settled().await;
    world.end(&old, Exit::of(ExitCause::UserError, "status 1"));
    let moved = |it: &AllocationEntry| it.id == old.id && !it.holds() && it.vacate.is_some();
    world
        .until_one(WORK, "ended as part of a move", moved)
        .await;
    demand.settled.insert(old.id.clone());
    world.around.ask(&demand);
    world.settled().await;
    assert!(!of(&world.allocations().await, WORK).iter().any(stays));
    // … until it is withdrawn: then exactly one is granted.
    world.around.requests.remove("req_2");
    world.until_one(WORK, "is started again", stays).await;
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert_eq!(all.iter().filter(|it| it.holds()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_process_is_brought_back_and_keeps_its_place() {
    let mut world = World::new(&[4]).await;
    let mut demand = process(WORK, Role::Active);
    demand.processor.as_mut().unwrap().failed = true;
    demand.max_processes = 0;
    world.around.ask(&demand);
    world.settled().await;
    assert_eq!(world.allocations().await.len(), 0);
    put(&world, &request(1, None, None));
    let new = answer(&world, "req_1").await;
    world.report(&new, ContainerState::Running);
    world.around.requests.remove("req_1");
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert!(all.len() == 1 && stays(&all[0]), "{all:?}");
    // Also in a new term, as long as its owner has not heard of it.
    world.restart().await;
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert!(all.len() == 1 && stays(&all[0]), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_a_place_is_told_why_none_comes() {
    let world = World::new(&[1]).await;
    world.around.ask(&process(WORK, Role::Active));
    let old = world.running(WORK).await;
    put(&world, &request(1, Some(&old), None));
    let waits = |it: &ProcessorEntry| it.waits.contains_key("req_1");
    let told = world
        .until_entry("processors", WORK, "says why", waits)
        .await;
    assert!(!told.waits["req_1"].is_empty());
    world.around.node("n2", 1);
    answer(&world, "req_1").await;
    let calm = |it: &ProcessorEntry| it.waits.is_empty();
    world
        .until_entry("processors", WORK, "waits no more", calm)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_are_kept_apart_and_excluded_hosts_avoided() {
    let world = World::new(&[4, 4, 4]).await;
    let apart = Apart {
        group: WORK.parse().unwrap(),
        by_label: None,
    };
    let mut active = process(WORK, Role::Active);
    (active.apart, active.machines) = (Some(apart.clone()), vec!["n1".parse().unwrap()]);
    let of = WORK.parse().unwrap();
    let mut standby = process("svc_1.0-0", Role::Standby { of, replica: 0 });
    (standby.apart, standby.machines) = (Some(apart), vec!["n2".parse().unwrap()]);
    world.around.ask(&active);
    world.around.ask(&standby);
    let old = world.running(WORK).await;
    let partner = world.running("svc_1.0-0").await;
    assert_eq!((node(&old), node(&partner)), ("n1", "n2"));
    // Onto the partner's host: never.
    put(&world, &request(1, Some(&old), Some("n2")));
    world.settled().await;
    let all = world.allocations().await;
    assert!(all.values().all(|it| it.request.is_none()), "{all:?}");
    world.around.requests.remove("req_1");
    // Its own host is nobody else's.
    put(&world, &request(2, Some(&old), Some("n1")));
    assert_eq!(node(&answer(&world, "req_2").await), "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn container_manager_is_told_of_processes_and_of_closed_nodes() {
    let world = World::new(&[4, 4]).await;
    world.around.ask(&process(WORK, Role::Active));
    world.around.ask(&service("svc_2.0", "ann"));
    let there = |it: &ProcessorEntry| it.processor.deployment == "dep_1";
    let told = world
        .until_entry("processors", WORK, "is told", there)
        .await;
    assert_eq!(told.user.as_str(), "ann");
    let all: std::collections::BTreeMap<String, ProcessorEntry> = world.entries("processors").await;
    assert_eq!(all.len(), 1);

    let mut item = block(hayward_blocklist_api::BlockKind::Node, "n2", None);
    item.removal_no = 7;
    world.block(&item).await;
    let closed = |it: &ClosedEntry| it.work.is_none();
    let told = world.until_entry("closed", "n2", "is told", closed).await;
    assert!(told.reason.contains("it smells"));
    world.around.blocks.remove(&item.key());
    world.until_gone("closed", "n2").await;
    world.around.demand.remove(WORK);
    world.until_gone("processors", WORK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_list_leaves_out_is_given_by_force_alone() {
    let world = World::new(&[4]).await;
    let mut demand = process(WORK, Role::Active);
    demand.machines = vec!["n1".parse().unwrap()];
    world.around.ask(&demand);
    let old = world.running(WORK).await;
    world.around.node("n2", 4);
    put(&world, &request(1, Some(&old), Some("n2")));
    world.settled().await;
    let all = world.allocations().await;
    assert!(all.len() == 1 && all.values().all(stays), "{all:?}");
    world.around.requests.remove("req_1");
    let forced = RequestEntry {
        force: true,
        ..request(2, Some(&old), Some("n2"))
    };
    put(&world, &forced);
    assert_eq!(node(&answer(&world, "req_2").await), "n2");
}
