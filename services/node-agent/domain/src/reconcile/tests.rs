//! Tests which actions follow from desired and actual containers.

use super::*;
use proptest::prelude::*;

fn id(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

fn desired_with(goal: Goal) -> DesiredContainer {
    DesiredContainer {
        incarnation: 1,
        epoch: 1,
        goal,
        exclusive: false,
    }
}

fn actual_in(phase: Phase) -> ActualContainer {
    ActualContainer {
        incarnation: 1,
        epoch: 1,
        phase,
    }
}

fn state(desired: &[(u8, DesiredContainer)], actual: &[(u8, ActualContainer)]) -> State {
    State {
        desired: desired
            .iter()
            .map(|(number, desired)| (id(*number), *desired))
            .collect(),
        actual: actual
            .iter()
            .map(|(number, actual)| (id(*number), *actual))
            .collect(),
        full_set_received: true,
        ..State::default()
    }
}

#[test]
fn each_pair_of_goal_and_phase_has_its_action() {
    let start = Some(Action::Start {
        id: id(1),
        incarnation: 1,
    });
    let stop = Some(Action::Stop { id: id(1) });
    let conclude = Some(Action::Conclude {
        id: id(1),
        incarnation: 1,
        cause: ExitCause::Intended,
    });
    let forget = Some(Action::Forget { id: id(1) });
    let table = [
        (Some(Goal::Run), None, start),
        (Some(Goal::Run), Some(Phase::Launching), None),
        (Some(Goal::Run), Some(Phase::Running), None),
        (Some(Goal::Run), Some(Phase::Stopping), None),
        (Some(Goal::Run), Some(Phase::Ended), None),
        (Some(Goal::Stop), None, conclude),
        (Some(Goal::Stop), Some(Phase::Launching), stop.clone()),
        (Some(Goal::Stop), Some(Phase::Running), stop.clone()),
        (Some(Goal::Stop), Some(Phase::Stopping), None),
        (Some(Goal::Stop), Some(Phase::Ended), None),
        (Some(Goal::Unknown), None, None),
        (Some(Goal::Unknown), Some(Phase::Running), None),
        (Some(Goal::Unknown), Some(Phase::Ended), None),
        (None, Some(Phase::Running), stop),
        (None, Some(Phase::Stopping), None),
        (None, Some(Phase::Ended), forget),
    ];
    for (goal, phase, expected) in table {
        let desired: Vec<_> = goal
            .map(|goal| (1, desired_with(goal)))
            .into_iter()
            .collect();
        let actual: Vec<_> = phase
            .map(|phase| (1, actual_in(phase)))
            .into_iter()
            .collect();
        let actions = reconcile(&state(&desired, &actual));
        assert_eq!(actions.first().cloned(), expected, "{goal:?} {phase:?}");
        assert!(actions.len() <= 1);
    }
}

#[test]
fn absent_containers_end_only_after_the_full_set_was_received() {
    let mut state = state(
        &[],
        &[(1, actual_in(Phase::Running)), (2, actual_in(Phase::Ended))],
    );
    state.full_set_received = false;
    assert_eq!(reconcile(&state), []);
}

#[test]
fn an_order_of_an_older_epoch_changes_nothing() {
    let mut actual = actual_in(Phase::Running);
    actual.epoch = 2;
    assert_eq!(
        reconcile(&state(&[(1, desired_with(Goal::Stop))], &[(1, actual)])),
        []
    );
}

#[test]
fn work_that_may_have_been_started_before_is_not_started() {
    let mut state = state(&[(1, desired_with(Goal::Run))], &[]);
    state.doubtful.insert(id(1));
    let cause = ExitCause::LaunchUnknown;
    assert_eq!(
        reconcile(&state),
        [Action::Conclude {
            id: id(1),
            incarnation: 1,
            cause
        }]
    );
}

fn goals() -> impl Strategy<Value = Goal> {
    prop_oneof![Just(Goal::Run), Just(Goal::Stop), Just(Goal::Unknown)]
}

/// One step of a test: the desired state of a container changes or is removed, or the process of
/// the container starts or ends.
#[derive(Debug, Clone)]
enum Step {
    SetDesired(u8, u64, Goal),
    Withdraw(u8),
    ProcessStarts(u8),
    ProcessEnds(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3_u8, 1..4_u64, goals()).prop_map(|(id, incarnation, goal)| Step::SetDesired(
            id,
            incarnation,
            goal
        )),
        (0..3_u8).prop_map(Step::Withdraw),
        (0..3_u8).prop_map(Step::ProcessStarts),
        (0..3_u8).prop_map(Step::ProcessEnds),
    ];
    prop::collection::vec(step, 0..60)
}

