//! Tests of [`decide`]: tables of all transitions, the ends of containers, and their causes.
//!
//! In the tables, the start is ordered at revision 10, the launch is reported at revision 20, and
//! the stop is ordered at revision 30.

mod held_containers_and_moves;
mod properties;

use super::*;
use crate::lifecycle::Goal;
use ExitCause::{Intended, Node, UserError};
use State::{Ended, Launching, Ordered, Running, Stopping};

/// Revision at which the container was ordered to start.
const ORDER_REVISION: u64 = 10;

fn observed(state: State, observed_revision: u64) -> Observation {
    let exit = (state == State::Ended).then(|| Exit {
        code: Some(3),
        ..Exit::of(ExitCause::UserError, "status 3")
    });
    Observation {
        incarnation: 1,
        state,
        pid: Some(7),
        started_at: None,
        exit,
        reason: None,
        observed_revision: Some(observed_revision),
    }
}

fn apply(lifecycle: &Lifecycle, fact: Fact<'_>, revision: u64) -> Lifecycle {
    match decide(lifecycle, fact, revision) {
        Transition::Unchanged => lifecycle.clone(),
        Transition::Updated(next) | Transition::Archived(next) => next,
    }
}

/// Creates a container in `state`, reached in the ordinary way: launched at revision 20, ordered to
/// stop at revision 30.
fn lifecycle_in(state: State) -> Lifecycle {
    let lifecycle = Lifecycle::new(1);
    let reported_states = [State::Launching, State::Running];
    let mut lifecycle = match state {
        State::Ordered => return lifecycle,
        _ => reported_states.iter().fold(lifecycle, |lifecycle, state| {
            apply(
                &lifecycle,
                Fact::Observed(&observed(*state, ORDER_REVISION)),
                20,
            )
        }),
    };
    if state == State::Launching {
        lifecycle = apply(
            &Lifecycle::new(1),
            Fact::Observed(&observed(State::Launching, ORDER_REVISION)),
            20,
        );
    }
    if state == State::Stopping {
        lifecycle = apply(&lifecycle, Fact::Allocation(AllocationStatus::Vacated), 30);
    }
    if state == State::Ended {
        lifecycle = apply(
            &lifecycle,
            Fact::Observed(&observed(State::Ended, ORDER_REVISION)),
            25,
        );
    }
    assert_eq!(lifecycle.state, state);
    lifecycle
}

/// The state after a fact, the cause of the end if it has ended, and whether it is archived.
type Outcome = (State, Option<ExitCause>, bool);

fn outcome(lifecycle: &Lifecycle, fact: Fact<'_>) -> Outcome {
    let transition = decide(lifecycle, fact, 40);
    let is_archived = matches!(transition, Transition::Archived(_));
    let lifecycle = match transition {
        Transition::Unchanged => lifecycle.clone(),
        Transition::Updated(next) | Transition::Archived(next) => next,
    };
    (
        lifecycle.state,
        lifecycle.exit.map(|exit| exit.cause),
        is_archived,
    )
}

fn in_state(state: State) -> Outcome {
    (state, None, false)
}

fn ended(cause: ExitCause) -> Outcome {
    (Ended, Some(cause), false)
}

/// Checks one row of the table: the outcomes from ordered, launching, running, stopping (ordered at
/// revision 30) and ended (by itself).
fn check_row(name: &str, fact: Fact<'_>, expected: [Outcome; 5]) {
    for (state, expected) in State::ALL.into_iter().zip(expected) {
        assert_eq!(
            outcome(&lifecycle_in(state), fact),
            expected,
            "{name} from {state:?}"
        );
    }
}

#[test]
fn each_status_of_the_allocation_leads_to_its_state() {
    let (exited, lost, stopping) = (ended(UserError), ended(Node), in_state(Stopping));
    let allocation = Fact::Allocation;
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        exited,
    ];
    check_row("granted", allocation(AllocationStatus::Granted), unchanged);
    check_row(
        "vacated",
        allocation(AllocationStatus::Vacated),
        [stopping, stopping, stopping, stopping, exited],
    );
    check_row(
        "purged",
        allocation(AllocationStatus::Purged),
        [lost, lost, lost, lost, exited],
    );
    let archived = (Ended, Some(UserError), true);
    check_row(
        "removed",
        allocation(AllocationStatus::Removed),
        [stopping, stopping, stopping, stopping, archived],
    );
}

