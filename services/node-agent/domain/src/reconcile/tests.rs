use super::*;
use proptest::prelude::*;

fn id(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

fn wanted(goal: Goal) -> Wanted {
    Wanted {
        incarnation: 1,
        epoch: 1,
        goal,
        exclusive: false,
    }
}

fn there(phase: Phase) -> Actual {
    Actual {
        incarnation: 1,
        epoch: 1,
        phase,
    }
}

fn picture(desired: &[(u8, Wanted)], actual: &[(u8, Actual)]) -> Picture {
    Picture {
        desired: desired
            .iter()
            .map(|(number, wanted)| (id(*number), *wanted))
            .collect(),
        actual: actual
            .iter()
            .map(|(number, actual)| (id(*number), *actual))
            .collect(),
        seen_in_full: true,
        ..Picture::default()
    }
}

#[test]
fn each_pair_of_goal_and_phase_has_its_step() {
    let start = Some(Action::Start {
        id: id(1),
        incarnation: 1,
    });
    let stop = Some(Action::Stop { id: id(1) });
    let never = Some(Action::Conclude {
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
        (Some(Goal::Stop), None, never),
        (Some(Goal::Stop), Some(Phase::Launching), stop.clone()),
        (Some(Goal::Stop), Some(Phase::Running), stop.clone()),
        (Some(Goal::Stop), Some(Phase::Stopping), None),
        (Some(Goal::Stop), Some(Phase::Ended), None),
        (Some(Goal::Hold), None, None),
        (Some(Goal::Hold), Some(Phase::Running), None),
        (Some(Goal::Hold), Some(Phase::Ended), None),
        (None, Some(Phase::Running), stop),
        (None, Some(Phase::Stopping), None),
        (None, Some(Phase::Ended), forget),
    ];
    for (goal, phase, step) in table {
        let desired: Vec<_> = goal.map(|goal| (1, wanted(goal))).into_iter().collect();
        let actual: Vec<_> = phase.map(|phase| (1, there(phase))).into_iter().collect();
        let actions = reconcile(&picture(&desired, &actual));
        assert_eq!(actions.first().cloned(), step, "{goal:?} {phase:?}");
        assert!(actions.len() <= 1);
    }
}

#[test]
fn nothing_ends_for_being_absent_before_the_set_was_seen_in_full() {
    let mut picture = picture(&[], &[(1, there(Phase::Running)), (2, there(Phase::Ended))]);
    picture.seen_in_full = false;
    assert_eq!(reconcile(&picture), []);
}

#[test]
fn i7_an_older_epoch_changes_nothing() {
    let mut actual = there(Phase::Running);
    actual.epoch = 2;
    assert_eq!(
        reconcile(&picture(&[(1, wanted(Goal::Stop))], &[(1, actual)])),
        []
    );
}

#[test]
fn i3_what_a_damaged_journal_may_have_started_is_not_started_again() {
    let mut picture = picture(&[(1, wanted(Goal::Run))], &[]);
    picture.doubtful.insert(id(1));
    let cause = ExitCause::LaunchUnknown;
    assert_eq!(
        reconcile(&picture),
        [Action::Conclude {
            id: id(1),
            incarnation: 1,
            cause
        }]
    );
}

fn goals() -> impl Strategy<Value = Goal> {
    prop_oneof![Just(Goal::Run), Just(Goal::Stop), Just(Goal::Hold)]
}

/// One step of a world: the wish of a container changes, goes, or its process ends.
#[derive(Debug, Clone)]
enum Step {
    Wish(u8, u64, Goal),
    Withdraw(u8),
    Starts(u8),
    Ends(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3_u8, 1..4_u64, goals()).prop_map(|(id, inc, goal)| Step::Wish(id, inc, goal)),
        (0..3_u8).prop_map(Step::Withdraw),
        (0..3_u8).prop_map(Step::Starts),
        (0..3_u8).prop_map(Step::Ends),
    ];
    prop::collection::vec(step, 0..60)
}

fn obey(picture: &mut Picture, action: &Action) {
    match action {
        Action::Start { id, incarnation } => {
            let actual = Actual {
                incarnation: *incarnation,
                epoch: 1,
                phase: Phase::Launching,
            };
            assert!(
                picture.actual.insert(id.clone(), actual).is_none(),
                "started over another"
            );
        }
        Action::Stop { id } => picture.actual.get_mut(id).unwrap().phase = Phase::Stopping,
        Action::Forget { id } => {
            assert_eq!(picture.actual.remove(id).unwrap().phase, Phase::Ended);
        }
        Action::Conclude {
            id, incarnation, ..
        } => {
            let actual = Actual {
                incarnation: *incarnation,
                epoch: 1,
                phase: Phase::Ended,
            };
            picture.actual.insert(id.clone(), actual);
        }
    }
}

proptest! {
    /// I3 over any history in which ids are used as promised: incarnations only grow, and an id
    /// that was withdrawn does not come back.
    #[test]
    fn an_incarnation_starts_at_most_once(steps in steps()) {
        let mut picture = Picture { seen_in_full: true, ..Picture::default() };
        let mut started = BTreeSet::new();
        let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for step in steps {
            match step {
                Step::Wish(number, incarnation, goal) if !gone.contains(&number) => {
                    let newest = newest.entry(number).or_insert(1);
                    *newest = incarnation.max(*newest);
                    let wish = Wanted { incarnation: *newest, epoch: 1, goal, exclusive: false };
                    picture.desired.insert(id(number), wish);
                }
                Step::Wish(..) => {}
                Step::Withdraw(number) => {
                    if picture.desired.remove(&id(number)).is_some() {
                        gone.insert(number);
                    }
                }
                Step::Starts(number) => {
                    if let Some(actual) = picture.actual.get_mut(&id(number))
                        && actual.phase == Phase::Launching {
                        actual.phase = Phase::Running;
                    }
                }
                Step::Ends(number) => {
                    if let Some(actual) = picture.actual.get_mut(&id(number)) {
                        actual.phase = Phase::Ended;
                    }
                }
            }
            // At most: forget the old incarnation, start the new one, rest.
            for _ in 0..3 {
                for action in reconcile(&picture) {
                    if let Action::Start { id, incarnation } = &action {
                        prop_assert!(started.insert((id.clone(), *incarnation)), "{action:?}");
                    }
                    obey(&mut picture, &action);
                }
            }
            prop_assert_eq!(reconcile(&picture), vec![]);
        }
    }
}

#[test]
fn i4_exclusive_work_waits_for_a_lease_and_is_never_started_after_one_that_ran_out() {
    let exclusive = |goal| Wanted {
        exclusive: true,
        ..wanted(goal)
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
    for (goal, leased, overtaken, expected) in [
        (Goal::Run, false, false, None),
        (Goal::Run, true, false, start),
        (Goal::Run, true, true, conclude(ExitCause::Node)),
        (Goal::Run, false, true, conclude(ExitCause::Node)),
        (Goal::Stop, false, false, conclude(ExitCause::Intended)),
        (Goal::Hold, true, true, None),
    ] {
        let mut picture = picture(&[(1, exclusive(goal))], &[]);
        picture.leased = leased;
        if overtaken {
            picture.overtaken.insert(id(1));
        }
        let actions = reconcile(&picture);
        assert_eq!(
            actions.first().cloned(),
            expected,
            "{goal:?} {leased} {overtaken}"
        );
    }
    // What runs is its supervisor's to end; and other work never waits.
    let running = picture(
        &[(1, exclusive(Goal::Run)), (2, wanted(Goal::Run))],
        &[(1, there(Phase::Running))],
    );
    let actions = reconcile(&running);
    assert!(matches!(&actions[..], [Action::Start { id, .. }] if *id == self::id(2)));
}
