//! How one node is. Spoken words win over silence, silence over old words: a heartbeat revives at
//! once, and what has not been heard since the watch began keeps its old word until its
//! silence is long enough for a worse one (B2).

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
pub struct Record {
    /// The last judgement.
    pub before: Health,
    /// When this watch began: nobody is judged for silence before it.
    pub watched_since_ms: u64,
    /// The last heartbeat of this watch.
    pub heard_ms: Option<u64>,
    /// The node asked for no new work.
    pub quiesced: bool,
    /// Two agents report as this node (F28).
    pub twins: bool,
    /// Its pool has the brake on: nobody there is given up (B1).
    pub braked: bool,
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub health: Health,
    /// For people. It holds no running numbers, so the same state always reads the same.
    pub reason: String,
    /// When silence alone would lead to another judgement.
    pub again_ms: Option<u64>,
}

/// How a node is at `now_ms`.
pub fn judge(record: &Record, now_ms: u64) -> Judgement {
    let Limits {
        suspect_ms,
        lost_ms,
    } = record.limits;
    if record.before == Health::Lost && record.heard_ms.is_none() {
        return verdict(Health::Lost, silent(lost_ms), None);
    }
    let since = record.heard_ms.unwrap_or(record.watched_since_ms);
    let silence = now_ms.saturating_sub(since);
    let (suspect_at, lost_at) = (
        since.saturating_add(suspect_ms),
        since.saturating_add(lost_ms),
    );
    // The brake keeps nodes from being given up; it takes back nothing that was decided before.
    if silence >= lost_ms && (!record.braked || record.before == Health::Lost) {
        return verdict(Health::Lost, silent(lost_ms), None);
    }
    if silence >= lost_ms {
        let reason = format!(
            "{}; not given up, because too many of its pool fell silent together",
            silent(lost_ms)
        );
        return verdict(Health::Suspect, reason, None);
    }
    if silence >= suspect_ms || (record.heard_ms.is_none() && record.before == Health::Suspect) {
        return verdict(Health::Suspect, silent(suspect_ms), Some(lost_at));
    }
    if record.twins {
        let reason = "two agents report as this node; stop one of them".to_owned();
        return verdict(Health::Quiesced, reason, Some(suspect_at));
    }
    if record.quiesced {
        let reason = "the node asks for no new work".to_owned();
        return verdict(Health::Quiesced, reason, Some(suspect_at));
    }
    verdict(
        Health::Healthy,
        "heartbeats arrive".to_owned(),
        Some(suspect_at),
    )
}

fn verdict(health: Health, reason: String, again_ms: Option<u64>) -> Judgement {
    Judgement {
        health,
        reason,
        again_ms,
    }
}

fn silent(limit_ms: u64) -> String {
    format!("no heartbeat for {limit_ms} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        suspect_ms: 15,
        lost_ms: 60,
    };

    fn record(before: Health, heard_ms: Option<u64>) -> Record {
        Record {
            before,
            watched_since_ms: 100,
            heard_ms,
            quiesced: false,
            twins: false,
            braked: false,
            limits: LIMITS,
        }
    }

    #[test]
    fn silence_is_judged_from_the_last_word() {
        use Health::{Healthy, Lost, Quiesced, Suspect};
        // (before, heard, now) -> (health, judged again)
        let table = [
            ((Healthy, Some(200), 200), (Healthy, Some(215))),
            ((Healthy, Some(200), 214), (Healthy, Some(215))),
            ((Healthy, Some(200), 215), (Suspect, Some(260))),
            ((Suspect, Some(200), 259), (Suspect, Some(260))),
            ((Suspect, Some(200), 260), (Lost, None)),
            // any report revives at once.
            ((Suspect, Some(300), 301), (Healthy, Some(315))),
            ((Lost, Some(300), 300), (Healthy, Some(315))),
            // B2: after our own outage everyone has a fresh full grace ...
            ((Healthy, None, 114), (Healthy, Some(115))),
            ((Healthy, None, 115), (Suspect, Some(160))),
            ((Healthy, None, 159), (Suspect, Some(160))),
            ((Healthy, None, 160), (Lost, None)),
            // ... a suspect stays one until it is heard ...
            ((Suspect, None, 101), (Suspect, Some(160))),
            // ... and what was given up before stays given up until it reports.
            ((Lost, None, 101), (Lost, None)),
            ((Quiesced, None, 101), (Healthy, Some(115))),
        ];
        for ((before, heard, now), (health, again_ms)) in table {
            let judged = judge(&record(before, heard), now);
            let case = format!("{before:?} heard {heard:?} at {now}");
            assert_eq!(
                (judged.health, judged.again_ms),
                (health, again_ms),
                "{case}"
            );
        }
    }

    #[test]
    fn a_node_that_asks_for_quiet_gets_it_while_it_is_heard() {
        let asks = Record {
            quiesced: true,
            ..record(Health::Healthy, Some(200))
        };
        assert_eq!(judge(&asks, 201).health, Health::Quiesced);
        assert_eq!(judge(&asks, 230).health, Health::Suspect);
        assert_eq!(judge(&asks, 270).health, Health::Lost);
        let twins = Record {
            twins: true,
            ..record(Health::Healthy, Some(200))
        };
        assert_eq!(judge(&twins, 201).health, Health::Quiesced);
        assert!(judge(&twins, 201).reason.contains("two agents"));
    }

    #[test]
    fn b1_the_brake_keeps_a_silent_node_suspect_and_says_so() {
        let braked = Record {
            braked: true,
            ..record(Health::Suspect, Some(200))
        };
        let judged = judge(&braked, 1000);
        assert_eq!(judged.health, Health::Suspect);
        assert!(judged.reason.contains("not given up"), "{}", judged.reason);
        assert_eq!(
            judge(
                &Record {
                    braked: false,
                    ..braked
                },
                1000
            )
            .health,
            Health::Lost
        );
        let lost_before = Record {
            before: Health::Lost,
            ..braked
        };
        assert_eq!(judge(&lost_before, 1000).health, Health::Lost);
    }

    #[test]
    fn judging_again_with_no_news_changes_nothing_before_its_time() {
        for now in 200..300 {
            let first = judge(&record(Health::Healthy, Some(200)), now);
            let again = judge(&record(first.health, Some(200)), now);
            assert_eq!(first, again);
            let Some(due) = first.again_ms else { continue };
            assert!(due > now);
            let before = judge(&record(first.health, Some(200)), due - 1);
            assert_eq!(before.health, first.health);
            assert_ne!(
                judge(&record(first.health, Some(200)), due).health,
                first.health
            );
        }
    }
}
