//! How one node is. Spoken words win over silence, silence over old words: a heartbeat revives at
//! once, and what has not been heard since the watch began keeps its old word until its
//! silence is long enough for a worse one (B2).

use crate::format::{length, times};

/// How a node is, as far as its reports go. Being varied off and being blocked are other matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Healthy,
    /// The node itself asks for no new work, or cannot be trusted with any.
    Quiesced,
    /// Silent, but not for long enough to give it up.
    Suspect,
    /// Given up.
    Lost,
}

/// How long a node may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub suspect_ms: u64,
    pub lost_ms: u64,
}

/// All that a judgement depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The last judgement.
    pub before: Health,
    /// When this watch began: nobody is judged for silence before it.
    pub watched_since_ms: u64,
    /// The last heartbeat of this watch.
    pub heard_ms: Option<u64>,
    /// The node asked for no new work, and why.
    pub quiesced: Option<&'a str>,
    /// Two agents report as this node (F28).
    pub twins: bool,
    /// Its pool has the brake on: nobody there is given up (B1).
    pub braked: bool,
    /// Nobody is given up before: those who are back first wait for the others (B2).
    pub spared_until_ms: u64,
    /// How often it came and went lately, where that is worth a word.
    pub flaps: u64,
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub health: Health,
    /// For people. It holds no running numbers, so the same state always reads the same.
    pub reason: String,
    pub next: Next,
    /// When silence alone would lead to another judgement.
    pub again_ms: Option<u64>,
}

/// What happens if nothing else does, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    pub what: String,
    pub due: Due,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nobody can tell.
    Open,
    /// Once it has been silent for so long.
    Silence(u64),
    /// At this instant of the watch.
    At(u64),
}

/// How a node is at `now_ms`.
pub fn judge(record: &Record<'_>, now_ms: u64) -> Judgement {
    let mut judged = judge_silence(record, now_ms).unwrap_or_else(|| judge_words(record));
    if record.flaps > 0 {
        judged.reason.push_str("; came and went ");
        judged.reason.push_str(&times(record.flaps));
    }
    judged
}

/// When a node that stays silent is given up, unless the brake is on.
pub(crate) fn given_up_at(since_ms: u64, limits: Limits, spared_until_ms: u64) -> u64 {
    let limit = since_ms.saturating_add(limits.lost_ms);
    limit.max(spared_until_ms)
}

fn judge_silence(record: &Record<'_>, now_ms: u64) -> Option<Judgement> {
    let Limits {
        suspect_ms,
        lost_ms,
    } = record.limits;
    let was_lost = record.before == Health::Lost;
    let since = record.heard_ms.unwrap_or(record.watched_since_ms);
    let silence = now_ms.saturating_sub(since);
    let lost_at = given_up_at(since, record.limits, record.spared_until_ms);
    // Neither brake nor mercy take back what was decided before.
    if was_lost && (record.heard_ms.is_none() || silence >= lost_ms) {
        return Some(lost(lost_ms));
    }
    if silence >= lost_ms && record.braked {
        let reason = "not given up, because too many of its pool fell silent together";
        let next = Next {
            what: "is given up when enough of its pool are heard again and it is not, or when an \
                   operator varies it off"
                .to_owned(),
            due: Due::Open,
        };
        let reason = format!("{}; {reason}", silent(lost_ms));
        return Some(verdict(Health::Suspect, reason, next, None));
    }
    if silence >= lost_ms && now_ms >= lost_at {
        return Some(lost(lost_ms));
    }
    let unheard_suspect = record.heard_ms.is_none() && record.before == Health::Suspect;
    if silence < suspect_ms && !unheard_suspect {
        return None;
    }
    let reason = if silence >= lost_ms {
        let reason = "not given up yet, because others are only just coming back";
        format!("{}; {reason}", silent(lost_ms))
    } else {
        silent(suspect_ms)
    };
    // Said anew when the longer limit has passed, even where that changes nothing else.
    let again_ms = match since.saturating_add(lost_ms) {
        limit if limit > now_ms => limit,
        _ => lost_at,
    };
    let next = Next {
        what: "is given up: what runs there counts as gone and is started elsewhere".to_owned(),
        due: Due::At(lost_at),
    };
    Some(verdict(Health::Suspect, reason, next, Some(again_ms)))
}

/// Of a node that is heard.
fn judge_words(record: &Record<'_>) -> Judgement {
    let since = record.heard_ms.unwrap_or(record.watched_since_ms);
    let suspect_at = Some(since.saturating_add(record.limits.suspect_ms));
    if record.twins {
        let reason = "two agents report as this node; stop one of them";
        let next = Next {
            what: format!(
                "takes work again when one of the two has been silent for {}, or an operator says \
                 which of them stays",
                length(record.limits.lost_ms)
            ),
            due: Due::Open,
        };
        return verdict(Health::Quiesced, reason.to_owned(), next, suspect_at);
    }
    if let Some(why) = record.quiesced {
        let mut reason = "the node asks for no new work".to_owned();
        if !why.is_empty() {
            reason = format!("{reason}: {why}");
        }
        let next = Next {
            what: "takes work again when its agent says so".to_owned(),
            due: Due::Open,
        };
        return verdict(Health::Quiesced, reason, next, suspect_at);
    }
    let next = Next {
        what: "takes no new work if nothing is heard until then".to_owned(),
        due: Due::Silence(record.limits.suspect_ms),
    };
    let reason = "heartbeats arrive".to_owned();
    verdict(Health::Healthy, reason, next, suspect_at)
}

fn lost(limit_ms: u64) -> Judgement {
    let next = Next {
        what: "takes work again with its next heartbeat".to_owned(),
        due: Due::Open,
    };
    verdict(Health::Lost, silent(limit_ms), next, None)
}

fn verdict(health: Health, reason: String, next: Next, again_ms: Option<u64>) -> Judgement {
    Judgement {
        health,
        reason,
        next,
        again_ms,
    }
}

fn silent(limit_ms: u64) -> String {
    format!("no heartbeat for more than {}", length(limit_ms))
}

#[cfg(test)]
mod tests;
