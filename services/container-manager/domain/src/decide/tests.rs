use super::*;
use crate::life::Goal;
use ExitCause::{Intended, Node, UserError};
use State::{Ended, Launching, Ordered, Running, Stopping};
use proptest::prelude::*;

const ORDER: u64 = 10;

fn observed(state: State, answers: u64) -> Observation {
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
        answers: Some(answers),
    }
}

fn after(life: &Life, fact: Fact<'_>, revision: u64) -> Life {
    match decide(life, fact, revision) {
        Step::Stay => life.clone(),
        Step::Become(next) | Step::Bury(next) => next,
    }
}

/// A life in each state, reached the ordinary way. Launched at 20, ordered to stop at 30.
fn at(state: State) -> Life {
    let life = Life::ordered(1);
    let path = [State::Launching, State::Running];
    let mut life = match state {
        State::Ordered => return life,
        _ => path.iter().fold(life, |life, state| {
            after(&life, Fact::Observed(&observed(*state, ORDER)), 20)
        }),
    };
    if state == State::Launching {
        life = after(
            &Life::ordered(1),
            Fact::Observed(&observed(State::Launching, ORDER)),
            20,
        );
    }
    if state == State::Stopping {
        life = after(&life, Fact::Allocation(AllocationStatus::Leaving), 30);
    }
    if state == State::Ended {
        life = after(&life, Fact::Observed(&observed(State::Ended, ORDER)), 25);
    }
    assert_eq!(life.state, state);
    life
}

/// The state a fact leads to, the cause of the end if it ended, and whether it is buried.
type Outcome = (State, Option<ExitCause>, bool);

fn outcome(life: &Life, fact: Fact<'_>) -> Outcome {
    let step = decide(life, fact, 40);
    let buried = matches!(step, Step::Bury(_));
    let life = match step {
        Step::Stay => life.clone(),
        Step::Become(next) | Step::Bury(next) => next,
    };
    (life.state, life.exit.map(|exit| exit.cause), buried)
}

fn in_state(state: State) -> Outcome {
    (state, None, false)
}

fn ended(cause: ExitCause) -> Outcome {
    (Ended, Some(cause), false)
}

/// One row of the table: the outcome from ordered, launching, running, stopping (ordered at 30) and
/// ended (by itself).
fn row(name: &str, fact: Fact<'_>, expected: [Outcome; 5]) {
    for (state, expected) in State::ALL.into_iter().zip(expected) {
        assert_eq!(outcome(&at(state), fact), expected, "{name} from {state:?}");
    }
}

#[test]
fn the_table_of_transitions_by_allocations() {
    let (own_end, node, stopping) = (ended(UserError), ended(Node), in_state(Stopping));
    let allocation = Fact::Allocation;
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        own_end,
    ];
    row("wanted", allocation(AllocationStatus::Wanted), unchanged);
    row(
        "leaving",
        allocation(AllocationStatus::Leaving),
        [stopping, stopping, stopping, stopping, own_end],
    );
    row(
        "purged",
        allocation(AllocationStatus::Purged),
        [node, node, node, node, own_end],
    );
    let buried = (Ended, Some(UserError), true);
    row(
        "gone",
        allocation(AllocationStatus::Gone),
        [stopping, stopping, stopping, stopping, buried],
    );
}

#[test]
fn the_table_of_transitions_by_reports() {
    let (own_end, stopping) = (ended(UserError), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        own_end,
    ];
    let report = |state, answers, expected: [Outcome; 5]| {
        let name = format!("reported {state:?}, answering {answers}");
        row(&name, Fact::Observed(&observed(state, answers)), expected);
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
            own_end,
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
            own_end,
        ],
    );
    report(
        Stopping,
        35,
        [stopping, stopping, stopping, stopping, own_end],
    );
    report(Ended, 29, [own_end, own_end, own_end, own_end, own_end]);
    report(
        Ended,
        30,
        [own_end, own_end, own_end, ended(Intended), own_end],
    );
}

#[test]
fn the_table_of_transitions_by_absence() {
    let (own_end, node, stopping) = (ended(UserError), ended(Node), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        own_end,
    ];
    let missing = |answers, expected: [Outcome; 5]| {
        row(
            &format!("missing, answering {answers}"),
            Fact::Missing { answers },
            expected,
        );
    };
    missing(19, unchanged);
    missing(29, [in_state(Ordered), node, node, node, own_end]);
    missing(
        30,
        [in_state(Ordered), node, node, ended(Intended), own_end],
    );
}

