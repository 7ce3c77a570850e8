//! Cursor of a reader over the output of all containers of one piece of work.
//!
//! The client sends the cursor back as text, so the service stores nothing per reader. The cursor
//! has one position for each container. Late output of one container is therefore not skipped, even
//! if the reader has read newer output of another container.
//!
//! Text form: `alc_1:7,alc_2:9!` means 7 bytes of `alc_1` and 9 of `alc_2`, which has ended.

use std::collections::BTreeMap;
use std::fmt;

use hayward_vocabulary::AllocationId;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Bytes of output that were read or skipped.
    pub offset: u64,
    /// True if a response has already listed the container as ended.
    pub ended: bool,
}

/// Positions by container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCursor(pub BTreeMap<AllocationId, LogPosition>);

impl LogCursor {
    /// Parses the text that [`fmt::Display`] writes. `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let positions = parts.map(|part| {
            let (id, position) = part.split_once(':')?;
            let (offset, ended) = match position.strip_suffix('!') {
                Some(offset) => (offset, true),
                None => (position, false),
            };
            let position = LogPosition {
                offset: offset.parse().ok()?,
                ended,
            };
            Some((AllocationId::new(id).ok()?, position))
        });
        positions.collect::<Option<_>>().map(Self)
    }

    /// Returns the position in a container. An unknown container is read from the beginning.
    pub fn position(&self, id: &AllocationId) -> LogPosition {
        self.0.get(id).copied().unwrap_or_default()
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (id, position)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let end_mark = if position.ended { "!" } else { "" };
            write!(f, "{comma}{id}:{}{end_mark}", position.offset)?;
        }
        Ok(())
    }
}

/// Returns the byte offset in `text` at which the last `lines` lines begin. `is_end` is true if the
/// output ends with `text`. Then a line break at the very end does not begin another line.
pub fn last_lines_offset(text: &str, lines: u64, is_end: bool) -> usize {
    let Some(break_count) = lines.checked_sub(1) else {
        return text.len();
    };
    let counted_text = match text.strip_suffix('\n') {
        Some(without_last_break) if is_end => without_last_break,
        _ => text,
    };
    let mut from_end = counted_text.rmatch_indices('\n');
    let line_break = from_end.nth(usize::try_from(break_count).unwrap_or(usize::MAX));
    line_break.map_or(0, |(offset, _)| offset + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_invalid_text_is_rejected() {
        let position = |offset, ended| LogPosition { offset, ended };
        let id = |id: &str| AllocationId::new(id).unwrap();
        let cursor = LogCursor(BTreeMap::from([
            (id("alc_1"), position(7, false)),
            (id("alc_2"), position(u64::MAX, true)),
        ]));
        assert_eq!(cursor.to_string(), format!("alc_1:7,alc_2:{}!", u64::MAX));
        assert_eq!(LogCursor::parse(&cursor.to_string()), Some(cursor));
        assert_eq!(LogCursor::parse(""), Some(LogCursor::default()));
        for invalid in ["alc_1", "alc_1:x", "alc_1:-1", "a b:1", "alc_1:1!!", "7"] {
            assert_eq!(LogCursor::parse(invalid), None, "{invalid}");
        }
        assert_eq!(
            LogCursor::default().position(&id("alc_3")),
            position(0, false)
        );
    }

    #[test]
    fn the_last_lines_begin_after_a_line_break() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 1, "c\n"),
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("a\nb\n\n", 1, "\n"),
            ("a\nb\n", 9, "a\nb\n"),
            ("a\nb\n", 0, ""),
            ("", 3, ""),
        ] {
            let offset = last_lines_offset(text, lines, true);
            assert_eq!(&text[offset..], expected, "{text:?} {lines}");
        }
        let offset = last_lines_offset("a\nb\n", 1, false);
        assert_eq!(offset, 4, "the last line begins after the last line break");
    }
}
