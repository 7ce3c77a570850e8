//! Rules that a scenario cannot express: what is granted in full, what is purged, what a round keeps.

use hayward_vocabulary::Size;

use crate::{
    settings::Settings,
    world::{GIB, World, node_name, share},
};

fn reference() -> World {
    let mut world = World::eager();
    let tunables = &mut world.snapshot.tunables;
    tunables.settings = Settings::reference();
    tunables.fragmentation_threshold = 2;
    world
}

#[test]
fn r_4_3_a_process_is_granted_its_order_in_quanta() {
    let mut world = reference();
    world.snapshot.quantum.0 = Size::memory(4 * GIB);
    world.node_in("default", "n00", 12);
    world.job("j", "a", 5).max_processes = 1;
    let plan = world.plan();
    assert_eq!(plan.grants[0].order, 2);
    assert_eq!(plan.grants[0].size.memory_bytes, 8 * GIB);
}

/// J, pinned to n02, leaves 3 there: W (order 4) is counted 2, has one and is needy. Next round it is
/// placed first on the new n00, which R was promised; W has T = 2 then and is rich, so its fresh share
/// is R's, with all that n00 has.
#[test]
fn r_12_12_a_fresh_share_is_handed_to_a_reservation_as_a_whole_node() {
    let mut world = reference().nodes(&[]);
    for (name, order) in [("n01", 4), ("n02", 5), ("n03", 1)] {
        world.node_in("default", name, order);
    }
    let pinned = world.job("j", "b", 1);
    (pinned.max_processes, pinned.machines) = (2, [node_name("n02")].into());
    world.job("w", "a", 4).max_processes = 2;
    let plan = world.step();
    assert_eq!(
        (share(&plan, "w").counted, share(&plan, "w").current),
        (2, 1)
    );
    world.node_in("default", "n00", 4);
    world.reservation("r", "c", 4);
    let plan = world.step();
    assert_eq!(share(&plan, "w").current, 1);
    assert_eq!(plan.grants.len(), 1);
    let grant = &plan.grants[0];
    assert_eq!((grant.work.as_str(), grant.node.as_str()), ("r", "n00"));
    assert_eq!(grant.size, world.snapshot.nodes["n00"].capacity);
}