#[test]
fn the_goal_is_run_until_the_stop_and_absent_after_the_end() {
    let goals = State::ALL.map(|state| at(state).desired());
    let (run, stop) = (Some(Goal::Run), Some(Goal::Stop));
    assert_eq!(goals, [run, run, run, stop, None]);
}

#[test]
fn an_unstarted_container_ordered_to_stop_ends_once_its_node_answers() {
    let stopping = after(
        &Life::ordered(1),
        Fact::Allocation(AllocationStatus::Leaving),
        30,
    );
    assert_eq!(
        outcome(&stopping, Fact::Missing { answers: 29 }),
        (State::Stopping, None, false)
    );
    let over = outcome(&stopping, Fact::Missing { answers: 30 });
    assert_eq!(over, (State::Ended, Some(ExitCause::Intended), false));
}

#[test]
fn an_orphan_is_stopped_first_and_buried_when_it_has_ended() {
    let orphan = after(
        &at(State::Running),
        Fact::Allocation(AllocationStatus::Gone),
        30,
    );
    assert_eq!(
        (orphan.state, orphan.desired()),
        (State::Stopping, Some(Goal::Stop))
    );
    assert!(outcome(&orphan, Fact::Observed(&observed(Ended, 31))).2);
    let back = after(&orphan, Fact::Allocation(AllocationStatus::Leaving), 32);
    assert!(!outcome(&back, Fact::Observed(&observed(Ended, 33))).2);
}

/// The fate of a node with containers on it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
    Back,
}

/// The possible sequences of facts after the fate of a node, for each status of the allocation.
fn facts(fate: Fate, status: AllocationStatus) -> Vec<Vec<Fact<'static>>> {
    let (purged, gone) = (
        AllocationStatus::Purged,
        Fact::Allocation(AllocationStatus::Gone),
    );
    let expected = match status {
        AllocationStatus::Wanted | AllocationStatus::Leaving => {
            vec![Fact::Allocation(purged), gone]
        }
        AllocationStatus::Purged | AllocationStatus::Gone => vec![gone],
    };
    match fate {
        Fate::Lost | Fate::Forgotten => {
            // Purge, end and removal in rm-scheduler may be one commit: only the removal is seen.
            let unseen = [
                vec![Fact::NodeLost, gone, Fact::NodeLost],
                vec![gone, Fact::NodeLost],
            ];
            let seen = [expected, vec![Fact::NodeLost]].concat();
            [vec![seen], unseen.to_vec()].concat()
        }
        Fate::Back => vec![vec![gone, Fact::Missing { answers: 60 }]],
    }
}

#[test]
fn every_container_ends_whatever_happens_to_its_node() {
    use AllocationStatus::{Gone, Leaving, Purged, Wanted};
    let held = Life::held(1);
    let lives = State::ALL.map(at).into_iter().chain([held]);
    for life in lives {
        for status in [Wanted, Leaving, Purged, Gone] {
            let life = after(&life, Fact::Allocation(status), 40);
            for fate in [Fate::Lost, Fate::Forgotten, Fate::Back] {
                for path in facts(fate, status) {
                    let walk = |life: Life, fact: &Fact<'_>| after(&life, *fact, 50);
                    let end = path.iter().fold(life.clone(), walk);
                    let over = end.has_ended() && end.orphan && end.desired().is_none();
                    assert!(over, "{life:?} {status:?} {fate:?} by {path:?}: {end:?}");
                }
            }
        }
    }
}

#[test]
fn a_lost_node_alone_ends_nothing_that_has_an_allocation() {
    let (own_end, stopping) = (ended(UserError), in_state(Stopping));
    let unchanged = [
        in_state(Ordered),
        in_state(Launching),
        in_state(Running),
        stopping,
        own_end,
    ];
    row("node lost", Fact::NodeLost, unchanged);
}

#[test]
fn reports_of_another_incarnation_are_ignored() {
    let other = Observation {
        incarnation: 2,
        ..observed(State::Ended, 50)
    };
    assert_eq!(
        decide(&at(State::Running), Fact::Observed(&other), 40),
        Step::Stay
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
        let life = after(&at(State::Stopping), Fact::Observed(&observation), 40);
        let exit = life.exit.unwrap();
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
        ..observed(State::Ended, ORDER)
    };
    let message = after(&at(State::Running), Fact::Observed(&observation), 40)
        .exit
        .unwrap()
        .message;
    let message = message.unwrap();
    assert!(message.starts_with("a\u{fffd}x") && message.chars().count() == MESSAGE_LIMIT);
}

