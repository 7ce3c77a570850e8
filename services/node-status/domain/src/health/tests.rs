use super::*;
use Health::{Healthy, Lost, Quiesced, Suspect};

const LIMITS: Limits = Limits {
    suspect_ms: 15,
    lost_ms: 60,
};

fn record(before: Health, heard_ms: Option<u64>) -> Record<'static> {
    Record {
        before,
        watched_since_ms: 100,
        heard_ms,
        quiesced: None,
        twins: false,
        braked: false,
        spared_until_ms: 0,
        flaps: 0,
        limits: LIMITS,
    }
}

/// Every input beside silence, switched on alone: what a row of the table is judged with.
fn with(what: &str, record: Record<'static>) -> Record<'static> {
    match what {
        "" => record,
        "quiesced" => Record {
            quiesced: Some("less than 1 GiB of disk is free"),
            ..record
        },
        "twins" => Record {
            twins: true,
            ..record
        },
        "braked" => Record {
            braked: true,
            ..record
        },
        "spared until 300" => Record {
            spared_until_ms: 300,
            ..record
        },
        "flaps" => Record { flaps: 5, ..record },
        other => panic!("{other} is no condition"),
    }
}

/// The whole of `judge`: what goes in, what comes out. Suspect after 15, lost after 60; the watch
/// began at 100.
#[test]
fn the_table_of_judgements() {
    // (before, heard, condition, now) -> (health, judged again)
    let table = [
        ((Healthy, Some(200), "", 200), (Healthy, Some(215))),
        ((Healthy, Some(200), "", 214), (Healthy, Some(215))),
        ((Healthy, Some(200), "", 215), (Suspect, Some(260))),
        ((Suspect, Some(200), "", 259), (Suspect, Some(260))),
        ((Suspect, Some(200), "", 260), (Lost, None)),
        // Nobody looked in between: silence is what counts.
        ((Healthy, Some(200), "", 260), (Lost, None)),
        // any report revives at once.
        ((Suspect, Some(300), "", 301), (Healthy, Some(315))),
        ((Lost, Some(300), "", 300), (Healthy, Some(315))),
        ((Quiesced, Some(300), "", 300), (Healthy, Some(315))),
        // B2: after our own outage everyone has a fresh full grace ...
        ((Healthy, None, "", 114), (Healthy, Some(115))),
        ((Healthy, None, "", 115), (Suspect, Some(160))),
        ((Healthy, None, "", 159), (Suspect, Some(160))),
        ((Healthy, None, "", 160), (Lost, None)),
        // ... a suspect stays one until it is heard ...
        ((Suspect, None, "", 101), (Suspect, Some(160))),
        // ... and what was given up before stays given up until it reports.
        ((Lost, None, "", 101), (Lost, None)),
        ((Lost, None, "spared until 300", 101), (Lost, None)),
        ((Quiesced, None, "", 101), (Healthy, Some(115))),
        // A node's own word holds while it is heard, and no longer.
        ((Healthy, Some(200), "quiesced", 201), (Quiesced, Some(215))),
        ((Quiesced, Some(200), "quiesced", 215), (Suspect, Some(260))),
        ((Suspect, Some(200), "quiesced", 260), (Lost, None)),
        ((Lost, Some(300), "quiesced", 300), (Quiesced, Some(315))),
        // F28: so does distrust.
        ((Healthy, Some(200), "twins", 201), (Quiesced, Some(215))),
        ((Quiesced, Some(200), "twins", 230), (Suspect, Some(260))),
        ((Suspect, Some(200), "twins", 260), (Lost, None)),
        // B1: the brake keeps silent nodes, and takes back nothing that was decided before.
        ((Healthy, Some(200), "braked", 201), (Healthy, Some(215))),
        ((Suspect, Some(200), "braked", 259), (Suspect, Some(260))),
        ((Suspect, Some(200), "braked", 260), (Suspect, None)),
        ((Suspect, Some(200), "braked", 9_000), (Suspect, None)),
        ((Lost, Some(200), "braked", 9_000), (Lost, None)),
        ((Suspect, None, "braked", 160), (Suspect, None)),
        // Mercy: as the brake, until its time.
        (
            (Healthy, Some(200), "spared until 300", 215),
            (Suspect, Some(260)),
        ),
        (
            (Suspect, Some(200), "spared until 300", 260),
            (Suspect, Some(300)),
        ),
        ((Suspect, Some(200), "spared until 300", 300), (Lost, None)),
        (
            (Suspect, None, "spared until 300", 299),
            (Suspect, Some(300)),
        ),
        ((Lost, Some(200), "spared until 300", 260), (Lost, None)),
        // Mercy that is over before its time would be, shortens nothing.
        (
            (Suspect, Some(280), "spared until 300", 310),
            (Suspect, Some(340)),
        ),
        // Coming and going is told, and decides nothing here.
        ((Suspect, Some(200), "flaps", 201), (Healthy, Some(215))),
    ];
    for ((before, heard, what, now), (health, again_ms)) in table {
        let judged = judge(&with(what, record(before, heard)), now);
        let case = format!("{before:?} heard {heard:?} {what} at {now}");
        assert_eq!(
            (judged.health, judged.again_ms),
            (health, again_ms),
            "{case}"
        );
    }
}

#[test]
fn every_state_says_why_and_what_is_next() {
    let said = |what: &str, before, heard, now| {
        let Judgement { reason, next, .. } = judge(&with(what, record(before, heard)), now);
        (reason, next.what, next.due)
    };
    let (why, next, due) = said("", Healthy, Some(200), 201);
    assert_eq!(why, "heartbeats arrive");
    assert!(next.contains("takes no new work"), "{next}");
    assert_eq!(due, Due::Silence(15));

    let (why, next, due) = said("", Healthy, Some(200), 215);
    assert_eq!(why, "no heartbeat for more than 15 ms");
    assert!(next.contains("given up"), "{next}");
    assert_eq!(due, Due::At(260));

    let (why, next, due) = said("", Suspect, Some(200), 260);
    assert_eq!(why, "no heartbeat for more than 60 ms");
    assert!(next.contains("next heartbeat"), "{next}");
    assert_eq!(due, Due::Open);

    let (why, next, _) = said("quiesced", Healthy, Some(200), 201);
    assert!(
        why.ends_with("no new work: less than 1 GiB of disk is free"),
        "{why}"
    );
    assert!(next.contains("its agent says so"), "{next}");

    let (why, next, _) = said("twins", Healthy, Some(200), 201);
    assert!(why.contains("two agents"), "{why}");
    assert!(next.contains("which of them stays"), "{next}");

    let (why, next, due) = said("braked", Suspect, Some(200), 260);
    assert!(why.contains("not given up, because too many"), "{why}");
    assert!(next.contains("varies it off"), "{next}");
    assert_eq!(due, Due::Open);

    let (why, _, due) = said("spared until 300", Suspect, Some(200), 260);
    assert!(why.contains("coming back"), "{why}");
    assert_eq!(due, Due::At(300));

    let (why, ..) = said("flaps", Suspect, Some(200), 201);
    assert_eq!(why, "heartbeats arrive; came and went 5 times in 15 min");
}

#[test]
fn judging_again_with_no_news_changes_nothing_before_its_time() {
    for what in [
        "",
        "quiesced",
        "twins",
        "braked",
        "spared until 300",
        "flaps",
    ] {
        for now in 200..320 {
            let first = judge(&with(what, record(Healthy, Some(200))), now);
            let again = judge(&with(what, record(first.health, Some(200))), now);
            assert_eq!(first, again, "{what} at {now}");
            let Some(due) = first.again_ms else { continue };
            assert!(due > now);
            let before = judge(&with(what, record(first.health, Some(200))), due - 1);
            assert_eq!(before.health, first.health);
            let then = judge(&with(what, record(first.health, Some(200))), due);
            assert_ne!((then.health, then.reason), (first.health, first.reason));
        }
    }
}
