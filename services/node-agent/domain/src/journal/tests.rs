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

fn cause(story: &Story, trace: Trace, boot: &str) -> Option<ExitCause> {
    match judge(story, trace, boot) {
        Verdict::Live | Verdict::Ending => None,
        Verdict::Ended(exit) => Some(exit.cause),
    }
}

#[test]
fn each_trace_proves_what_it_can() {
    let launching = Past::replay([intent(1)]).stories.remove(&id()).unwrap();
    let mut running = launching.clone();
    running.pid = Some(7);
    let success = Trace::Exited(Exit::of(ExitCause::Success, ""));
    let table = [
        (&launching, Trace::Alive, "now", None),
        (&launching, success.clone(), "now", Some(ExitCause::Success)),
        (&launching, success, "later", Some(ExitCause::Success)),
        (&launching, Trace::Untouched, "now", Some(ExitCause::Node)),
        (
            &launching,
            Trace::Begun,
            "now",
            Some(ExitCause::LaunchUnknown),
        ),
        (&launching, Trace::Lost, "now", Some(ExitCause::Node)),
        (
            &launching,
            Trace::Untouched,
            "later",
            Some(ExitCause::LaunchUnknown),
        ),
        (
            &launching,
            Trace::Begun,
            "later",
            Some(ExitCause::LaunchUnknown),
        ),
        (&launching, Trace::Lost, "later", Some(ExitCause::Node)),
        (&running, Trace::Untouched, "later", Some(ExitCause::Node)),
        (&running, Trace::Alive, "later", Some(ExitCause::Node)),
    ];
    for (story, trace, boot, expected) in table {
        assert_eq!(
            cause(story, trace.clone(), boot),
            expected,
            "{trace:?} {boot}"
        );
    }
}

#[test]
fn i6_the_first_end_absorbs() {
    let past = Past::replay([intent(1), ended(1, 3), ended(1, 4), intent(1)]);
    assert_eq!(past.stories[&id()].exit.as_ref().unwrap().code, Some(3));
    let journalled = &past.stories[&id()];
    assert_eq!(
        cause(journalled, Trace::Alive, "now"),
        Some(ExitCause::UserError)
    );
}

#[test]
fn an_end_without_an_intent_counts_too() {
    let past = Past::replay([ended(2, 1)]);
    assert_eq!(past.stories[&id()].incarnation, 2);
    assert_eq!(Past::replay(past.compacted()), past);
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
    fn compaction_tells_the_same_story(records in records()) {
        let past = Past::replay(records);
        prop_assert_eq!(&Past::replay(past.compacted()), &past);
        let mut twice = past.compacted();
        twice.extend(past.compacted());
        prop_assert_eq!(&Past::replay(twice), &past);
    }
}
