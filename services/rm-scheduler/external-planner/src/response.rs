//! The answer of a planner outside, as it travels.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::outside::{Answer, Leave, Place};
use serde::Deserialize;

/// What questions and answers are; a later version may have another one.
pub const FORMAT: &str = "hayward-planner/1";
/// Of one answer.
pub const MOST_BYTES: usize = 4 << 20;
/// Grants, and vacates, of one answer.
pub const MOST_STEPS: usize = 10_000;
/// The first of them are read: each may be a row to write.
const MOST_NOTES: usize = 1_000;
/// Characters of a sentence of theirs, and of a name: longer ones are nobody's.
const WORDS: usize = 200;
const NAME: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    format: Option<String>,
    revision: u64,
    #[serde(default)]
    grants: Vec<WrittenGrant>,
    #[serde(default)]
    vacates: Vec<WrittenVacate>,
    #[serde(default)]
    notes: Vec<WrittenNote>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrant {
    work: String,
    node: String,
    #[serde(default = "one")]
    processes: u64,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenVacate {
    allocation: String,
    #[serde(default)]
    detail: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNote {
    work: String,
    detail: String,
}

/// Why an answer is none, in words for people. What is the program's own comes after a colon.
pub type Unreadable = String;

/// # Errors
/// When it is not of this format, or answers another question than `asked`.
pub fn read(body: &[u8], asked: u64) -> Result<Answer, Unreadable> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let written: Result<Written, _> = serde_path_to_error::deserialize(&mut reader);
    let written = written.map_err(|error| {
        let at = error.path().to_string();
        let place = if at == "." {
            String::new()
        } else {
            format!("{at}: ")
        };
        clipped(
            &format!("its answer cannot be read: {place}{}", error.inner()),
            WORDS,
        )
    })?;
    reader
        .end()
        .map_err(|_| "its answer cannot be read: something follows the document".to_owned())?;
    if let Some(format) = written.format.filter(|format| format != FORMAT) {
        let format = clipped(&format, WORDS / 4);
        return Err(format!(
            "its answer is of another format: {format:?}, and not {FORMAT:?}"
        ));
    }
    if written.revision != asked {
        let revision = written.revision;
        return Err(format!(
            "it answers another question than was asked: {revision}, and not {asked}"
        ));
    }
    for (what, count, most) in [
        ("grants", written.grants.len(), MOST_STEPS),
        ("vacates", written.vacates.len(), MOST_STEPS),
    ] {
        if count > most {
            return Err(format!(
                "its answer has too many {what}: {count}, and at most {most} are read"
            ));
        }
    }
    let grants = written.grants.into_iter().map(|it| Place {
        work: clipped(&it.work, NAME),
        node: clipped(&it.node, NAME),
        processes: it.processes,
    });
    let vacates = written.vacates.into_iter().map(|it| Leave {
        allocation: clipped(&it.allocation, NAME),
        detail: clipped(&it.detail, WORDS),
    });
    let notes = written.notes.into_iter().take(MOST_NOTES);
    let notes = notes.map(|it| (clipped(&it.work, NAME), clipped(&it.detail, WORDS)));
    Ok(Answer {
        number: asked,
        grants: grants.collect(),
        vacates: vacates.collect(),
        notes: notes.collect::<BTreeMap<_, _>>(),
    })
}

/// On one line, and of so many characters at most.
#[must_use]
pub fn clipped(text: &str, most: usize) -> String {
    let plain = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it });
    if text.chars().nth(most).is_none() {
        return plain.collect();
    }
    plain.take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(body: &str) -> String {
        read(body.as_bytes(), 7).unwrap_err()
    }

    #[test]
    fn what_is_left_out_is_nothing_and_one_process_is_meant() {
        let empty = read(br#"{"revision": 7}"#, 7).unwrap();
        assert_eq!(empty.number, 7);
        assert!(empty.grants.is_empty() && empty.vacates.is_empty());
        let body = br#"{"format": "hayward-planner/1", "revision": 7,
            "grants": [{"work": "job_a", "node": "n1"}],
            "notes": [{"work": "job_b", "detail": "not\ntoday"}]}"#;
        let answer = read(body, 7).unwrap();
        assert_eq!(answer.grants[0].processes, 1);
        assert_eq!(answer.notes["job_b"], "not today");
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        assert!(fails("<html>").contains("cannot be read"));
        assert!(fails(r#"{"revision": 6}"#).contains("was asked: 6, and not 7"));
        assert!(fails(r#"{"revision": 7} {}"#).contains("something follows"));
        assert!(fails(r#"{"revision": 7, "grant": []}"#).contains("unknown field `grant`"));
        let told = fails(r#"{"revision": 7, "grants": [{"work": "a", "node": 3}]}"#);
        assert!(told.contains("grants[0].node"), "{told}");
        let told =
            fails(r#"{"revision": 7, "grants": [{"work": "a", "node": "b", "processes": -1}]}"#);
        assert!(told.contains("grants[0].processes"), "{told}");
        assert!(fails(r#"{"format": "x/2", "revision": 7}"#).contains("\"x/2\""));
        let step = r#"{"allocation": "a"},"#.repeat(MOST_STEPS + 1);
        let body = format!(
            r#"{{"revision": 7, "vacates": [{}]}}"#,
            step.trim_end_matches(',')
        );
        assert!(fails(&body).contains("too many vacates: 10001"));
    }

    #[test]
    fn the_first_notes_are_read() {
        let notes: Vec<String> = (0..=MOST_NOTES)
            .map(|at| format!(r#"{{"work": "job_{at}", "detail": "no"}}"#))
            .collect();
        let body = format!(r#"{{"revision": 7, "notes": [{}]}}"#, notes.join(","));
        let answer = read(body.as_bytes(), 7).unwrap();
        assert_eq!(answer.notes.len(), MOST_NOTES);
        assert!(!answer.notes.contains_key(&format!("job_{MOST_NOTES}")));
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(clipped("abc", 3), "abc");
        assert_eq!(clipped("abcd", 3), "ab…");
    }
}
