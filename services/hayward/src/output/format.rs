//! Formats numbers and API values as text for people. Fractions are cut off, not rounded.

use std::fmt::Write as _;

use hayward_vocabulary::{Exit, Size, Timestamp};
use serde::Serialize;

/// Formats a duration as `450ms`, `3.2s`, `42s`, `3m 12s`, `2h 5m` or `4d 1h`.
pub fn format_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{seconds}.{}s", ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats an age in whole seconds, because clocks of two nodes differ by milliseconds.
pub fn format_age(at: Timestamp, now: Timestamp) -> String {
    match now.ms_since(at) / 1000 {
        0 => "now".to_owned(),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds => format_duration(seconds * 1000),
    }
}

/// Formats bytes as `2 GiB`, `1.5 GiB`, `512 MiB` or `100 B`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) => match bytes % unit * 10 / unit {
            0 => format!("{} {name}", bytes / unit),
            tenth => format!("{}.{tenth} {name}", bytes / unit),
        },
    }
}

/// Formats thousandths as `2`, `1.5` or `0.25`.
pub fn format_thousandths(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub fn format_size(size: &Size) -> String {
    let mut parts = vec![format_bytes(size.memory_bytes)];
    if size.cpu_milli > 0 {
        parts.push(format!("{} cpu", format_thousandths(size.cpu_milli)));
    }
    if size.gpu_milli > 0 {
        parts.push(format!("{} gpu", format_thousandths(size.gpu_milli)));
    }
    parts.extend(
        size.extras
            .iter()
            .map(|(name, amount)| format!("{amount} {name}")),
    );
    parts.join(", ")
}

/// Formats an API value such as `not_ready` as text: blanks replace underscores.
pub fn enum_text<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text.replace('_', " ").to_lowercase(),
        _ => "unknown".to_owned(),
    }
}

/// Describes the end of a process in a few words.
pub fn format_exit(exit: &Exit) -> String {
    let mut text = enum_text(&exit.cause);
    if let Some(code) = exit.code.filter(|code| *code != 0) {
        let _ = write!(text, ", status {code}");
    }
    if let Some(signal) = exit.signal {
        let _ = write!(text, ", signal {signal}");
    }
    if let Some(message) = &exit.message {
        let _ = write!(text, ": {message}");
    }
    text
}

/// Formats a number with its noun: `1 task`, `2 tasks`.
pub fn format_count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Replaces characters in foreign text that could move the cursor, change colours or reverse the
/// text direction. The replacement is U+FFFD.
pub fn sanitize(text: &str) -> String {
    let replace_harmful = |c: char| if is_harmful(c) { '\u{fffd}' } else { c };
    text.chars().map(replace_harmful).collect()
}

/// Replaces the same characters as [`sanitize`] in lines of output, except line breaks and tabs.
pub fn sanitize_lines(text: &str) -> String {
    let replace_harmful = |c: char| match c {
        '\n' | '\t' => c,
        c if is_harmful(c) => '\u{fffd}',
        c => c,
    };
    text.replace("\r\n", "\n")
        .chars()
        .map(replace_harmful)
        .collect()
}

/// Returns true for control characters, and for characters that embed, override, isolate or mark
/// text directions.
fn is_harmful(c: char) -> bool {
    let marks_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    let changes_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || marks_direction || changes_direction
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::ExitCause;

    use super::*;

    #[test]
    fn foreign_text_cannot_move_the_cursor_or_reverse_text() {
        assert_eq!(
            sanitize("a\u{1b}[2Jb\u{202e}c\u{2066}"),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}"
        );
        assert_eq!(sanitize_lines("a\tb\r\n\u{7}c\n"), "a\tb\n\u{fffd}c\n");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let formatted: Vec<String> = [0, 450, 3_260, 42_999, 192_000, 7_500_000, 349_200_000]
            .map(format_duration)
            .into();
        assert_eq!(
            formatted,
            ["0ms", "450ms", "3.2s", "42s", "3m 12s", "2h 5m", "4d 1h"]
        );
    }

    #[test]
    fn ages_have_whole_seconds() {
        let at = Timestamp::from_unix_ms(10_000);
        assert_eq!(format_age(at, at.plus_ms(900)), "now");
        assert_eq!(format_age(at, at.plus_ms(2_900)), "2s");
        assert_eq!(format_age(at, at.plus_ms(61_000)), "1m 1s");
        assert_eq!(
            format_age(at, at.minus_ms(5_000)),
            "now",
            "a clock ahead of ours"
        );
    }

    #[test]
    fn sizes_have_the_largest_fitting_unit() {
        let full = Size {
            memory_bytes: 3 << 29,
            cpu_milli: 1_500,
            gpu_milli: 250,
            extras: [("licence".to_owned(), 2)].into(),
        };
        assert_eq!(format_size(&full), "1.5 GiB, 1.5 cpu, 0.25 gpu, 2 licence");
        assert_eq!(format_size(&Size::memory(1 << 29)), "512 MiB");
        assert_eq!(format_bytes(1023), "1023 B");
    }

    #[test]
    fn the_text_of_an_exit_names_cause_and_status() {
        let mut end = Exit::of(ExitCause::UserError, "it stopped");
        end.code = Some(3);
        assert_eq!(format_exit(&end), "user error, status 3: it stopped");
    }

    #[test]
    fn control_characters_are_replaced_in_foreign_text() {
        assert_eq!(sanitize("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
