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

/// Position of the reader in the output of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Bytes of output that were read or skipped.
    pub offset: u64,
    /// True if a response has already listed the container as ended.
    pub ended: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCursor {
    /// Positions by container.
    pub positions: BTreeMap<AllocationId, LogPosition>,
}

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
        let positions = positions.collect::<Option<_>>()?;
        Some(Self { positions })
    }

    /// Returns the position in a container. An unknown container is read from the beginning.
    pub fn position(&self, id: &AllocationId) -> LogPosition {
        self.positions.get(id).copied().unwrap_or_default()
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (id, position)) in self.positions.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let end_mark = if position.ended { "!" } else { "" };
            write!(f, "{comma}{id}:{}{end_mark}", position.offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_invalid_text_is_rejected() {
        let position = |offset, ended| LogPosition { offset, ended };
        let id = |id: &str| AllocationId::new(id).unwrap();
        let positions = BTreeMap::from([
            (id("alc_1"), position(7, false)),
            (id("alc_2"), position(u64::MAX, true)),
        ]);
        let cursor = LogCursor { positions };
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
}