#[test]
fn each_reported_state_leads_to_its_state() {
    let (exited, stopping) = (ended(UserError), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        exited,
    ];
    let report = |state, observed_revision, expected: [Outcome; 5]| {
        let name = format!("reported {state:?}, observed revision {observed_revision}");
        check_row(
            &name,
            Fact::Observed(&observed(state, observed_revision)),
            expected,
        );
    };
    report(Ordered, 35, unchanged);
    report(
        Launching,
        35,
        [
            in_state(Launching),
            in_state(Launching),
            in_state(Running),
            stopping,
            exited,
        ],
    );
    report(
        Running,
        35,
        [
            in_state(Running),
            in_state(Running),
            in_state(Running),
            stopping,
            exited,
        ],
    );
    report(
        Stopping,
        35,
        [stopping, stopping, stopping, stopping, exited],
    );
    // At revision 29 the agent had not seen the stop, so the program ended by itself.
    report(Ended, 29, [exited, exited, exited, exited, exited]);
    report(Ended, 30, [exited, exited, exited, ended(Intended), exited]);
}

#[test]
fn an_absent_container_ends_only_after_a_recent_enough_report() {
    let (exited, lost, stopping) = (ended(UserError), ended(Node), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        exited,
    ];
    let missing = |observed_revision, expected: [Outcome; 5]| {
        check_row(
            &format!("missing, observed revision {observed_revision}"),
            Fact::Missing { observed_revision },
            expected,
        );
    };
    // The report is older than the launch at revision 20, the stop at revision 30, or neither.
    missing(19, unchanged);
    missing(29, [in_state(Ordered), lost, lost, lost, exited]);
    missing(30, [in_state(Ordered), lost, lost, ended(Intended), exited]);
}

#[test]
fn the_goal_is_run_until_the_stop_and_absent_after_the_end() {
    let goals = State::ALL.map(|state| lifecycle_in(state).goal());
    let (run, stop) = (Some(Goal::Run), Some(Goal::Stop));
    assert_eq!(goals, [run, run, run, stop, None]);
}

#[test]
fn an_unstarted_container_ordered_to_stop_ends_once_its_node_answers() {
    let stopping = apply(
        &Lifecycle::new(1),
        Fact::Allocation(AllocationStatus::Vacated),
        30,
    );
    assert_eq!(
        outcome(
            &stopping,
            Fact::Missing {
                observed_revision: 29
            }
        ),
        (State::Stopping, None, false)
    );
    let ended = outcome(
        &stopping,
        Fact::Missing {
            observed_revision: 30,
        },
    );
    assert_eq!(ended, (State::Ended, Some(ExitCause::Intended), false));
}

#[test]
fn an_orphan_is_stopped_first_and_archived_when_it_has_ended() {
    let orphan = apply(
        &lifecycle_in(State::Running),
        Fact::Allocation(AllocationStatus::Removed),
        30,
    );
    assert_eq!(
        (orphan.state, orphan.goal()),
        (State::Stopping, Some(Goal::Stop))
    );
    let (_, _, is_archived) = outcome(&orphan, Fact::Observed(&observed(Ended, 31)));
    assert!(is_archived);
    let with_allocation = apply(&orphan, Fact::Allocation(AllocationStatus::Vacated), 32);
    let (_, _, is_archived) = outcome(&with_allocation, Fact::Observed(&observed(Ended, 33)));
    assert!(!is_archived);
}

/// An event of a node with containers on it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum NodeEvent {
    Lost,
    Removed,
    Returned,
}

/// Returns the possible sequences of facts after an event of a node, by status of the allocation.
fn fact_sequences(node_event: NodeEvent, status: AllocationStatus) -> Vec<Vec<Fact<'static>>> {
    let (purged, removal) = (
        AllocationStatus::Purged,
        Fact::Allocation(AllocationStatus::Removed),
    );
    let allocation_facts = match status {
        AllocationStatus::Granted | AllocationStatus::Vacated => {
            vec![Fact::Allocation(purged), removal]
        }
        AllocationStatus::Purged | AllocationStatus::Removed => vec![removal],
    };
    match node_event {
        NodeEvent::Lost | NodeEvent::Removed => {
            // Purge, end and removal in rm-scheduler may be one commit: only the removal is seen.
            let removal_only = [
                vec![Fact::NodeLost, removal, Fact::NodeLost],
                vec![removal, Fact::NodeLost],
            ];
            let each_step = [allocation_facts, vec![Fact::NodeLost]].concat();
            [vec![each_step], removal_only.to_vec()].concat()
        }
        NodeEvent::Returned => vec![vec![
            removal,
            Fact::Missing {
                observed_revision: 60,
            },
        ]],
    }
}

