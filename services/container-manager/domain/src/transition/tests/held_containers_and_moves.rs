//! Tests of [`decide`] for held containers, which wait for the end of their predecessor, and for
//! containers that are stopped for a move.

use super::*;

#[test]
fn a_held_container_is_not_desired_and_ends_at_once_when_stopped() {
    let held = Lifecycle::new_held(2);
    assert_eq!(held.goal(), None);
    assert_eq!(
        decide(
            &held,
            Fact::Missing {
                observed_revision: 99
            },
            5
        ),
        Transition::Unchanged
    );
    for fact in [Fact::Stop, Fact::Allocation(AllocationStatus::Vacated)] {
        let ended = apply(&held, fact, 5);
        let cause = ended.exit.as_ref().map(|exit| exit.cause);
        assert_eq!((ended.state, cause), (Ended, Some(Intended)));
        assert_eq!(ended.goal(), None);
    }
    let launched = apply(&held, Fact::Launch, 5);
    assert_eq!(
        (launched.goal(), launched.state),
        (Some(Goal::Run), Ordered)
    );
    assert_eq!(apply(&launched, Fact::Launch, 6), launched);
}

#[test]
fn a_stop_for_a_move_ends_as_intended() {
    let stopping = apply(&lifecycle_in(Running), Fact::Stop, 30);
    assert_eq!(
        (stopping.state, stopping.goal()),
        (Stopping, Some(Goal::Stop))
    );
    assert_eq!(
        apply(&stopping, Fact::Allocation(AllocationStatus::Granted), 31),
        stopping
    );
    let ended = apply(&stopping, Fact::Observed(&observed(Ended, 30)), 32);
    assert_eq!(ended.exit.unwrap().cause, Intended);
}
