//! Tests of the judgement of a node, with limits of 15 ms and 60 ms of silence.

use super::*;
use Health::{Healthy, Lost, Quiesced, Suspect};

const LIMITS: Limits = Limits {
    suspect_ms: 15,
    lost_ms: 60,
};

fn facts_of(before: Health, last_heartbeat_ms: Option<u64>) -> NodeFacts<'static> {
    NodeFacts {
        before,
        watch_began_ms: 100,
        last_heartbeat_ms,
        quiesced: None,
        duplicate_agents: false,
        brake_on: false,
        not_lost_before_ms: 0,
        flaps: 0,
        limits: LIMITS,
    }
}

/// Returns the facts with one more condition.
fn with_condition(condition: &str, facts: NodeFacts<'static>) -> NodeFacts<'static> {
    match condition {
        "" => facts,
        "quiesced" => NodeFacts {
            quiesced: Some("less than 1 GiB of disk is free"),
            ..facts
        },
        "duplicate agents" => NodeFacts {
            duplicate_agents: true,
            ..facts
        },
        "brake on" => NodeFacts {
            brake_on: true,
            ..facts
        },
        "not lost before 300" => NodeFacts {
            not_lost_before_ms: 300,
            ..facts
        },
        "flaps" => NodeFacts { flaps: 5, ..facts },
        other => panic!("unknown condition {other}"),
    }
}

/// A node is suspect after 15 ms and lost after 60 ms. The watch began at 100.
#[test]
fn each_combination_of_facts_gives_its_judgement() {
    // (before, last heartbeat, condition, now) -> (health, next check)
    let table = [
        ((Healthy, Some(200), "", 200), (Healthy, Some(215))),
        ((Healthy, Some(200), "", 214), (Healthy, Some(215))),
        ((Healthy, Some(200), "", 215), (Suspect, Some(260))),
        ((Suspect, Some(200), "", 259), (Suspect, Some(260))),
        ((Suspect, Some(200), "", 260), (Lost, None)),
        // Only silence counts, even if a check was missed.
        ((Healthy, Some(200), "", 260), (Lost, None)),
        // Any heartbeat revives at once.
        ((Suspect, Some(300), "", 301), (Healthy, Some(315))),
        ((Lost, Some(300), "", 300), (Healthy, Some(315))),
        ((Quiesced, Some(300), "", 300), (Healthy, Some(315))),
        // After an outage of this service, silence counts from the begin of the watch (B2).
        ((Healthy, None, "", 114), (Healthy, Some(115))),
        ((Healthy, None, "", 115), (Suspect, Some(160))),
        ((Healthy, None, "", 159), (Suspect, Some(160))),
        ((Healthy, None, "", 160), (Lost, None)),
        // A suspect node stays suspect until a heartbeat.
        ((Suspect, None, "", 101), (Suspect, Some(160))),
        // A lost node stays lost until a heartbeat.
        ((Lost, None, "", 101), (Lost, None)),
        ((Lost, None, "not lost before 300", 101), (Lost, None)),
        ((Quiesced, None, "", 101), (Healthy, Some(115))),
        // A request for no new work counts while heartbeats arrive.
        ((Healthy, Some(200), "quiesced", 201), (Quiesced, Some(215))),
        ((Quiesced, Some(200), "quiesced", 215), (Suspect, Some(260))),
        ((Suspect, Some(200), "quiesced", 260), (Lost, None)),
        ((Lost, Some(300), "quiesced", 300), (Quiesced, Some(315))),
        // A duplicate agent has the same effect as such a request (F28).
        (
            (Healthy, Some(200), "duplicate agents", 201),
            (Quiesced, Some(215)),
        ),
        (
            (Quiesced, Some(200), "duplicate agents", 230),
            (Suspect, Some(260)),
        ),
        ((Suspect, Some(200), "duplicate agents", 260), (Lost, None)),
        // The brake prevents the loss of silent nodes, and does not revive a lost node (B1).
        ((Healthy, Some(200), "brake on", 201), (Healthy, Some(215))),
        ((Suspect, Some(200), "brake on", 259), (Suspect, Some(260))),
        ((Suspect, Some(200), "brake on", 260), (Suspect, None)),
        ((Suspect, Some(200), "brake on", 9_000), (Suspect, None)),
        ((Lost, Some(200), "brake on", 9_000), (Lost, None)),
        ((Suspect, None, "brake on", 160), (Suspect, None)),
        // A node does not become lost before `not_lost_before_ms`.
        (
            (Healthy, Some(200), "not lost before 300", 215),
            (Suspect, Some(260)),
        ),
        (
            (Suspect, Some(200), "not lost before 300", 260),
            (Suspect, Some(300)),
        ),
        (
            (Suspect, Some(200), "not lost before 300", 300),
            (Lost, None),
        ),
        (
            (Suspect, None, "not lost before 300", 299),
            (Suspect, Some(300)),
        ),
        ((Lost, Some(200), "not lost before 300", 260), (Lost, None)),
        // `not_lost_before_ms` has no effect if `lost_ms` ends later.
        (
            (Suspect, Some(280), "not lost before 300", 310),
            (Suspect, Some(340)),
        ),
        // Flapping changes neither the health nor the next check.
        ((Suspect, Some(200), "flaps", 201), (Healthy, Some(215))),
    ];
    for ((before, heartbeat, condition, now), (health, next_check_ms)) in table {
        let judgement = judge(&with_condition(condition, facts_of(before, heartbeat)), now);
        let case = format!("{before:?}, heartbeat {heartbeat:?}, {condition} at {now}");
        assert_eq!(
            (judgement.health, judgement.next_check_ms),
            (health, next_check_ms),
            "{case}"
        );
    }
}

#[test]
fn every_state_has_a_reason_and_a_next_change() {
    let judge_case = |condition: &str, before, heartbeat, now| {
        let facts = with_condition(condition, facts_of(before, heartbeat));
        let Judgement { reason, next, .. } = judge(&facts, now);
        (reason, next.what, next.due)
    };
    let (why, next, due) = judge_case("", Healthy, Some(200), 201);
    assert_eq!(why, "heartbeats arrive");
    assert!(next.contains("takes no new work"), "{next}");
    assert_eq!(due, Due::Silence(15));

    let (why, next, due) = judge_case("", Healthy, Some(200), 215);
    assert_eq!(why, "no heartbeat for more than 15 ms");
    assert!(next.contains("given up"), "{next}");
    assert_eq!(due, Due::At(260));

    let (why, next, due) = judge_case("", Suspect, Some(200), 260);
    assert_eq!(why, "no heartbeat for more than 60 ms");
    assert!(next.contains("next heartbeat"), "{next}");
    assert_eq!(due, Due::Open);

    let (why, next, _) = judge_case("quiesced", Healthy, Some(200), 201);
    assert!(
        why.ends_with("no new work: less than 1 GiB of disk is free"),
        "{why}"
    );
    assert!(next.contains("its agent says so"), "{next}");

    let (why, next, _) = judge_case("duplicate agents", Healthy, Some(200), 201);
    assert!(why.contains("two agents"), "{why}");
    assert!(next.contains("chooses one of them"), "{next}");

    let (why, next, due) = judge_case("brake on", Suspect, Some(200), 260);
    assert!(why.contains("not given up, because too many"), "{why}");
    assert!(next.contains("varies it off"), "{next}");
    assert_eq!(due, Due::Open);

    let (why, _, due) = judge_case("not lost before 300", Suspect, Some(200), 260);
    assert!(why.contains("coming back"), "{why}");
    assert_eq!(due, Due::At(300));

    let (why, ..) = judge_case("flaps", Suspect, Some(200), 201);
    assert_eq!(why, "heartbeats arrive; came and went 5 times in 15 min");
}

#[test]
fn a_judgement_does_not_change_before_its_next_check() {
    for condition in [
        "",
        "quiesced",
        "duplicate agents",
        "brake on",
        "not lost before 300",
        "flaps",
    ] {
        for now in 200..320 {
            let first = judge(
                &with_condition(condition, facts_of(Healthy, Some(200))),
                now,
            );
            let again = judge(
                &with_condition(condition, facts_of(first.health, Some(200))),
                now,
            );
            assert_eq!(first, again, "{condition} at {now}");
            let Some(due) = first.next_check_ms else {
                continue;
            };
            assert!(due > now);
            let before = judge(
                &with_condition(condition, facts_of(first.health, Some(200))),
                due - 1,
            );
            assert_eq!(before.health, first.health);
            let at_due = judge(
                &with_condition(condition, facts_of(first.health, Some(200))),
                due,
            );
            assert_ne!((at_due.health, at_due.reason), (first.health, first.reason));
        }
    }
}
