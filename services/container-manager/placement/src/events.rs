//! What there is to count of placements (17), told by what a step changed.

use hayward_vocabulary::WorkId;

use crate::environment::Stand;
use crate::placement::Placement;
use crate::status::{Reason, Status};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A place was asked for: on a preferred host, or on any.
    Requested { preferred: bool },
    /// It was granted.
    Matched { preferred: bool },
    /// It was not, in its time.
    Expired { preferred: bool },
    /// An action failed.
    Failed(Reason),
    /// `FORCE_STOP_FAILED`: what a forced restart told to stop has not ended in time.
    ForceStopFailed {
        uuid: String,
        processor: WorkId,
        stand: Stand,
    },
}

pub fn of(before: &Placement, after: &Placement) -> Vec<Note> {
    let preferred = after.hands.host.is_some();
    let mut notes = Vec::new();
    if after.hands.requests > before.hands.requests {
        notes.push(Note::Requested { preferred });
    }
    if after.hands.reserved.is_some() && before.hands.reserved != after.hands.reserved {
        notes.push(Note::Matched { preferred });
    }
    if after.status_code == Status::Failed && before.status_code != Status::Failed {
        let reason = after.reason_code.unwrap_or(Reason::JobEnded);
        if reason == Reason::RequestExpired {
            notes.push(Note::Expired { preferred });
        }
        notes.push(Note::Failed(reason));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{Trial, host};

    #[test]
    fn an_action_is_counted_once_at_each_of_its_turns() {
        let mut trial = Trial::usual();
        trial.order("u1", "1", "d");
        assert_eq!(trial.notes(), [Note::Requested { preferred: true }]);
        trial.serve();
        trial.tick();
        trial.tick();
        assert_eq!(trial.notes(), [Note::Matched { preferred: true }]);
        trial.fleet.room.insert(host("c"), 0);
        trial.fleet.why = Some("all of it is taken".to_owned());
        trial.order("u2", "0", "c");
        trial.pass(5_001);
        trial.tick();
        let expired = Note::Expired { preferred: true };
        let failed = Note::Failed(Reason::RequestExpired);
        let asked = Note::Requested { preferred: true };
        assert_eq!(trial.notes(), [asked, expired, failed]);
        let message = &trial.at("u2").response_message;
        assert!(message.contains("all of it is taken"), "{message}");
    }

    #[test]
    fn a_forced_stop_that_fails_is_told_once() {
        let mut trial = Trial::usual();
        trial.order("u1", "1", "FORCE_RESTART_LAST_SEEN");
        assert_eq!(trial.at("u1").status_code, Status::Succeeded);
        assert_eq!(trial.notes(), []);
        trial.pass(1_000_000);
        let notes = trial.notes();
        assert!(
            matches!(&*notes, [Note::ForceStopFailed { uuid, .. }] if uuid == "u1"),
            "{notes:?}"
        );
        trial.pass(1_000_000);
        assert_eq!(trial.notes(), []);
        // One that ended in time is not told of.
        trial.order("u2", "0", "FORCE_RESTART_LAST_SEEN");
        let stopped = trial.fleet.stops.last().cloned().expect("its stop");
        trial.ends(&stopped);
        trial.pass(1_000_000);
        assert_eq!(trial.notes(), []);
    }
}
