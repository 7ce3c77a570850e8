//! The drain of one node in the working set (W5).

use hayward_node_status_api::drain::{
    DrainBlocker, DrainMoves, DrainRequest, DrainState, DrainView,
};
use hayward_node_status_api::{DrainOrder, Next};
use hayward_node_status_domain::drain::{self as domain, Cleared, Facts, LATE_MS, Stage};
use hayward_rm_scheduler_api::evidence::{Blocker, BlockerReason, ClearingEntry};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::format;

/// Longer than this nobody means.
const LONGEST_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// Bytes of a reason.
const TEXT: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    pub number: u64,
    pub reason: String,
    pub by: String,
    pub began: Timestamp,
    pub deadline: Option<Timestamp>,
    pub paused: bool,
    pub state: DrainState,
    pub state_since: Timestamp,
    /// What the agent said since the drain began, by its complete word. It is not stored: after a
    /// restart of ours it has to be said again.
    pub alive: Option<u64>,
    /// Its place among the deadlines of the ledger.
    pub look: Option<Timestamp>,
}

impl Drain {
    /// The order holds: the node takes no work.
    pub fn lasts(&self) -> bool {
        self.state != DrainState::Cancelled
    }

    pub fn order(&self) -> DrainOrder {
        DrainOrder {
            number: self.number,
            since: self.began,
            deadline: self.deadline,
            paused: self.paused,
            reason: self.reason.clone(),
        }
    }

    /// As part of why a node is as it is.
    pub fn phrase(&self) -> String {
        let Self { by, reason, .. } = self;
        match self.state {
            DrainState::Drained => format!("drained by {by}: {reason}"),
            DrainState::Paused => format!("drain by {by} paused: {reason}"),
            DrainState::Failed => format!("drain by {by} past its deadline: {reason}"),
            _ => format!("being drained by {by}: {reason}"),
        }
    }

    /// When it has to be looked at again without news.
    pub fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        if !matches!(self.state, DrainState::Draining | DrainState::Paused) {
            return None;
        }
        let deadline = self.deadline?;
        let late = deadline.plus_ms(LATE_MS);
        Some(if now < deadline { deadline } else { late })
    }

    pub fn judged(&self, clearing: Option<&ClearingEntry>, now: Timestamp) -> (Stage, String) {
        let stuck = |blocker: &&Blocker| {
            matches!(
                blocker.why,
                BlockerReason::Reservation | BlockerReason::Unreachable
            )
        };
        let cleared = clearing.map(|clearing| Cleared {
            remaining: clearing.remaining,
            stuck: clearing.blockers.iter().filter(stuck).count() as u64,
        });
        let late = self.deadline.filter(|deadline| *deadline <= now);
        domain::judge(&Facts {
            before: format::drain_stage(self.state),
            paused: self.paused,
            late_ms: late.map(|deadline| now.ms_since(deadline)),
            cleared,
            alive: self.alive,
        })
    }

    pub fn view(
        &self,
        node: NodeName,
        clearing: Option<&ClearingEntry>,
        now: Timestamp,
    ) -> DrainView {
        let (stage, why) = self.judged(clearing, now);
        let (why, next) = if self.lasts() {
            let left = self.deadline.map(|deadline| deadline.ms_since(now));
            let next = Next {
                what: domain::next(stage, self.deadline.is_some()),
                after_ms: left.filter(|left| *left > 0 && stage == Stage::Draining),
            };
            (why, Some(next))
        } else {
            ("cancelled".to_owned(), None)
        };
        DrainView {
            node,
            order: self.order(),
            by: self.by.clone(),
            state: self.state,
            state_since: self.state_since,
            why,
            next,
            moves: clearing.map(moves),
            containers: self.alive,
        }
    }
}

fn moves(clearing: &ClearingEntry) -> DrainMoves {
    let blocker = |it: &Blocker| DrainBlocker {
        allocation: it.allocation.to_string(),
        work: it.work.to_string(),
        user: it.user.to_string(),
        why: said(it.why).to_owned(),
        detail: it.detail.clone(),
    };
    DrainMoves {
        total: clearing.total,
        moved: clearing.moved,
        failed: clearing.failed,
        remaining: clearing.remaining,
        blockers: clearing.blockers.iter().map(blocker).collect(),
    }
}

