//! Tests of replaying a journal and of the recovered state of a container, with chosen and random
//! records.

use super::*;
use proptest::prelude::*;

fn id() -> AllocationId {
    AllocationId::new("alc_1").unwrap()
}

fn intent(incarnation: u64) -> Record {
    Record::Intent {
        id: id(),
        incarnation,
        epoch: 1,
        boot_id: "now".into(),
    }
}

fn ended(incarnation: u64, code: i32) -> Record {
    let exit = Exit {
        code: Some(code),
        ..Exit::of(ExitCause::UserError, "")
    };
    Record::Ended {
        id: id(),
        incarnation,
        epoch: 1,
        exit,
    }
}

/// Returns the cause of the end that is recovered, or `None` if the container has not ended.
fn recovered_cause(
    history: &ContainerHistory,
    evidence: Evidence,
    boot: &str,
) -> Option<ExitCause> {
    match recovered_state(history, evidence, boot) {
        RecoveredState::Live | RecoveredState::Ending => None,
        RecoveredState::Ended(exit) => Some(exit.cause),
    }
}

#[test]
fn each_evidence_gives_its_recovered_state() {
    let launching = JournalState::replay([intent(1)])
        .containers
        .remove(&id())
        .unwrap();
    let mut running = launching.clone();
    running.pid = Some(7);
    let success = Evidence::Exited(Exit::of(ExitCause::Success, ""));
    // Each row is (history, evidence, current boot, recovered cause of the end).
    let table = [
        (&launching, Evidence::Alive, "now", None),
        (&launching, success.clone(), "now", Some(ExitCause::Success)),
        (&launching, success, "later", Some(ExitCause::Success)),
        (&launching, Evidence::NoTrace, "now", Some(ExitCause::Node)),
        (
            &launching,
            Evidence::LaunchInterrupted,
            "now",
            Some(ExitCause::LaunchUnknown),
        ),
        (&launching, Evidence::Lost, "now", Some(ExitCause::Node)),
        (
            &launching,
            Evidence::NoTrace,
            "later",
            Some(ExitCause::LaunchUnknown),
        ),
        (
            &launching,
            Evidence::LaunchInterrupted,
            "later",
            Some(ExitCause::LaunchUnknown),
        ),
        (&launching, Evidence::Lost, "later", Some(ExitCause::Node)),
        (&running, Evidence::NoTrace, "later", Some(ExitCause::Node)),
        (&running, Evidence::Alive, "later", Some(ExitCause::Node)),
    ];
    for (history, evidence, boot, expected) in table {
        assert_eq!(
            recovered_cause(history, evidence.clone(), boot),
            expected,
            "{evidence:?} {boot}"
        );
    }
}

#[test]
fn the_first_end_is_final() {
    let state = JournalState::replay([intent(1), ended(1, 3), ended(1, 4), intent(1)]);
    assert_eq!(state.containers[&id()].exit.as_ref().unwrap().code, Some(3));
    let journalled = &state.containers[&id()];
    assert_eq!(
        recovered_cause(journalled, Evidence::Alive, "now"),
        Some(ExitCause::UserError)
    );
}

#[test]
fn an_end_without_an_intent_counts() {
    let state = JournalState::replay([ended(2, 1)]);
    assert_eq!(state.containers[&id()].incarnation, 2);
    assert_eq!(JournalState::replay(state.to_compact_records()), state);
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record =
        (0..4_u8, 0..3_u8, 1..4_u64, 0..3_i32).prop_map(|(kind, number, incarnation, code)| {
            let id = AllocationId::new(format!("alc_{number}")).unwrap();
            match kind {
                0 => Record::Intent {
                    id,
                    incarnation,
                    epoch: 1,
                    boot_id: "now".into(),
                },
                1 => Record::Started {
                    id,
                    incarnation,
                    pid: 9,
                    at: None,
                },
                2 => {
                    let exit = Exit {
                        code: Some(code),
                        ..Exit::of(ExitCause::UserError, "")
                    };
                    Record::Ended {
                        id,
                        incarnation,
                        epoch: 1,
                        exit,
                    }
                }
                _ => Record::Forgotten { id },
            }
        });
    prop::collection::vec(record, 0..40)
}

proptest! {
    #[test]
    fn compaction_keeps_the_state(records in records()) {
        let state = JournalState::replay(records);
        prop_assert_eq!(&JournalState::replay(state.to_compact_records()), &state);
        let mut repeated_records = state.to_compact_records();
        repeated_records.extend(state.to_compact_records());
        prop_assert_eq!(&JournalState::replay(repeated_records), &state);
    }
}
