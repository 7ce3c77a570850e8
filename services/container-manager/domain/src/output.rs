//! Finds the new part of a reported piece of output.
//!
//! The position of a piece is the number of bytes written before it. An agent repeats a piece until
//! it is acknowledged, and may cut it at other offsets after a restart. Stored pieces never
//! overlap, and output only grows at its end. A gap is output that the agent had to drop.

/// A piece of output, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of output before it.
    pub start: u64,
    /// Length in bytes of the original output.
    pub bytes: u64,
    pub text: String,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// The part from `offset` on. Text in which bytes were replaced cannot be cut by byte offsets;
    /// it is returned whole, because repeated text is better than lost text.
    #[must_use]
    pub fn from(mut self, offset: u64) -> Self {
        let cut = offset.saturating_sub(self.start).min(self.bytes);
        let exact = self.text.len() as u64 == self.bytes;
        if let (true, Ok(at)) = (exact, usize::try_from(cut))
            && self.text.is_char_boundary(at)
        {
            self.text.drain(..at);
        }
        self.start += cut;
        self.bytes -= cut;
        self
    }
}

/// The part of `piece` after the first `written` bytes, which are already stored.
pub fn new_part(written: u64, piece: Piece) -> Option<Piece> {
    if piece.bytes == 0 || piece.end() <= written {
        return None;
    }
    let mut piece = piece.from(written);
    // Postgres text cannot store NUL. Replaced last, because text with replacements cannot be cut.
    if piece.text.contains('\0') {
        piece.text = piece.text.replace('\0', "\u{fffd}");
    }
    Some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, text: &str) -> Piece {
        Piece {
            start,
            bytes: text.len() as u64,
            text: text.to_owned(),
        }
    }

    #[test]
    fn repeats_are_dropped_and_overlaps_are_cut() {
        assert_eq!(new_part(0, piece(0, "abc")), Some(piece(0, "abc")));
        assert_eq!(new_part(3, piece(0, "abc")), None);
        assert_eq!(new_part(2, piece(0, "abcd")), Some(piece(2, "cd")));
        assert_eq!(
            new_part(2, piece(9, "late")),
            Some(piece(9, "late")),
            "a gap stays a gap"
        );
        assert_eq!(new_part(0, piece(0, "")), None);
    }

    #[test]
    fn text_with_replaced_bytes_is_not_cut() {
        let lossy = Piece {
            start: 0,
            bytes: 4,
            text: "a\u{fffd}b".into(),
        };
        let rest = new_part(2, lossy).unwrap();
        assert_eq!(
            (rest.start, rest.bytes, rest.text.as_str()),
            (2, 2, "a\u{fffd}b")
        );
        let middle = new_part(1, piece(0, "äb")).unwrap();
        assert_eq!(
            (middle.start, middle.bytes, middle.text.as_str()),
            (1, 2, "äb")
        );
    }

    #[test]
    fn nul_bytes_are_replaced() {
        assert_eq!(new_part(0, piece(0, "a\0b")).unwrap().text, "a\u{fffd}b");
        assert_eq!(
            new_part(2, piece(0, "ab\0c")),
            Some(Piece {
                bytes: 2,
                ..piece(2, "\u{fffd}c")
            })
        );
    }

    #[test]
    fn offsets_near_the_maximum_do_not_overflow() {
        let last = Piece {
            start: u64::MAX - 1,
            bytes: u64::MAX,
            text: "x".into(),
        };
        assert!(new_part(5, last).is_some());
    }
}
