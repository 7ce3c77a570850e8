use super::*;
use crate::life::Goal;
use ExitCause::{Intended, Node, UserError};
use State::{Ended, Launching, Ordered, Running, Stopping};
use proptest::prelude::*;

const ORDER: u64 = 10;

fn seen(state: State, answers: u64) -> Observation {
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

/// A life in each state, as the ordinary road leads there. Known at 20, told to stop at 30.
fn at(state: State) -> Life {
    let life = Life::ordered(1);
    let road = [State::Launching, State::Running];
    let mut life = match state {
        State::Ordered => return life,
        _ => road.iter().fold(life, |life, state| {
            after(&life, Fact::Observed(&seen(*state, ORDER)), 20)
        }),
    };
    if state == State::Launching {
        life = after(
            &Life::ordered(1),
            Fact::Observed(&seen(State::Launching, ORDER)),
            20,
        );
    }
    if state == State::Stopping {
        life = after(&life, Fact::Allocation(AllocationStatus::Leaving), 30);
    }
    if state == State::Ended {
        life = after(&life, Fact::Observed(&seen(State::Ended, ORDER)), 25);
    }
    assert_eq!(life.state, state);
    life
}

/// The state a fact leads to, the cause of the end where it is one, and whether it is buried.
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

fn on(state: State) -> Outcome {
    (state, None, false)
}

fn ended(cause: ExitCause) -> Outcome {
    (Ended, Some(cause), false)
}

/// One row of the table: what a fact leads to from ordered, launching, running, stopping (told at
/// 30) and ended (by itself).
fn row(name: &str, fact: Fact<'_>, expected: [Outcome; 5]) {
    for (state, expected) in State::ALL.into_iter().zip(expected) {
        assert_eq!(outcome(&at(state), fact), expected, "{name} from {state:?}");
    }
}

#[test]
fn the_table_of_transitions_by_allocations() {
    let (kept, node, stopping) = (ended(UserError), ended(Node), on(Stopping));
    let allocation = Fact::Allocation;
    let as_they_are = [on(Ordered), on(Launching), on(Running), stopping, kept];
    row("wanted", allocation(AllocationStatus::Wanted), as_they_are);
    row(
        "leaving",
        allocation(AllocationStatus::Leaving),
        [stopping, stopping, stopping, stopping, kept],
    );
    row(
        "purged",
        allocation(AllocationStatus::Purged),
        [node, node, node, node, kept],
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
    let (kept, stopping) = (ended(UserError), on(Stopping));
    let as_they_are = [on(Ordered), on(Launching), on(Running), stopping, kept];
    let report = |state, answers, expected: [Outcome; 5]| {
        let name = format!("reported {state:?}, answering {answers}");
        row(&name, Fact::Observed(&seen(state, answers)), expected);
    };
    report(Ordered, 35, as_they_are);
    report(
        Launching,
        35,
        [on(Launching), on(Launching), on(Running), stopping, kept],
    );
    report(
        Running,
        35,
        [on(Running), on(Running), on(Running), stopping, kept],
    );
    report(Stopping, 35, [stopping, stopping, stopping, stopping, kept]);
    report(Ended, 29, [kept, kept, kept, kept, kept]);
    report(Ended, 30, [kept, kept, kept, ended(Intended), kept]);
}

#[test]
fn the_table_of_transitions_by_absence() {
    let (kept, node, stopping) = (ended(UserError), ended(Node), on(Stopping));
    let as_they_are = [on(Ordered), on(Launching), on(Running), stopping, kept];
    let missing = |answers, expected: [Outcome; 5]| {
        row(
            &format!("missing, answering {answers}"),
            Fact::Missing { answers },
            expected,
        );
    };
    missing(19, as_they_are);
    missing(29, [on(Ordered), node, node, node, kept]);
    missing(30, [on(Ordered), node, node, ended(Intended), kept]);
}

#[test]
fn desired_follows_the_stop_and_ends_with_the_end() {
    let goals = State::ALL.map(|state| at(state).desired());
    let (run, stop) = (Some(Goal::Run), Some(Goal::Stop));
    assert_eq!(goals, [run, run, run, stop, None]);
}

#[test]
fn what_was_never_started_and_told_to_stop_is_over_once_the_node_answers() {
    let told = after(
        &Life::ordered(1),
        Fact::Allocation(AllocationStatus::Leaving),
        30,
    );
    assert_eq!(
        outcome(&told, Fact::Missing { answers: 29 }),
        (State::Stopping, None, false)
    );
    let over = outcome(&told, Fact::Missing { answers: 30 });
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
    assert!(outcome(&orphan, Fact::Observed(&seen(Ended, 31))).2);
    let back = after(&orphan, Fact::Allocation(AllocationStatus::Leaving), 32);
    assert!(!outcome(&back, Fact::Observed(&seen(Ended, 33))).2);
}

/// The fate of a node with containers on it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
    Back,
}

/// The facts that follow from a fate, in the order in which they may come: for a container that has
/// an allocation, and for one whose allocation is gone.
fn facts(fate: Fate, status: AllocationStatus) -> Vec<Vec<Fact<'static>>> {
    let (purged, gone) = (
        AllocationStatus::Purged,
        Fact::Allocation(AllocationStatus::Gone),
    );
    let asked = match status {
        // While its work wants it, only that its node is back lets it go on.
        AllocationStatus::Wanted | AllocationStatus::Leaving => {
            vec![Fact::Allocation(purged), gone]
        }
        AllocationStatus::Purged | AllocationStatus::Gone => vec![gone],
    };
    match fate {
        Fate::Lost | Fate::Forgotten => {
            // Purge, end and burial above may be one commit: then it is gone without a word.
            let unheard = [
                vec![Fact::NodeLost, gone, Fact::NodeLost],
                vec![gone, Fact::NodeLost],
            ];
            let told = [asked, vec![Fact::NodeLost]].concat();
            [vec![told], unheard.to_vec()].concat()
        }
        Fate::Back => vec![vec![gone, Fact::Missing { answers: 60 }]],
    }
}

