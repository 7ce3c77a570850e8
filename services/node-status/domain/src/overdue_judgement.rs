//! Finds nodes whose next judgement is overdue. This check shares no code with [`judge`], so that
//! it detects faults of [`judge`] (I24).
//!
//! [`judge`]: crate::judge

use crate::{Health, NodeFacts};

/// Returns the state of the node as text, and the milliseconds by which the next judgement is late.
/// `None` if it is not late.
pub fn late_judgement(facts: &NodeFacts<'_>, now_ms: u64) -> Option<(&'static str, u64)> {
    let since = facts.last_heartbeat_ms.unwrap_or(facts.watch_began_ms);
    let limits = facts.limits;
    let (state, deadline) = match facts.before {
        Health::Healthy | Health::Quiesced => (
            "counts as responsive",
            since.saturating_add(limits.suspect_ms),
        ),
        // No loss is due while the brake is on (B1).
        Health::Suspect if facts.brake_on => return None,
        Health::Suspect => {
            let lost = since.saturating_add(limits.lost_ms);
            ("is suspect", lost.max(facts.not_lost_before_ms))
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

    fn facts(before: Health) -> NodeFacts<'static> {
        NodeFacts {
            before,
            watch_began_ms: 0,
            last_heartbeat_ms: Some(1_000),
            quiesced: None,
            duplicate_agents: false,
            brake_on: false,
            not_lost_before_ms: 0,
            flaps: 0,
            limits: Limits {
                suspect_ms: 15_000,
                lost_ms: 60_000,
            },
        }
    }

    #[test]
    fn a_missing_judgement_is_overdue() {
        let late = |facts: &NodeFacts<'_>, now| late_judgement(facts, now).map(|(_, late)| late);
        assert_eq!(late(&facts(Health::Healthy), 16_000), None);
        assert_eq!(late(&facts(Health::Healthy), 20_000), Some(4_000));
        assert_eq!(late(&facts(Health::Quiesced), 20_000), Some(4_000));
        assert_eq!(late(&facts(Health::Suspect), 61_000), None);
        assert_eq!(late(&facts(Health::Suspect), 71_000), Some(10_000));
        assert_eq!(late(&facts(Health::Lost), 1_000_000), None);
    }

    #[test]
    fn a_delayed_loss_is_not_overdue() {
        let braked = NodeFacts {
            brake_on: true,
            ..facts(Health::Suspect)
        };
        assert_eq!(late_judgement(&braked, 1_000_000), None);
        let delayed = NodeFacts {
            not_lost_before_ms: 300_000,
            ..facts(Health::Suspect)
        };
        assert_eq!(late_judgement(&delayed, 300_000), None);
        assert_eq!(late_judgement(&delayed, 300_500), Some(("is suspect", 500)));
    }
}
