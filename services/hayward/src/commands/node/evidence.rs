//! What speaks against a node, as blocklist weighs it. Shown as far as it is understood: an older
//! blocklist has no such route, a later one may say more.

use std::fmt::Write as _;

use hayward_vocabulary::{NodeName, Timestamp};
use serde::Deserialize;

use crate::connection::{Role, Service, Session};
use crate::output::words::{clean, count, duration, word};
use crate::output::{Look, Table, Tone, toned};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Evidence {
    scores: Vec<Weighed>,
    cost: Cost,
    /// Why it is not blocked though its score says so.
    withheld: Option<String>,
    facts: Vec<Fact>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Weighed {
    rule: String,
    score: u64,
    threshold: u64,
    window_ms: u64,
    reached: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cost {
    attempts_lost: u64,
    lost_ms: u64,
}

#[derive(Debug, Deserialize)]
struct Fact {
    at: Timestamp,
    what: serde_json::Value,
    #[serde(default)]
    work: Option<String>,
    #[serde(default)]
    cause: Option<String>,
}

/// Facts that are shown, the latest.
const FACTS: usize = 5;

/// Empty where nothing is known.
pub async fn of(session: &Session, node: &NodeName) -> String {
    let Ok(client) = session.client(Service::Blocklist, Role::Reader) else {
        return String::new();
    };
    let path = format!("/v1/blocklist/nodes/{node}/evidence");
    let evidence: Result<Evidence, _> = client.get(&path).await;
    evidence.map_or_else(|_| String::new(), |it| text(&it, &session.out.look()))
}

fn text(evidence: &Evidence, look: &Look) -> String {
    let mut text = String::new();
    let mut scores = Table::new(["rule", "score", "of", "within"]).numbers(&[1, 2]);
    for score in evidence.scores.iter().filter(|score| score.score > 0) {
        let tone = if score.reached {
            Tone::Bad
        } else {
            Tone::Plain
        };
        scores.row([
            (&score.rule).into(),
            toned(score.score, tone),
            score.threshold.into(),
            duration(score.window_ms).into(),
        ]);
    }
    if !scores.is_empty() {
        text += &scores.text(look);
    }
    if evidence.cost.attempts_lost > 0 {
        let attempts = count(evidence.cost.attempts_lost, "attempt");
        let time = duration(evidence.cost.lost_ms);
        let _ = writeln!(text, "it cost {attempts} and {time} of work");
    }
    if let Some(withheld) = &evidence.withheld {
        let _ = writeln!(text, "not blocked: {}", clean(withheld));
    }
    let mut facts = Table::new(["when", "what", "work", "cause"]);
    // Newest first.
    for fact in evidence.facts.iter().take(FACTS) {
        facts.row([
            look.ago(fact.at).into(),
            word(&fact.what).into(),
            fact.work.as_deref().unwrap_or("-").into(),
            fact.cause.as_deref().unwrap_or("-").into(),
        ]);
    }
    if !facts.is_empty() {
        text += &facts.text(look);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn evidence_is_shown_as_far_as_it_is_understood() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let look = Look {
            colour: false,
            now: at.plus_ms(90_000),
        };
        let said = json!({
            "node": "n1", "strategy": "failure-count", "a_later_word": [1],
            "scores": [
                {"rule": "start_failures", "score": 3, "threshold": 4, "jobs": 2,
                 "window_ms": 600_000, "reached": false},
                {"rule": "failures", "score": 0, "threshold": 9, "window_ms": 600_000},
            ],
            "cost": {"attempts_lost": 3, "lost_ms": 4_200},
            "withheld": "its pool would have too few left",
            "facts": [{"at": at, "what": "failed", "work": "job_1", "cause": "disk_full"}],
        });
        insta::assert_snapshot!(text(&serde_json::from_value(said).unwrap(), &look));
        let nothing = serde_json::from_value(json!({})).unwrap();
        assert_eq!(text(&nothing, &look), "");
    }
}
