//! Cuts a reported chunk of output to the part that is not stored yet.
//!
//! An agent repeats a chunk until it is acknowledged. After a restart the agent may cut the same
//! output at other offsets. Stored chunks never overlap, and output only grows at its end. A gap
//! between two chunks is output that the agent had to drop.

/// A chunk of output, or the remaining part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Number of bytes of output before the chunk.
    pub start: u64,
    /// Length in bytes of the original output.
    pub bytes: u64,
    pub text: String,
}

impl Chunk {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Removes the part before `offset`. Text in which bytes were replaced cannot be cut by byte
    /// offsets. Such text is returned whole, because repeated text is better than lost text.
    #[must_use]
    pub fn skip_to(mut self, offset: u64) -> Self {
        let cut = offset.saturating_sub(self.start).min(self.bytes);
        // Without replaced bytes, offsets in the text are offsets in the output.
        let is_exact = self.text.len() as u64 == self.bytes;
        if let (true, Ok(cut)) = (is_exact, usize::try_from(cut))
            && self.text.is_char_boundary(cut)
        {
            self.text.drain(..cut);
        }
        self.start += cut;
        self.bytes -= cut;
        self
    }
}

/// Returns the part of `chunk` that is not stored yet. The first `stored_bytes` bytes of output are
/// stored. `None` if the chunk has no such part.
pub fn unstored_part(stored_bytes: u64, chunk: Chunk) -> Option<Chunk> {
    if chunk.bytes == 0 || chunk.end() <= stored_bytes {
        return None;
    }
    let mut chunk = chunk.skip_to(stored_bytes);
    // Postgres text cannot store NUL. NUL is replaced after the cut, because text with
    // replacements cannot be cut.
    if chunk.text.contains('\0') {
        chunk.text = chunk.text.replace('\0', "\u{fffd}");
    }
    Some(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(start: u64, text: &str) -> Chunk {
        Chunk {
            start,
            bytes: text.len() as u64,
            text: text.to_owned(),
        }
    }

    #[test]
    fn repeats_are_dropped_and_overlaps_are_cut() {
        assert_eq!(unstored_part(0, chunk(0, "abc")), Some(chunk(0, "abc")));
        assert_eq!(unstored_part(3, chunk(0, "abc")), None);
        assert_eq!(unstored_part(2, chunk(0, "abcd")), Some(chunk(2, "cd")));
        assert_eq!(
            unstored_part(2, chunk(9, "late")),
            Some(chunk(9, "late")),
            "a gap stays a gap"
        );
        assert_eq!(unstored_part(0, chunk(0, "")), None);
    }

    #[test]
    fn text_with_replaced_bytes_is_not_cut() {
        let lossy = Chunk {
            start: 0,
            bytes: 4,
            text: "a\u{fffd}b".into(),
        };
        let remaining = unstored_part(2, lossy).unwrap();
        assert_eq!(
            (remaining.start, remaining.bytes, remaining.text.as_str()),
            (2, 2, "a\u{fffd}b")
        );
        let middle = unstored_part(1, chunk(0, "äb")).unwrap();
        assert_eq!(
            (middle.start, middle.bytes, middle.text.as_str()),
            (1, 2, "äb")
        );
    }

    #[test]
    fn nul_bytes_are_replaced() {
        assert_eq!(
            unstored_part(0, chunk(0, "a\0b")).unwrap().text,
            "a\u{fffd}b"
        );
        assert_eq!(
            unstored_part(2, chunk(0, "ab\0c")),
            Some(Chunk {
                bytes: 2,
                ..chunk(2, "\u{fffd}c")
            })
        );
    }

    #[test]
    fn offsets_near_the_maximum_do_not_overflow() {
        let last = Chunk {
            start: u64::MAX - 1,
            bytes: u64::MAX,
            text: "x".into(),
        };
        assert!(unstored_part(5, last).is_some());
    }
}
