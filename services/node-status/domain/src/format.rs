//! Durations and counts as text.

/// Formats a duration in its largest whole unit: `900 ms`, `15 s`, `15 min`.
pub fn duration_text(ms: u64) -> String {
    match ms {
        ms if ms >= 120_000 && ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms if ms >= 1_000 && ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// Formats a count with its window: `5 times in 15 min`.
pub(crate) fn times_text(count: u64) -> String {
    format!(
        "{count} times in {}",
        duration_text(crate::flapping::WINDOW_MS)
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_printed_in_the_largest_whole_unit() {
        let texts = [900, 1_500, 15_000, 60_000, 900_000].map(super::duration_text);
        assert_eq!(texts, ["900 ms", "1500 ms", "15 s", "60 s", "15 min"]);
    }
}
