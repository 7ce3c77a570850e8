//! The drain of one node, and the validation of requests for a drain.

use hayward_node_status_api::drain::{
    DrainBlocker, DrainMoves, DrainRequest, DrainState, DrainView,
};
use hayward_node_status_api::{DrainOrder, Next};
use hayward_node_status_domain::drain::{
    self as domain, DrainFacts, DrainStage, LATE_MS, SchedulerProgress,
};
use hayward_rm_scheduler_api::node_publications::{Blocker, BlockerReason, ClearingEntry};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::state_conversions;

/// Maximum time until the deadline, in milliseconds.
const MAX_DEADLINE_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// Maximum length of a reason, in bytes.
const MAX_REASON_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Number of the drain among all drains of the node.
    pub number: u64,
    pub reason: String,
    pub by: String,
    pub began: Timestamp,
    pub deadline: Option<Timestamp>,
    pub paused: bool,
    pub state: DrainState,
    pub state_since: Timestamp,
    /// Running containers in the last complete report of the agent since the drain began. Not
    /// stored: `None` after a restart until the next report.
    pub running: Option<u64>,
    /// Time of the next check of the drain. `None` if none is needed.
    pub next_check: Option<Timestamp>,
}

impl Drain {
    /// Returns whether the drain is not cancelled. The node then takes no work.
    pub fn is_active(&self) -> bool {
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

    /// Returns the text of the drain in the reason of the node.
    pub fn reason_text(&self) -> String {
        let Self { by, reason, .. } = self;
        match self.state {
            DrainState::Drained => format!("drained by {by}: {reason}"),
            DrainState::Paused => format!("drain by {by} paused: {reason}"),
            DrainState::Failed => format!("drain by {by} past its deadline: {reason}"),
            _ => format!("being drained by {by}: {reason}"),
        }
    }

    /// Returns the time of the next check: first the deadline, then the time at which the drain
    /// fails.
    pub fn next_check_at(&self, now: Timestamp) -> Option<Timestamp> {
        if !matches!(self.state, DrainState::Draining | DrainState::Paused) {
            return None;
        }
        let deadline = self.deadline?;
        let fails_at = deadline.plus_ms(LATE_MS);
        Some(if now < deadline { deadline } else { fails_at })
    }

    /// Returns the stage of the drain, and its reason as text.
    pub fn judge(&self, clearing: Option<&ClearingEntry>, now: Timestamp) -> (DrainStage, String) {
        let is_stuck = |blocker: &&Blocker| {
            matches!(
                blocker.why,
                BlockerReason::Reservation | BlockerReason::Unreachable
            )
        };
        let scheduler = clearing.map(|clearing| SchedulerProgress {
            remaining: clearing.remaining,
            stuck: clearing.blockers.iter().filter(is_stuck).count() as u64,
        });
        let passed_deadline = self.deadline.filter(|deadline| *deadline <= now);
        domain::judge(&DrainFacts {
            before: state_conversions::to_drain_stage(self.state),
            paused: self.paused,
            late_ms: passed_deadline.map(|deadline| now.ms_since(deadline)),
            scheduler,
            running: self.running,
        })
    }

    pub fn view(
        &self,
        node: NodeName,
        clearing: Option<&ClearingEntry>,
        now: Timestamp,
    ) -> DrainView {
        let (stage, why) = self.judge(clearing, now);
        let (why, next) = if self.is_active() {
            let remaining_ms = self.deadline.map(|deadline| deadline.ms_since(now));
            let next = Next {
                what: domain::next_change_text(stage, self.deadline.is_some()),
                after_ms: remaining_ms.filter(|ms| *ms > 0 && stage == DrainStage::Draining),
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
            moves: clearing.map(to_moves),
            containers: self.running,
        }
    }
}

fn to_moves(clearing: &ClearingEntry) -> DrainMoves {
    let blocker = |it: &Blocker| DrainBlocker {
        allocation: it.allocation.to_string(),
        work: it.work.to_string(),
        user: it.user.to_string(),
        why: blocker_code(it.why).to_owned(),
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

fn blocker_code(why: BlockerReason) -> &'static str {
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

/// Validates a request, and returns its deadline if it has one. Reports all faults.
pub fn validate_drain_request(
    request: &DrainRequest,
    is_new: bool,
    now: Timestamp,
) -> Result<Option<Timestamp>, Refusal> {
    let mut faults: Vec<(&'static str, String)> = Vec::new();
    match request.reason.as_deref() {
        None if is_new => faults.push(("/reason", "required; it is shown with the node".into())),
        Some(text)
            if text.trim().is_empty() || text.len() > MAX_REASON_BYTES || text.contains('\0') =>
        {
            let detail = format!("takes 1 to {MAX_REASON_BYTES} bytes without zero characters");
            faults.push(("/reason", detail));
        }
        _ => {}
    }
    if request.deadline.is_some() && request.deadline_ms.is_some() {
        let detail = "give one of `deadline` and `deadline_ms`, not both";
        faults.push(("/deadline_ms", detail.into()));
    }
    let range = format!("takes 1 to {MAX_DEADLINE_MS} (30 days)");
    let relative = request
        .deadline_ms
        .map(|ms| u64::try_from(ms).ok().filter(|ms| is_in_range(*ms)));
    if relative == Some(None) {
        faults.push(("/deadline_ms", range));
    }
    let instant = request.deadline;
    if instant.is_some_and(|at| !is_in_range(at.ms_since(now))) {
        faults.push((
            "/deadline",
            "takes an instant within the next 30 days".into(),
        ));
    }
    if !faults.is_empty() {
        return Err(Refusal::InvalidDrain(faults));
    }
    Ok(instant.or(relative.flatten().map(|ms| now.plus_ms(ms))))
}

fn is_in_range(ms: u64) -> bool {
    (1..=MAX_DEADLINE_MS).contains(&ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000);

    fn pointers(request: &DrainRequest, is_new: bool) -> Vec<&'static str> {
        match validate_drain_request(request, is_new, NOW) {
            Err(Refusal::InvalidDrain(faults)) => faults.into_iter().map(|(at, _)| at).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn both_forms_of_a_deadline_are_equal() {
        let with_duration = DrainRequest {
            reason: Some("new disk".into()),
            deadline_ms: Some(60_000),
            ..DrainRequest::default()
        };
        let with_instant = DrainRequest {
            deadline_ms: None,
            deadline: Some(NOW.plus_ms(60_000)),
            ..with_duration.clone()
        };
        let deadline = validate_drain_request(&with_duration, true, NOW).unwrap();
        assert_eq!(deadline, Some(NOW.plus_ms(60_000)));
        assert_eq!(
            validate_drain_request(&with_instant, true, NOW).unwrap(),
            deadline
        );
    }

    #[test]
    fn all_faults_of_a_request_are_reported() {
        let valid = DrainRequest {
            reason: Some("new disk".into()),
            ..DrainRequest::default()
        };
        assert!(pointers(&valid, true).is_empty());
        assert!(pointers(&DrainRequest::default(), false).is_empty());
        assert_eq!(pointers(&DrainRequest::default(), true), ["/reason"]);
        for invalid in [-1, 0, i64::MIN, i64::MAX, 31 * 24 * 3_600_000] {
            let request = DrainRequest {
                deadline_ms: Some(invalid),
                ..valid.clone()
            };
            assert_eq!(pointers(&request, true), ["/deadline_ms"], "{invalid}");
        }
        for invalid in [NOW, NOW.minus_ms(5), NOW.plus_ms(MAX_DEADLINE_MS + 1)] {
            let request = DrainRequest {
                deadline: Some(invalid),
                ..valid.clone()
            };
            assert_eq!(pointers(&request, true), ["/deadline"], "{invalid}");
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