#[test]
fn every_container_ends_after_a_loss_removal_or_return_of_its_node() {
    use AllocationStatus::{Granted, Purged, Removed, Vacated};
    let held = Lifecycle::new_held(1);
    let lifecycles = State::ALL.map(lifecycle_in).into_iter().chain([held]);
    for lifecycle in lifecycles {
        for status in [Granted, Vacated, Purged, Removed] {
            let lifecycle = apply(&lifecycle, Fact::Allocation(status), 40);
            for node_event in [NodeEvent::Lost, NodeEvent::Removed, NodeEvent::Returned] {
                for facts in fact_sequences(node_event, status) {
                    let apply_one =
                        |lifecycle: Lifecycle, fact: &Fact<'_>| apply(&lifecycle, *fact, 50);
                    let last = facts.iter().fold(lifecycle.clone(), apply_one);
                    let is_removed = last.has_ended() && last.orphan && last.goal().is_none();
                    assert!(
                        is_removed,
                        "{lifecycle:?} {status:?} {node_event:?} by {facts:?}: {last:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_lost_node_alone_ends_nothing_that_has_an_allocation() {
    let (exited, stopping) = (ended(UserError), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        exited,
    ];
    check_row("node lost", Fact::NodeLost, unchanged);
}

#[test]
fn reports_of_another_incarnation_are_ignored() {
    let other_incarnation = Observation {
        incarnation: 2,
        ..observed(State::Ended, 50)
    };
    assert_eq!(
        decide(
            &lifecycle_in(State::Running),
            Fact::Observed(&other_incarnation),
            40
        ),
        Transition::Unchanged
    );
}

#[test]
fn only_ends_caused_by_a_stop_are_intended() {
    use ExitCause::{LaunchFailed, LaunchUnknown, Success, UserLimit};
    let stopping = [
        (Success, Intended),
        (UserError, Intended),
        (Intended, Intended),
        (UserLimit, UserLimit),
        (LaunchFailed, LaunchFailed),
        (LaunchUnknown, LaunchUnknown),
        (Node, Node),
    ];
    for (reported, expected) in stopping {
        let observation = Observation {
            exit: Some(Exit {
                signal: Some(15),
                ..Exit::of(reported, "m")
            }),
            ..observed(State::Ended, 30)
        };
        let lifecycle = apply(
            &lifecycle_in(State::Stopping),
            Fact::Observed(&observation),
            40,
        );
        let exit = lifecycle.exit.unwrap();
        assert_eq!(
            (exit.cause, exit.signal),
            (expected, Some(15)),
            "{reported:?}"
        );
        assert_eq!(exit.message.as_deref(), Some("m"));
    }
}

#[test]
fn messages_are_short_and_fit_a_row() {
    let exit = Exit::of(ExitCause::UserError, format!("a\0{}", "x".repeat(5000)));
    let observation = Observation {
        exit: Some(exit),
        ..observed(State::Ended, ORDER_REVISION)
    };
    let message = apply(
        &lifecycle_in(State::Running),
        Fact::Observed(&observation),
        40,
    )
    .exit
    .unwrap()
    .message;
    let message = message.unwrap();
    assert!(message.starts_with("a\u{fffd}x") && message.chars().count() == MAX_MESSAGE_CHARS);
}

#[test]
fn the_reason_is_the_one_reported_last() {
    let with_reason = |reason: &str| Observation {
        reason: Some(reason.to_owned()),
        ..observed(State::Running, 30)
    };
    let stuck = apply(
        &lifecycle_in(State::Stopping),
        Fact::Observed(&with_reason("it is in disk sleep")),
        40,
    );
    assert_eq!(stuck.state, State::Stopping);
    assert_eq!(stuck.reason.as_deref(), Some("it is in disk sleep"));
    let same = decide(
        &stuck,
        Fact::Observed(&with_reason("it is in disk sleep")),
        41,
    );
    assert_eq!(same, Transition::Unchanged, "the same reason is no change");
    let long = apply(
        &stuck,
        Fact::Observed(&with_reason(&"\0x".repeat(5_000))),
        42,
    );
    let stored = long.reason.clone().unwrap();
    assert!(stored.starts_with("\u{fffd}x") && stored.chars().count() == MAX_MESSAGE_CHARS);
    let cleared = apply(&long, Fact::Observed(&observed(State::Running, 30)), 43);
    assert_eq!(cleared.reason, None);
    let ended = apply(&stuck, Fact::Observed(&observed(State::Ended, 30)), 44);
    assert_eq!(ended.reason, None, "the exit replaces the reason");
}