fn apply_action(state: &mut State, action: &Action) {
    match action {
        Action::Start { id, incarnation } => {
            let actual = ActualContainer {
                incarnation: *incarnation,
                epoch: 1,
                phase: Phase::Launching,
            };
            assert!(
                state.actual.insert(id.clone(), actual).is_none(),
                "an incarnation started before the previous one was forgotten"
            );
        }
        Action::Stop { id } => state.actual.get_mut(id).unwrap().phase = Phase::Stopping,
        Action::Forget { id } => {
            assert_eq!(state.actual.remove(id).unwrap().phase, Phase::Ended);
        }
        Action::Conclude {
            id, incarnation, ..
        } => {
            let actual = ActualContainer {
                incarnation: *incarnation,
                epoch: 1,
                phase: Phase::Ended,
            };
            state.actual.insert(id.clone(), actual);
        }
    }
}

proptest! {
    /// Each incarnation starts at most once, if incarnations only grow and removed ids do not
    /// return (I3).
    #[test]
    fn an_incarnation_starts_at_most_once(steps in steps()) {
        let mut state = State { full_set_received: true, ..State::default() };
        let mut started = BTreeSet::new();
        let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
        let mut removed = BTreeSet::new();
        for step in steps {
            match step {
                Step::SetDesired(number, incarnation, goal) if !removed.contains(&number) => {
                    let newest = newest.entry(number).or_insert(1);
                    *newest = incarnation.max(*newest);
                    let desired = DesiredContainer { incarnation: *newest, ..desired_with(goal) };
                    state.desired.insert(id(number), desired);
                }
                Step::SetDesired(..) => {}
                Step::Withdraw(number) => {
                    if state.desired.remove(&id(number)).is_some() {
                        removed.insert(number);
                    }
                }
                Step::ProcessStarts(number) => {
                    if let Some(actual) = state.actual.get_mut(&id(number))
                        && actual.phase == Phase::Launching {
                        actual.phase = Phase::Running;
                    }
                }
                Step::ProcessEnds(number) => {
                    if let Some(actual) = state.actual.get_mut(&id(number)) {
                        actual.phase = Phase::Ended;
                    }
                }
            }
            // Three rounds are enough: forget the old incarnation, start the new one, and return no
            // action.
            for _ in 0..3 {
                for action in reconcile(&state) {
                    if let Action::Start { id, incarnation } = &action {
                        prop_assert!(started.insert((id.clone(), *incarnation)), "{action:?}");
                    }
                    apply_action(&mut state, &action);
                }
            }
            prop_assert_eq!(reconcile(&state), vec![]);
        }
    }
}

#[test]
fn exclusive_work_waits_for_a_lease_and_never_starts_after_an_expired_one() {
    let exclusive = |goal| DesiredContainer {
        exclusive: true,
        ..desired_with(goal)
    };
    let conclude = |cause| {
        Some(Action::Conclude {
            id: id(1),
            incarnation: 1,
            cause,
        })
    };
    let start = Some(Action::Start {
        id: id(1),
        incarnation: 1,
    });
    for (goal, has_lease, lease_missed, expected) in [
        (Goal::Run, false, false, None),
        (Goal::Run, true, false, start),
        (Goal::Run, true, true, conclude(ExitCause::Node)),
        (Goal::Run, false, true, conclude(ExitCause::Node)),
        (Goal::Stop, false, false, conclude(ExitCause::Intended)),
        (Goal::Unknown, true, true, None),
    ] {
        let mut state = state(&[(1, exclusive(goal))], &[]);
        state.has_lease = has_lease;
        if lease_missed {
            state.lease_missed.insert(id(1));
        }
        let actions = reconcile(&state);
        assert_eq!(
            actions.first().cloned(),
            expected,
            "{goal:?} {has_lease} {lease_missed}"
        );
    }
    // A running container is ended by its supervisor. Work that is not exclusive never waits.
    let running = state(
        &[(1, exclusive(Goal::Run)), (2, desired_with(Goal::Run))],
        &[(1, actual_in(Phase::Running))],
    );
    let actions = reconcile(&running);
    assert!(matches!(&actions[..], [Action::Start { id, .. }] if *id == self::id(2)));
}