#[test]
fn the_reason_is_the_one_reported_last() {
    let reports = |reason: &str| Observation {
        reason: Some(reason.to_owned()),
        ..observed(State::Running, 30)
    };
    let stuck = after(
        &at(State::Stopping),
        Fact::Observed(&reports("it is in disk sleep")),
        40,
    );
    assert_eq!(stuck.state, State::Stopping);
    assert_eq!(stuck.reason.as_deref(), Some("it is in disk sleep"));
    let again = decide(&stuck, Fact::Observed(&reports("it is in disk sleep")), 41);
    assert_eq!(again, Step::Stay, "the same reason is no change");
    let long = after(&stuck, Fact::Observed(&reports(&"\0x".repeat(5_000))), 42);
    let stored = long.reason.clone().unwrap();
    assert!(stored.starts_with("\u{fffd}x") && stored.chars().count() == MESSAGE_LIMIT);
    let cleared = after(&long, Fact::Observed(&observed(State::Running, 30)), 43);
    assert_eq!(cleared.reason, None);
    let ended = after(&stuck, Fact::Observed(&observed(State::Ended, 30)), 44);
    assert_eq!(ended.reason, None, "the exit replaces the reason");
}

fn reports() -> impl Strategy<Value = Vec<Observation>> {
    let states = [
        State::Ordered,
        State::Launching,
        State::Running,
        State::Ended,
    ];
    let all: Vec<Observation> = states
        .into_iter()
        .map(|state| observed(state, ORDER))
        .collect();
    proptest::collection::vec(0..4_usize, 0..12).prop_map(move |picks| {
        let mut order: Vec<usize> = picks;
        order.push(3);
        order.push(2);
        order.into_iter().map(|at| all[at].clone()).collect()
    })
}

proptest! {
    /// The outcome is recorded once (I6).
    #[test]
    fn reports_in_any_order_and_number_give_the_same_end(
        reports in reports(), late in 0..ORDER
    ) {
        let mut life = Life::ordered(1);
        let mut ends = 0;
        for (at, report) in reports.iter().enumerate() {
            let revision = ORDER + 1 + at as u64;
            let next = after(&life, Fact::Observed(report), revision);
            ends += usize::from(next.has_ended() && !life.has_ended());
            prop_assert!(next.state >= life.state);
            life = after(&next, Fact::Missing { answers: late }, revision);
        }
        prop_assert_eq!(ends, 1);
        prop_assert_eq!(life.exit.unwrap().code, Some(3));
    }

    #[test]
    fn terminal_states_absorb(facts in proptest::collection::vec((0..9_u8, 0..60_u64), 0..30)) {
        let mut life = Life::ordered(1);
        for (revision, (kind, answers)) in facts.into_iter().enumerate() {
            let observation = observed(State::ALL[usize::from(kind % 5)], answers);
            let fact = match kind {
                0 => Fact::Allocation(AllocationStatus::Wanted),
                1 => Fact::Allocation(AllocationStatus::Leaving),
                2 => Fact::Allocation(AllocationStatus::Purged),
                3 => Fact::Missing { answers },
                _ => Fact::Observed(&observation),
            };
            let next = after(&life, fact, revision as u64);
            prop_assert!(next.state >= life.state);
            prop_assert_eq!(next.has_ended(), next.exit.is_some());
            if life.has_ended() {
                prop_assert_eq!(&next.exit, &life.exit);
            }
            life = next;
        }
    }
}

#[test]
fn a_held_container_is_not_desired_and_ends_at_once_when_stopped() {
    let held = Life::held(2);
    assert_eq!(held.desired(), None);
    assert_eq!(decide(&held, Fact::Missing { answers: 99 }, 5), Step::Stay);
    for fact in [Fact::Stop, Fact::Allocation(AllocationStatus::Leaving)] {
        let over = after(&held, fact, 5);
        let cause = over.exit.as_ref().map(|exit| exit.cause);
        assert_eq!((over.state, cause), (Ended, Some(Intended)));
        assert_eq!(over.desired(), None);
    }
    let launched = after(&held, Fact::Launch, 5);
    assert_eq!(
        (launched.desired(), launched.state),
        (Some(Goal::Run), Ordered)
    );
    assert_eq!(after(&launched, Fact::Launch, 6), launched);
}

#[test]
fn a_stop_for_a_move_ends_as_intended() {
    let stopping = after(&at(Running), Fact::Stop, 30);
    assert_eq!(
        (stopping.state, stopping.desired()),
        (Stopping, Some(Goal::Stop))
    );
    assert_eq!(
        after(&stopping, Fact::Allocation(AllocationStatus::Wanted), 31),
        stopping
    );
    let over = after(&stopping, Fact::Observed(&observed(Ended, 30)), 32);
    assert_eq!(over.exit.unwrap().cause, Intended);
}
