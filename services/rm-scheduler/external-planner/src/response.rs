//! Response of an external planner, as JSON.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::external_planners::{
    PlannerResponse, RequestedGrant, RequestedVacate,
};
use serde::Deserialize;

/// Format name of requests and responses.
pub const FORMAT: &str = "hayward-planner/1";
/// Maximum number of bytes of a response.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum number of grants in a response. The same limit holds for vacates.
pub const MAX_STEPS: usize = 10_000;
/// Maximum number of notes of a response. Further notes are ignored, because each note may become a
/// row in the database.
const MAX_NOTES: usize = 1_000;
/// Maximum number of characters of a note or detail. Longer texts are clipped.
const MAX_TEXT: usize = 200;
/// Maximum number of characters of a name. Longer names are clipped.
const MAX_NAME: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseJson {
    #[serde(default)]
    format: Option<String>,
    revision: u64,
    #[serde(default)]
    grants: Vec<GrantJson>,
    #[serde(default)]
    vacates: Vec<VacateJson>,
    #[serde(default)]
    notes: Vec<NoteJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantJson {
    work: String,
    node: String,
    #[serde(default = "default_processes")]
    processes: u64,
}

fn default_processes() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VacateJson {
    allocation: String,
    #[serde(default)]
    detail: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteJson {
    work: String,
    detail: String,
}

/// Message that says why a response is unusable. Text quoted from the response follows a colon.
pub type ResponseFault = String;

/// Parses a response. Fails if it has another format, or another revision than requested.
pub fn parse_response(body: &[u8], requested: u64) -> Result<PlannerResponse, ResponseFault> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let response: Result<ResponseJson, _> = serde_path_to_error::deserialize(&mut reader);
    let response = response.map_err(|error| {
        let path = error.path().to_string();
        let position = if path == "." {
            String::new()
        } else {
            format!("{path}: ")
        };
        clip(
            &format!("its response cannot be parsed: {position}{}", error.inner()),
            MAX_TEXT,
        )
    })?;
    reader
        .end()
        .map_err(|_| "its response cannot be parsed: data follows the document".to_owned())?;
    if let Some(format) = response.format.filter(|format| format != FORMAT) {
        let format = clip(&format, MAX_TEXT / 4);
        return Err(format!(
            "its response has another format: {format:?} instead of {FORMAT:?}"
        ));
    }
    if response.revision != requested {
        let revision = response.revision;
        return Err(format!(
            "its response is for another revision: {revision} instead of {requested}"
        ));
    }
    for (name, count, limit) in [
        ("grants", response.grants.len(), MAX_STEPS),
        ("vacates", response.vacates.len(), MAX_STEPS),
    ] {
        if count > limit {
            return Err(format!(
                "its response has too many {name}: {count}, and at most {limit} are allowed"
            ));
        }
    }
    let grants = response.grants.into_iter().map(|it| RequestedGrant {
        work: clip(&it.work, MAX_NAME),
        node: clip(&it.node, MAX_NAME),
        processes: it.processes,
    });
    let vacates = response.vacates.into_iter().map(|it| RequestedVacate {
        allocation: clip(&it.allocation, MAX_NAME),
        detail: clip(&it.detail, MAX_TEXT),
    });
    let notes = response.notes.into_iter().take(MAX_NOTES);
    let notes = notes.map(|it| (clip(&it.work, MAX_NAME), clip(&it.detail, MAX_TEXT)));
    Ok(PlannerResponse {
        number: requested,
        grants: grants.collect(),
        vacates: vacates.collect(),
        notes: notes.collect::<BTreeMap<_, _>>(),
    })
}

/// Shortens a text to `limit` characters. Replaces each control character by a space.
#[must_use]
pub fn clip(text: &str, limit: usize) -> String {
    let cleaned = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it });
    if text.chars().nth(limit).is_none() {
        return cleaned.collect();
    }
    cleaned.take(limit.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(body: &str) -> String {
        parse_response(body.as_bytes(), 7).unwrap_err()
    }

    #[test]
    fn absent_lists_are_empty_and_absent_processes_mean_one() {
        let empty = parse_response(br#"{"revision": 7}"#, 7).unwrap();
        assert_eq!(empty.number, 7);
        assert!(empty.grants.is_empty() && empty.vacates.is_empty());
        let body = br#"{"format": "hayward-planner/1", "revision": 7,
            "grants": [{"work": "job_a", "node": "n1"}],
            "notes": [{"work": "job_b", "detail": "not\ntoday"}]}"#;
        let response = parse_response(body, 7).unwrap();
        assert_eq!(response.grants[0].processes, 1);
        assert_eq!(response.notes["job_b"], "not today");
    }

    #[test]
    fn an_invalid_response_reports_the_position() {
        assert!(parse_error("<html>").contains("cannot be parsed"));
        assert!(parse_error(r#"{"revision": 6}"#).contains("for another revision: 6 instead of 7"));
        assert!(parse_error(r#"{"revision": 7} {}"#).contains("data follows"));
        assert!(parse_error(r#"{"revision": 7, "grant": []}"#).contains("unknown field `grant`"));
        let error = parse_error(r#"{"revision": 7, "grants": [{"work": "a", "node": 3}]}"#);
        assert!(error.contains("grants[0].node"), "{error}");
        let error = parse_error(
            r#"{"revision": 7, "grants": [{"work": "a", "node": "b", "processes": -1}]}"#,
        );
        assert!(error.contains("grants[0].processes"), "{error}");
        assert!(parse_error(r#"{"format": "x/2", "revision": 7}"#).contains("\"x/2\""));
        let step = r#"{"allocation": "a"},"#.repeat(MAX_STEPS + 1);
        let body = format!(
            r#"{{"revision": 7, "vacates": [{}]}}"#,
            step.trim_end_matches(',')
        );
        assert!(parse_error(&body).contains("too many vacates: 10001"));
    }

    #[test]
    fn only_the_first_notes_are_parsed() {
        let notes: Vec<String> = (0..=MAX_NOTES)
            .map(|index| format!(r#"{{"work": "job_{index}", "detail": "no"}}"#))
            .collect();
        let body = format!(r#"{{"revision": 7, "notes": [{}]}}"#, notes.join(","));
        let response = parse_response(body.as_bytes(), 7).unwrap();
        assert_eq!(response.notes.len(), MAX_NOTES);
        assert!(!response.notes.contains_key(&format!("job_{MAX_NOTES}")));
    }

    #[test]
    fn long_texts_are_clipped() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
    }
}
