//! I24: a judgement that should have been made and was not. It is reckoned apart from [`judge`], so
//! that a fault there is seen here.
//!
//! [`judge`]: crate::judge

use crate::{Health, Record};

/// Milliseconds for which a node has been as it is, as `before` says, although its silence should
/// have led to something else; and how it is, in words.
pub fn overstays(record: &Record<'_>, now_ms: u64) -> Option<(&'static str, u64)> {
    let since = record.heard_ms.unwrap_or(record.watched_since_ms);
    let limits = record.limits;
    let (state, deadline) = match record.before {
        Health::Healthy | Health::Quiesced => {
            ("counts as heard", since.saturating_add(limits.suspect_ms))
        }
        // The brake holds everybody back for as long as it is on (B1).
        Health::Suspect if record.braked => return None,
        Health::Suspect => {
            let lost = since.saturating_add(limits.lost_ms);
            ("is suspect", lost.max(record.spared_until_ms))
        }
        Health::Lost => return None,
    };
    let late = now_ms.checked_sub(deadline).filter(|late| *late > 0)?;
    Some((state, late))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn record(before: Health) -> Record<'static> {
        Record {
            before,
            watched_since_ms: 0,
            heard_ms: Some(1_000),
            quiesced: None,
            twins: false,
            braked: false,
            spared_until_ms: 0,
            flaps: 0,
            limits: Limits {
                suspect_ms: 15_000,
                lost_ms: 60_000,
            },
        }
    }

    #[test]
    fn i24_who_should_be_suspect_or_lost_by_now() {
        let late = |record: &Record<'_>, now| overstays(record, now).map(|(_, late)| late);
        assert_eq!(late(&record(Health::Healthy), 16_000), None);
        assert_eq!(late(&record(Health::Healthy), 20_000), Some(4_000));
        assert_eq!(late(&record(Health::Quiesced), 20_000), Some(4_000));
        assert_eq!(late(&record(Health::Suspect), 61_000), None);
        assert_eq!(late(&record(Health::Suspect), 71_000), Some(10_000));
        assert_eq!(late(&record(Health::Lost), 1_000_000), None);
    }

    #[test]
    fn who_is_held_back_is_not_late() {
        let braked = Record {
            braked: true,
            ..record(Health::Suspect)
        };
        assert_eq!(overstays(&braked, 1_000_000), None);
        let spared = Record {
            spared_until_ms: 300_000,
            ..record(Health::Suspect)
        };
        assert_eq!(overstays(&spared, 300_000), None);
        assert_eq!(overstays(&spared, 300_500), Some(("is suspect", 500)));
    }
}
