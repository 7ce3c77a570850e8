//! Finds the start of the last lines of an output.

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
