//! Live checks of over-committed and blocked nodes.

use super::*;
use crate::input::snapshot::BlockEffect;

/// No node has granted more than its capacity (I2).
#[test]
fn an_over_committed_node_is_reported() {
    let fixture = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let sequence = sequence_of(&fixture.snapshot);
    let found = check_over_commit(&fixture.snapshot, &sequence);
    assert!(found.holds() && found.examined == 2);

    let mut overfull = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let sequence = sequence_of(&overfull.snapshot);
    assert_eq!(
        subject(&check_over_commit(&overfull.snapshot, &sequence)),
        Some("n00")
    );

    // A dimension outside the quantum counts as well.
    overfull.snapshot.allocations.remove(&alloc_id("alc_3"));
    for held in overfull.snapshot.allocations.values_mut() {
        held.size.cpu_milli = 600_000;
    }
    assert_eq!(
        subject(&check_over_commit(&overfull.snapshot, &sequence)),
        Some("n00")
    );
}

/// No node has granted more than its capacity (I2).
#[test]
fn a_node_that_shrank_is_reported_only_after_a_later_grant() {
    let mut fixture = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let mut sequence = sequence_of(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.node("n00").capacity.memory_bytes = 3 * GIB;
    sequence.record_node(&node_name("n00"), Some(&before), fixture.node("n00"));
    assert!(check_over_commit(&fixture.snapshot, &sequence).holds());

    let late = allocation("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alloc_id("alc_3"), late);
    sequence.record_allocation(&alloc_id("alc_3"), true);
    assert_eq!(
        subject(&check_over_commit(&fixture.snapshot, &sequence)),
        Some("n00")
    );
}

/// No node has granted more than its capacity (I2).
#[test]
fn a_grant_without_gpus_is_no_over_commitment_on_a_node_that_lost_its_gpus() {
    let mut fixture = fleet(&[("alc_1", 2)]);
    let first = alloc_id("alc_1");
    let first_allocation = fixture.snapshot.allocations.get_mut(&first).unwrap();
    (first_allocation.size.gpu_milli, first_allocation.gpus) = (1_000, vec![0]);
    fixture.node("n00").capacity.gpu_milli = 1_000;
    let mut sequence = sequence_of(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.node("n00").capacity.gpu_milli = 0;
    sequence.record_node(&node_name("n00"), Some(&before), fixture.node("n00"));
    let late = allocation("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alloc_id("alc_2"), late);
    sequence.record_allocation(&alloc_id("alc_2"), true);
    assert!(check_over_commit(&fixture.snapshot, &sequence).holds());

    let mut late = allocation("job_1", "n00", 1);
    (late.size.gpu_milli, late.gpus) = (500, vec![0]);
    fixture.snapshot.allocations.insert(alloc_id("alc_3"), late);
    sequence.record_allocation(&alloc_id("alc_3"), true);
    let found = check_over_commit(&fixture.snapshot, &sequence);
    assert_eq!(subject(&found), Some("n00"));
}

/// A blocked node gets no new allocation (I16).
#[test]
fn a_new_allocation_on_a_blocked_node_is_reported() {
    let mut fixture = fleet(&[("alc_1", 1)]);
    let mut sequence = sequence_of(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.block("n00", BlockEffect::Mark);
    sequence.record_node(&node_name("n00"), Some(&before), fixture.node("n00"));
    let found = check_blocked_nodes(&fixture.snapshot, &sequence);
    assert!(
        found.holds() && found.examined == 1,
        "the allocation is older than the block"
    );

    let late = allocation("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alloc_id("alc_2"), late);
    sequence.record_allocation(&alloc_id("alc_2"), true);
    let found = check_blocked_nodes(&fixture.snapshot, &sequence);
    assert_eq!(subject(&found), Some("alc_2"));

    // A repeated report of the block does not move its begin.
    let unchanged = fixture.node("n00").clone();
    sequence.record_node(&node_name("n00"), Some(&unchanged), fixture.node("n00"));
    let found = check_blocked_nodes(&fixture.snapshot, &sequence);
    assert_eq!(subject(&found), Some("alc_2"));
}

#[test]
fn a_new_policy_makes_no_present_allocation_a_violation() {
    let fixture = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let mut sequence = sequence_of(&fixture.snapshot);
    sequence.restart(&fixture.snapshot);
    assert!(check_over_commit(&fixture.snapshot, &sequence).holds());
}
