use super::*;
use crate::input::snapshot::BlockEffect;

/// (I2)
#[test]
fn an_over_committed_node_is_reported() {
    let fixture = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let sequence = in_order(&fixture.snapshot);
    let found = no_over_commit(&fixture.snapshot, &sequence);
    assert!(found.holds() && found.examined == 2);

    let mut over = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let sequence = in_order(&over.snapshot);
    assert_eq!(
        blamed(&no_over_commit(&over.snapshot, &sequence)),
        Some("n00")
    );

    // A dimension outside the quantum counts as well.
    over.snapshot.allocations.remove(&alc("alc_3"));
    for held in over.snapshot.allocations.values_mut() {
        held.size.cpu_milli = 600_000;
    }
    assert_eq!(
        blamed(&no_over_commit(&over.snapshot, &sequence)),
        Some("n00")
    );
}

/// (I2)
#[test]
fn a_node_that_shrank_is_reported_only_after_a_later_grant() {
    let mut fixture = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let mut sequence = in_order(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.node("n00").capacity.memory_bytes = 3 * GIB;
    sequence.node(&node_name("n00"), Some(&before), fixture.node("n00"));
    assert!(no_over_commit(&fixture.snapshot, &sequence).holds());

    let late = held("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alc("alc_3"), late);
    sequence.allocation(&alc("alc_3"), true);
    assert_eq!(
        blamed(&no_over_commit(&fixture.snapshot, &sequence)),
        Some("n00")
    );
}

/// (I2)
#[test]
fn a_grant_without_gpus_is_no_over_commitment_on_a_node_that_lost_its_gpus() {
    let mut fixture = fleet(&[("alc_1", 2)]);
    let first = alc("alc_1");
    let taken = fixture.snapshot.allocations.get_mut(&first).unwrap();
    (taken.size.gpu_milli, taken.gpus) = (1_000, vec![0]);
    fixture.node("n00").capacity.gpu_milli = 1_000;
    let mut sequence = in_order(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.node("n00").capacity.gpu_milli = 0;
    sequence.node(&node_name("n00"), Some(&before), fixture.node("n00"));
    let late = held("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alc("alc_2"), late);
    sequence.allocation(&alc("alc_2"), true);
    assert!(no_over_commit(&fixture.snapshot, &sequence).holds());

    let mut late = held("job_1", "n00", 1);
    (late.size.gpu_milli, late.gpus) = (500, vec![0]);
    fixture.snapshot.allocations.insert(alc("alc_3"), late);
    sequence.allocation(&alc("alc_3"), true);
    let found = no_over_commit(&fixture.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("n00"));
}

/// (I16)
#[test]
fn a_new_allocation_on_a_blocked_node_is_reported() {
    let mut fixture = fleet(&[("alc_1", 1)]);
    let mut sequence = in_order(&fixture.snapshot);
    let before = fixture.node("n00").clone();
    fixture.block("n00", BlockEffect::Mark);
    sequence.node(&node_name("n00"), Some(&before), fixture.node("n00"));
    let found = blocked_means_blocked(&fixture.snapshot, &sequence);
    assert!(found.holds() && found.examined == 1, "it was there before");

    let late = held("job_1", "n00", 1);
    fixture.snapshot.allocations.insert(alc("alc_2"), late);
    sequence.allocation(&alc("alc_2"), true);
    let found = blocked_means_blocked(&fixture.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("alc_2"));

    // A repeated report of the block does not move its begin.
    let again = fixture.node("n00").clone();
    sequence.node(&node_name("n00"), Some(&again), fixture.node("n00"));
    let found = blocked_means_blocked(&fixture.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("alc_2"));
}

#[test]
fn a_new_policy_makes_no_present_allocation_a_violation() {
    let fixture = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let mut sequence = in_order(&fixture.snapshot);
    sequence.anew(&fixture.snapshot);
    assert!(no_over_commit(&fixture.snapshot, &sequence).holds());
}
