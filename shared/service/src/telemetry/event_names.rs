//! One event name per kind of line (T4). The sentence of a line is a constant in the program and
//! what varies stands in fields, so the sentence names the kind: `cannot follow` is the event
//! `cannot_follow`. A line that names its event itself keeps that name.

use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry_sdk::logs::SdkLogRecord;

/// The field, and the attribute, with the name.
pub(super) const EVENT: &str = "event";
/// Longer sentences are cut in their name.
const LENGTH: usize = 64;

/// From a sentence to a name.
pub(super) fn named(sentence: &str) -> String {
    let mut name = String::with_capacity(sentence.len().min(LENGTH));
    for c in sentence.chars() {
        if name.len() >= LENGTH {
            break;
        }
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    name.truncate(name.trim_end_matches('_').len());
    name
}

/// Gives a record its name where it has none.
pub(super) fn event_name(record: &mut SdkLogRecord) {
    let has = record
        .attributes_iter()
        .any(|(key, _)| key.as_str() == EVENT);
    let body = match record.body() {
        _ if has => return,
        Some(AnyValue::String(text)) if !text.as_str().is_empty() => named(text.as_str()),
        // Some libraries say no sentence.
        _ => named(record.target().map_or("unnamed", |target| target.as_ref())),
    };
    record.add_attribute(EVENT, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t4_a_sentence_names_its_kind() {
        assert_eq!(named("cannot follow"), "cannot_follow");
        assert_eq!(
            named("silent for too long; nothing is revoked until it is heard"),
            "silent_for_too_long_nothing_is_revoked_until_it_is_heard"
        );
        assert_eq!(named("..."), "");
        assert_eq!(named(&"a b ".repeat(99)).len(), LENGTH - 1);
    }
}