#[test]
fn every_container_comes_to_an_end_whatever_becomes_of_its_node() {
    use AllocationStatus::{Gone, Leaving, Purged, Wanted};
    let held = Life::held(1);
    let lives = State::ALL.map(at).into_iter().chain([held]);
    for life in lives {
        for status in [Wanted, Leaving, Purged, Gone] {
            let life = after(&life, Fact::Allocation(status), 40);
            for fate in [Fate::Lost, Fate::Forgotten, Fate::Back] {
                for road in facts(fate, status) {
                    let walk = |life: Life, fact: &Fact<'_>| after(&life, *fact, 50);
                    let end = road.iter().fold(life.clone(), walk);
                    let over = end.has_ended() && end.orphan && end.desired().is_none();
                    assert!(over, "{life:?} {standing:?} {fate:?} by {road:?}: {end:?}");
                }
            }
        }
    }
}

/// A container with an allocation is waited for, or not, as the allocation says.
#[test]
fn a_lost_node_alone_ends_nothing_that_has_an_allocation() {
    let (kept, stopping) = (ended(UserError), on(Stopping));
    let as_they_are = [on(Ordered), on(Launching), on(Running), stopping, kept];
    row("node lost", Fact::NodeLost, as_they_are);
}

#[test]
fn another_incarnation_does_not_concern_it() {
    let other = Observation {
        incarnation: 2,
        ..seen(State::Ended, 50)
    };
    assert_eq!(
        decide(&at(State::Running), Fact::Observed(&other), 40),
        Step::Stay
    );
}

#[test]
fn only_ends_that_a_stop_explains_are_called_intended() {
    use ExitCause::{LaunchFailed, LaunchUnknown, Success, UserLimit};
    let told = [
        (Success, Intended),
        (UserError, Intended),
        (Intended, Intended),
        (UserLimit, UserLimit),
        (LaunchFailed, LaunchFailed),
        (LaunchUnknown, LaunchUnknown),
        (Node, Node),
    ];
    for (reported, expected) in told {
        let observation = Observation {
            exit: Some(Exit {
                signal: Some(15),
                ..Exit::of(reported, "m")
            }),
            ..seen(State::Ended, 30)
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
        ..seen(State::Ended, ORDER)
    };
    let message = after(&at(State::Running), Fact::Observed(&observation), 40)
        .exit
        .unwrap()
        .message;
    let message = message.unwrap();
    assert!(message.starts_with("a\u{fffd}x") && message.chars().count() == MESSAGE_LIMIT);
}

#[test]
fn why_it_does_not_end_is_what_its_node_said_last() {
    let says = |reason: &str| Observation {
        reason: Some(reason.to_owned()),
        ..seen(State::Running, 30)
    };
    let stuck = after(
        &at(State::Stopping),
        Fact::Observed(&says("it is in disk sleep")),
        40,
    );
    assert_eq!(stuck.state, State::Stopping);
    assert_eq!(stuck.reason.as_deref(), Some("it is in disk sleep"));
    let again = decide(&stuck, Fact::Observed(&says("it is in disk sleep")), 41);
    assert_eq!(again, Step::Stay, "the same words are no news");
    let loud = after(&stuck, Fact::Observed(&says(&"\0x".repeat(5_000))), 42);
    let kept = loud.reason.clone().unwrap();
    assert!(kept.starts_with("\u{fffd}x") && kept.chars().count() == MESSAGE_LIMIT);
    let calm = after(&loud, Fact::Observed(&seen(State::Running, 30)), 43);
    assert_eq!(calm.reason, None);
    let ended = after(&stuck, Fact::Observed(&seen(State::Ended, 30)), 44);
    assert_eq!(ended.reason, None, "its exit says the rest");
}

fn reports() -> impl Strategy<Value = Vec<Observation>> {
    let states = [
        State::Ordered,
        State::Launching,
        State::Running,
        State::Ended,
    ];
    let all: Vec<Observation> = states.into_iter().map(|state| seen(state, ORDER)).collect();
    proptest::collection::vec(0..4_usize, 0..12).prop_map(move |picks| {
        let mut order: Vec<usize> = picks;
        order.push(3);
        order.push(2);
        order.into_iter().map(|at| all[at].clone()).collect()
    })
}

proptest! {
    /// I6: however often and in whatever order reports arrive, the outcome is recorded once.
    #[test]
    fn reports_in_any_order_any_number_of_times_end_alike(
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

    /// Whatever happens, an end is final and the state never goes back.
    #[test]
    fn terminal_states_absorb(facts in proptest::collection::vec((0..9_u8, 0..60_u64), 0..30)) {
        let mut life = Life::ordered(1);
        for (revision, (kind, answers)) in facts.into_iter().enumerate() {
            let observation = seen(State::ALL[usize::from(kind % 5)], answers);
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
fn what_is_held_is_told_to_nobody_and_ends_at_once_when_it_is_given_back() {
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
fn a_stop_for_a_move_is_like_any_other_and_its_end_is_intended() {
    let told = after(&at(Running), Fact::Stop, 30);
    assert_eq!((told.state, told.desired()), (Stopping, Some(Goal::Stop)));
    assert_eq!(
        after(&told, Fact::Allocation(AllocationStatus::Wanted), 31),
        told
    );
    let over = after(&told, Fact::Observed(&seen(Ended, 30)), 32);
    assert_eq!(over.exit.unwrap().cause, Intended);
}
