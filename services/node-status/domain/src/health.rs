//! Judges the health of one node by its heartbeats. A heartbeat revives a node at once. After a
//! restart of this service, a node keeps its stored health until it has been silent long enough for
//! a worse one (B2).

use crate::format::{duration_text, times_text};

/// Health of a node by its heartbeats. Being varied off or blocked is separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Healthy,
    /// The agent asks for no new work, or two agents report.
    Quiesced,
    /// Heartbeats are missing, but the node is not lost yet.
    Suspect,
    /// The node is lost.
    Lost,
}

/// Milliseconds of silence after which a node is suspect or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub suspect_ms: u64,
    pub lost_ms: u64,
}

/// Input of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFacts<'a> {
    /// The last judgement.
    pub before: Health,
    /// Time at which the watch began. Earlier silence does not count.
    pub watch_began_ms: u64,
    /// Time of the last heartbeat since the watch began. `None` before the first one.
    pub last_heartbeat_ms: Option<u64>,
    /// Reason for which the agent asks for no new work. `None` if it accepts work.
    pub quiesced: Option<&'a str>,
    /// True if two agents report as this node (F28).
    pub duplicate_agents: bool,
    /// True if the brake of the pool is on, so the node cannot become lost (B1).
    pub brake_on: bool,
    /// The node cannot become lost before this time (B2).
    pub not_lost_before_ms: u64,
    /// Number of recent losses of contact. 0 if there are too few to report.
    pub flaps: u64,
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub health: Health,
    /// Reason as text. It contains no changing numbers, because each new text is published.
    pub reason: String,
    pub next: Next,
    /// Time at which silence alone changes the judgement. `None` if it never does.
    pub next_check_ms: Option<u64>,
}

/// Next change if no other event occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    pub what: String,
    pub due: Due,
}

/// Time of the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At an unknown time.
    Open,
    /// After this many milliseconds of silence.
    Silence(u64),
    /// At this time of the monotonic clock, in milliseconds.
    At(u64),
}

/// Judges a node at `now_ms`.
pub fn judge(facts: &NodeFacts<'_>, now_ms: u64) -> Judgement {
    let mut judgement = judge_silence(facts, now_ms).unwrap_or_else(|| judge_reports(facts));
    if facts.flaps > 0 {
        judgement.reason.push_str("; came and went ");
        judgement.reason.push_str(&times_text(facts.flaps));
    }
    judgement
}

/// Returns the time at which a silent node becomes lost while the brake is off.
pub(crate) fn lost_at(since_ms: u64, limits: Limits, not_lost_before_ms: u64) -> u64 {
    let limit = since_ms.saturating_add(limits.lost_ms);
    limit.max(not_lost_before_ms)
}

/// Judges a silent node. Returns `None` if its last heartbeat is recent.
fn judge_silence(facts: &NodeFacts<'_>, now_ms: u64) -> Option<Judgement> {
    let Limits {
        suspect_ms,
        lost_ms,
    } = facts.limits;
    let was_lost = facts.before == Health::Lost;
    let since = facts.last_heartbeat_ms.unwrap_or(facts.watch_began_ms);
    let silence = now_ms.saturating_sub(since);
    let lost_at = lost_at(since, facts.limits, facts.not_lost_before_ms);
    // Only a heartbeat revives a lost node.
    if was_lost && (facts.last_heartbeat_ms.is_none() || silence >= lost_ms) {
        return Some(new_lost_judgement(lost_ms));
    }
    if silence >= lost_ms && facts.brake_on {
        let reason = "not given up, because too many nodes of its pool lost contact together";
        let next = Next {
            what: "is given up when enough nodes of its pool are back and it is not, or when an \
                   operator varies it off"
                .to_owned(),
            due: Due::Open,
        };
        let reason = format!("{}; {reason}", silence_text(lost_ms));
        return Some(new_judgement(Health::Suspect, reason, next, None));
    }
    if silence >= lost_ms && now_ms >= lost_at {
        return Some(new_lost_judgement(lost_ms));
    }
    let suspect_since_restart =
        facts.last_heartbeat_ms.is_none() && facts.before == Health::Suspect;
    if silence < suspect_ms && !suspect_since_restart {
        return None;
    }
    let reason = if silence >= lost_ms {
        let reason = "not given up yet, because other nodes are only just coming back";
        format!("{}; {reason}", silence_text(lost_ms))
    } else {
        silence_text(suspect_ms)
    };
    // The next check is at the end of `lost_ms`, because the reason changes then.
    let next_check_ms = match since.saturating_add(lost_ms) {
        limit if limit > now_ms => limit,
        _ => lost_at,
    };
    let next = Next {
        what: "is given up: its work counts as ended and is started elsewhere".to_owned(),
        due: Due::At(lost_at),
    };
    Some(new_judgement(
        Health::Suspect,
        reason,
        next,
        Some(next_check_ms),
    ))
}

/// Judges a node with recent heartbeats by their content.
fn judge_reports(facts: &NodeFacts<'_>) -> Judgement {
    let since = facts.last_heartbeat_ms.unwrap_or(facts.watch_began_ms);
    let suspect_at = Some(since.saturating_add(facts.limits.suspect_ms));
    if facts.duplicate_agents {
        let reason = "two agents report as this node; stop one of them";
        let next = Next {
            what: format!(
                "takes work again when one of the two has been silent for {}, or an operator \
                 chooses one of them",
                duration_text(facts.limits.lost_ms)
            ),
            due: Due::Open,
        };
        return new_judgement(Health::Quiesced, reason.to_owned(), next, suspect_at);
    }
    if let Some(why) = facts.quiesced {
        let mut reason = "the node asks for no new work".to_owned();
        if !why.is_empty() {
            reason = format!("{reason}: {why}");
        }
        let next = Next {
            what: "takes work again when its agent says so".to_owned(),
            due: Due::Open,
        };
        return new_judgement(Health::Quiesced, reason, next, suspect_at);
    }
    let next = Next {
        what: "takes no new work if no heartbeat arrives until then".to_owned(),
        due: Due::Silence(facts.limits.suspect_ms),
    };
    let reason = "heartbeats arrive".to_owned();
    new_judgement(Health::Healthy, reason, next, suspect_at)
}

fn new_lost_judgement(limit_ms: u64) -> Judgement {
    let next = Next {
        what: "takes work again with its next heartbeat".to_owned(),
        due: Due::Open,
    };
    new_judgement(Health::Lost, silence_text(limit_ms), next, None)
}

fn new_judgement(
    health: Health,
    reason: String,
    next: Next,
    next_check_ms: Option<u64>,
) -> Judgement {
    Judgement {
        health,
        reason,
        next,
        next_check_ms,
    }
}

fn silence_text(limit_ms: u64) -> String {
    format!("no heartbeat for more than {}", duration_text(limit_ms))
}

#[cfg(test)]
mod tests;
