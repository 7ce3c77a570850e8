//! Event names of log lines. The message of a line is constant, so the name is derived from it:
//! `cannot follow` is the event `cannot_follow`. A line with its own event name keeps it (T4).

use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry_sdk::logs::SdkLogRecord;

/// Name of the field and of the attribute with the event name.
pub(super) const EVENT: &str = "event";
/// Maximum length of an event name. Names from longer messages are cut.
const MAX_LENGTH: usize = 64;

/// Returns the event name of a message.
pub(super) fn event_name_of(message: &str) -> String {
    let mut name = String::with_capacity(message.len().min(MAX_LENGTH));
    for c in message.chars() {
        if name.len() >= MAX_LENGTH {
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

/// Adds the event name to a record without one.
pub(super) fn set_event_name(record: &mut SdkLogRecord) {
    let has_event_name = record
        .attributes_iter()
        .any(|(key, _)| key.as_str() == EVENT);
    let name = match record.body() {
        _ if has_event_name => return,
        Some(AnyValue::String(text)) if !text.as_str().is_empty() => event_name_of(text.as_str()),
        // Some libraries log without a message.
        _ => event_name_of(record.target().map_or("unnamed", |target| target.as_ref())),
    };
    record.add_attribute(EVENT, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_name_is_made_from_the_message() {
        assert_eq!(event_name_of("cannot follow"), "cannot_follow");
        assert_eq!(
            event_name_of("silent for too long; nothing is revoked until it is heard"),
            "silent_for_too_long_nothing_is_revoked_until_it_is_heard"
        );
        assert_eq!(event_name_of("..."), "");
        assert_eq!(event_name_of(&"a b ".repeat(99)).len(), MAX_LENGTH - 1);
    }
}
