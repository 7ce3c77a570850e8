//! Numbers in sentences for people.

/// A limit as it was set: `900 ms`, `15 s`, `15 min`.
pub fn length(ms: u64) -> String {
    match ms {
        ms if ms >= 120_000 && ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms if ms >= 1_000 && ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// As in `5 times in 15 min`.
pub(crate) fn times(count: u64) -> String {
    format!("{count} times in {}", length(crate::flapping::WINDOW_MS))
}

#[cfg(test)]
mod tests {
    #[test]
    fn limits_read_as_they_were_set() {
        let said = [900, 1_500, 15_000, 60_000, 900_000].map(super::length);
        assert_eq!(said, ["900 ms", "1500 ms", "15 s", "60 s", "15 min"]);
    }
}
