//! Processes of a service that must not share a host, that wait for a certain one, and whose ends
//! are answered before they have a successor (container placement, 10, 11.1, 11.4).

use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::{AllocationEntry, WaitReason};
use hayward_vocabulary::{Apart, Exit, ExitCause, NodeName, Processor, Role, Unblock, WorkId};

use super::neighbours::{node, service};
use super::world::{World, of, stays};

fn member(id: &str, label: Option<&str>) -> DemandEntry {
    let active = WorkId::new("svc_a.0").unwrap();
    let role = match id {
        "svc_a.0" => Role::Active,
        _ => Role::Standby {
            of: active.clone(),
            replica: 0,
        },
    };
    DemandEntry {
        processor: Some(Processor {
            deployment: "svc_a".to_owned(),
            role,
            host_affinity: true,
            failed: false,
        }),
        apart: Some(Apart {
            group: active,
            by_label: label.map(str::to_owned),
        }),
        ..service(id, "ann")
    }
}

fn lose(world: &World, name: &NodeName) {
    let mut lost = node(name.as_str(), 4);
    lost.health = Health::Lost;
    world.around.nodes.put(name.as_str(), &lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_never_on_the_node_of_its_active_and_says_what_it_waits_for() {
    let mut world = World::new(&[4]).await;
    world.around.ask(&member("svc_a.0", None));
    world.around.ask(&member("svc_a.0-0", None));
    let active = world.running("svc_a.0").await;
    let verdict = world
        .until_verdict("svc_a.0-0", WaitReason::KeptApart)
        .await;
    assert_eq!(verdict.unblock, Some(Unblock::AddNode { quanta: 1 }));
    world.restart().await;
    world.settled().await;
    assert!(of(&world.allocations().await, "svc_a.0-0").is_empty());
    world.around.node("beside", 4);
    let standby = world.running("svc_a.0-0").await;
    assert_ne!(standby.node, active.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_domains_come_from_the_labels_of_nodes() {
    let world = World::new(&[]).await;
    for (name, rack) in [("n1", "r1"), ("n2", "r1")] {
        let mut entry = node(name, 4);
        entry.labels.insert("rack".to_owned(), rack.to_owned());
        world.around.nodes.put(name, &entry);
    }
    for id in ["svc_a.0", "svc_a.0-0"] {
        world.around.ask(&member(id, Some("rack")));
    }
    world.running("svc_a.0").await;
    world
        .until_verdict("svc_a.0-0", WaitReason::KeptApart)
        .await;
    let mut other = node("n3", 4);
    other.labels.insert("rack".to_owned(), "r2".to_owned());
    world.around.nodes.put("n3", &other);
    assert_eq!(world.running("svc_a.0-0").await.node.as_str(), "n3");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_wanted_on_its_host_is_put_nowhere_else_when_that_is_lost() {
    let world = World::new(&[4, 4, 4]).await;
    let mut active = member("svc_a.0", None);
    world.around.ask(&active);
    world.around.ask(&member("svc_a.0-0", None));
    let (first, standby) = (
        world.running("svc_a.0").await,
        world.running("svc_a.0-0").await,
    );
    active.host = Some(first.node.clone());
    world.around.ask(&active);
    world.settled().await;
    lose(&world, &first.node);
    let ended = |it: &AllocationEntry| it.id == first.id && !stays(it);
    world.until_one("svc_a.0", "is lost", ended).await;
    world.settled().await;
    let all = of(&world.allocations().await, "svc_a.0");
    assert!(!all.iter().any(stays), "{all:#?}");
    // The standby makes place, and its host is asked for.
    let mut yields = member("svc_a.0-0", None);
    yields.max_processes = 0;
    world.around.ask(&yields);
    let told = |it: &AllocationEntry| it.id == standby.id && it.vacate.is_some();
    let told = world.until_one("svc_a.0-0", "is told to leave", told).await;
    active.host = Some(standby.node.clone());
    active.settled.insert(first.id.clone());
    world.around.ask(&active);
    world.settled().await;
    let all = of(&world.allocations().await, "svc_a.0");
    assert!(!all.iter().any(stays), "not before it has gone: {all:#?}");
    world.end(&told, Exit::of(ExitCause::Intended, ""));
    let now = world.until_one("svc_a.0", "takes over", stays).await;
    assert_eq!(now.node, standby.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_settled_before_there_is_a_successor() {
    let world = World::new(&[4, 4]).await;
    let mut active = member("svc_a.0", None);
    world.around.ask(&active);
    let first = world.running("svc_a.0").await;
    world.end(&first, Exit::of(ExitCause::UserError, ""));
    let ended = |it: &AllocationEntry| it.id == first.id && !it.holds();
    world.until_one("svc_a.0", "has ended", ended).await;
    world.settled().await;
    let all = of(&world.allocations().await, "svc_a.0");
    assert!(!all.iter().any(stays), "{all:#?}");
    active.settled.insert(first.id.clone());
    world.around.ask(&active);
    world.until_one("svc_a.0", "goes on", stays).await;
}
