//! I17: drained means empty. That work was told to leave is one thing; that the agent looked and
//! found nothing, and that the scheduler knows of nothing, is another, and only the two together
//! end a drain.

use crate::format::length;

/// What is still there this long after the deadline stays: stopping by force takes a minute (6.3).
pub const LATE_MS: u64 = 60_000;

/// How far a drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Draining,
    Paused,
    Drained,
    /// Past its deadline with something that stays. It holds on, and may still come to an end.
    Failed,
}

/// What rm-scheduler says of this very drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleared {
    pub remaining: u64,
    /// Of those, what will not move by itself: reservations, and what cannot be reached.
    pub stuck: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub before: Stage,
    pub paused: bool,
    /// Milliseconds since the deadline passed.
    pub late_ms: Option<u64>,
    /// Absent while rm-scheduler has not taken the order up.
    pub cleared: Option<Cleared>,
    /// Containers alive: what the agent said since the drain began, once it had looked through its
    /// journal.
    pub alive: Option<u64>,
}

/// Where a drain stands and why, for people.
pub fn judge(facts: &Facts) -> (Stage, String) {
    let Facts {
        before,
        cleared,
        alive,
        ..
    } = *facts;
    let nothing_left = cleared.map(|cleared| cleared.remaining == 0);
    let nothing_alive = alive.map(|alive| alive == 0);
    // What was found empty stays so until somebody says otherwise: a restart of ours is no news.
    let stays =
        before == Stage::Drained && nothing_left != Some(false) && nothing_alive != Some(false);
    if stays || (nothing_left == Some(true) && nothing_alive == Some(true)) {
        let why = "the agent reports nothing alive, and nothing is placed here";
        return (Stage::Drained, why.to_owned());
    }
    let why = waits_for(facts);
    if facts.late_ms.is_some_and(|late| is_late(late, cleared)) {
        return (Stage::Failed, format!("the deadline has passed; {why}"));
    }
    if facts.paused {
        return (Stage::Paused, format!("paused by the operator; {why}"));
    }
    (Stage::Draining, why)
}

fn is_late(late_ms: u64, cleared: Option<Cleared>) -> bool {
    let hopeless = cleared.is_some_and(|it| it.remaining > 0 && it.stuck >= it.remaining);
    hopeless || late_ms >= LATE_MS
}

fn waits_for(facts: &Facts) -> String {
    match (facts.cleared, facts.alive) {
        (None, _) => "rm-scheduler has not taken it up yet".to_owned(),
        (Some(cleared), _) if cleared.remaining > 0 && cleared.stuck > 0 => format!(
            "{} still placed here, {} of them stay by themselves",
            cleared.remaining, cleared.stuck
        ),
        (Some(cleared), _) if cleared.remaining > 0 => {
            format!("{} still placed here", cleared.remaining)
        }
        (Some(_), None) => "nothing is placed here; the agent has not said yet that nothing is \
                            alive"
            .to_owned(),
        (Some(_), Some(alive)) => format!("nothing is placed here, but {alive} still alive"),
    }
}

/// What happens next, for people.
pub fn next(stage: Stage, has_deadline: bool) -> String {
    match (stage, has_deadline) {
        (Stage::Drained, _) => {
            "takes no work until the drain is cancelled or the node is forgotten".to_owned()
        }
        (Stage::Paused, _) => "nothing moves until it is resumed".to_owned(),
        (Stage::Failed, _) => {
            "stays so until what blocks it is gone, or it is cancelled".to_owned()
        }
        (Stage::Draining, true) => format!(
            "what is still here is moved without regard to its disruption limits, and the drain \
             fails if something stays {} longer",
            length(LATE_MS)
        ),
        (Stage::Draining, false) => "goes on until it is empty: there is no deadline".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUSY: Option<Cleared> = Some(Cleared {
        remaining: 2,
        stuck: 0,
    });
    const RESERVED: Option<Cleared> = Some(Cleared {
        remaining: 2,
        stuck: 2,
    });
    const CLEAR: Option<Cleared> = Some(Cleared {
        remaining: 0,
        stuck: 0,
    });

    #[test]
    fn the_table_of_drains() {
        use Stage::{Drained, Draining, Failed, Paused};
        // (before, paused, late, cleared, alive) -> stage
        let table = [
            ((Draining, false, None, None, None), Draining),
            ((Draining, false, None, None, Some(0)), Draining),
            ((Draining, false, None, BUSY, Some(2)), Draining),
            // Asked to stop is not stopped: either word alone is not enough.
            ((Draining, false, None, CLEAR, None), Draining),
            ((Draining, false, None, CLEAR, Some(1)), Draining),
            ((Draining, false, None, BUSY, Some(0)), Draining),
            ((Draining, false, None, CLEAR, Some(0)), Drained),
            ((Paused, true, None, CLEAR, Some(0)), Drained),
            ((Draining, true, None, BUSY, Some(2)), Paused),
            ((Paused, false, None, BUSY, Some(2)), Draining),
            // A restart of ours forgets the words, not what they led to.
            ((Drained, false, None, None, None), Drained),
            ((Drained, false, None, None, Some(0)), Drained),
            ((Drained, false, None, CLEAR, None), Drained),
            // What turns up after all is told.
            ((Drained, false, None, None, Some(1)), Draining),
            ((Drained, false, None, BUSY, None), Draining),
            // After the deadline, what still ends has its minute; what stays for good has not.
            ((Draining, false, Some(0), BUSY, Some(2)), Draining),
            ((Draining, false, Some(LATE_MS), BUSY, Some(2)), Failed),
            ((Draining, false, Some(0), RESERVED, Some(2)), Failed),
            ((Draining, false, Some(LATE_MS), None, None), Failed),
            ((Failed, false, Some(LATE_MS), CLEAR, Some(0)), Drained),
            ((Failed, false, None, BUSY, Some(2)), Draining),
        ];
        for ((before, paused, late_ms, cleared, alive), stage) in table {
            let facts = Facts {
                before,
                paused,
                late_ms,
                cleared,
                alive,
            };
            assert_eq!(judge(&facts).0, stage, "{facts:?}");
        }
    }

    proptest! {
        /// I17: whatever is known, nobody calls a node drained while somebody knows better.
        #[test]
        fn drained_is_never_said_against_a_word(
            before in prop::sample::select(vec![
                Stage::Draining, Stage::Paused, Stage::Drained, Stage::Failed,
            ]),
            paused: bool,
            late_ms in prop::option::of(0..120_000_u64),
            cleared in prop::option::of((0..3_u64, 0..3_u64)),
            alive in prop::option::of(0..3_u64),
        ) {
            let cleared = cleared.map(|(remaining, stuck)| Cleared { remaining, stuck });
            let facts = Facts { before, paused, late_ms, cleared, alive };
            let (stage, why) = judge(&facts);
            prop_assert!(!why.is_empty());
            if stage == Stage::Drained {
                prop_assert!(alive.unwrap_or(0) == 0);
                prop_assert!(cleared.is_none_or(|cleared| cleared.remaining == 0));
                let both = cleared.is_some() && alive.is_some();
                prop_assert!(both || before == Stage::Drained);
            }
        }
    }
}