fn said(why: BlockerReason) -> &'static str {
    match why {
        BlockerReason::Reservation => "reservation",
        BlockerReason::DisruptionLimit => "disruption_limit",
        BlockerReason::Stopping => "stopping",
        BlockerReason::Unreachable => "unreachable",
        BlockerReason::Paused => "paused",
        BlockerReason::NoPlace => "no_place",
        BlockerReason::Moving => "moving",
        BlockerReason::Unknown => "unknown",
    }
}

/// What a request means at `now`: its deadline, if it names one. All faults at once.
pub fn checked(
    request: &DrainRequest,
    begins: bool,
    now: Timestamp,
) -> Result<Option<Timestamp>, Refusal> {
    let mut faults: Vec<(&'static str, String)> = Vec::new();
    match request.reason.as_deref() {
        None if begins => faults.push(("/reason", "say why; everyone who asks sees it".into())),
        Some(text) if text.trim().is_empty() || text.len() > TEXT || text.contains('\0') => {
            let detail = format!("takes 1 to {TEXT} bytes without zero characters");
            faults.push(("/reason", detail));
        }
        _ => {}
    }
    if request.deadline.is_some() && request.deadline_ms.is_some() {
        let detail = "give one of `deadline` and `deadline_ms`, not both";
        faults.push(("/deadline_ms", detail.into()));
    }
    let longest = format!("takes 1 to {LONGEST_MS} (30 days)");
    let named = request
        .deadline_ms
        .map(|ms| u64::try_from(ms).ok().filter(|ms| in_reach(*ms)));
    if named == Some(None) {
        faults.push(("/deadline_ms", longest));
    }
    let instant = request.deadline;
    if instant.is_some_and(|at| !in_reach(at.ms_since(now))) {
        faults.push((
            "/deadline",
            "takes an instant within the next 30 days".into(),
        ));
    }
    if !faults.is_empty() {
        return Err(Refusal::BadDrain(faults));
    }
    Ok(instant.or(named.flatten().map(|ms| now.plus_ms(ms))))
}

fn in_reach(ms: u64) -> bool {
    (1..=LONGEST_MS).contains(&ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000);

    fn pointers(request: &DrainRequest, begins: bool) -> Vec<&'static str> {
        match checked(request, begins, NOW) {
            Err(Refusal::BadDrain(faults)) => faults.into_iter().map(|(at, _)| at).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn both_forms_of_a_deadline_mean_the_same() {
        let in_a_minute = DrainRequest {
            reason: Some("new disk".into()),
            deadline_ms: Some(60_000),
            ..DrainRequest::default()
        };
        let at = DrainRequest {
            deadline_ms: None,
            deadline: Some(NOW.plus_ms(60_000)),
            ..in_a_minute.clone()
        };
        let meant = checked(&in_a_minute, true, NOW).unwrap();
        assert_eq!(meant, Some(NOW.plus_ms(60_000)));
        assert_eq!(checked(&at, true, NOW).unwrap(), meant);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        let because = DrainRequest {
            reason: Some("new disk".into()),
            ..DrainRequest::default()
        };
        assert!(pointers(&because, true).is_empty());
        assert!(pointers(&DrainRequest::default(), false).is_empty());
        assert_eq!(pointers(&DrainRequest::default(), true), ["/reason"]);
        for bad in [-1, 0, i64::MIN, i64::MAX, 31 * 24 * 3_600_000] {
            let request = DrainRequest {
                deadline_ms: Some(bad),
                ..because.clone()
            };
            assert_eq!(pointers(&request, true), ["/deadline_ms"], "{bad}");
        }
        for bad in [NOW, NOW.minus_ms(5), NOW.plus_ms(LONGEST_MS + 1)] {
            let request = DrainRequest {
                deadline: Some(bad),
                ..because.clone()
            };
            assert_eq!(pointers(&request, true), ["/deadline"], "{bad}");
        }
        let both = DrainRequest {
            reason: Some(" ".into()),
            deadline_ms: Some(5),
            deadline: Some(NOW.plus_ms(5)),
            ..DrainRequest::default()
        };
        assert_eq!(pointers(&both, false), ["/reason", "/deadline_ms"]);
    }
}
