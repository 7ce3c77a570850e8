//! Quantities as text in documents: a whole number with an optional suffix, as in `10`, `500m`,
//! `2G` and `512Mi`. `k` is 1,000 and `Ki` is 1,024.

/// The reason why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuantity {
    #[error("not a whole number with a known suffix")]
    Invalid,
    #[error("too large")]
    TooLarge,
}

const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Parses a whole number: `2k` is 2,000.
///
/// # Errors
/// The text has another form, or the number does not fit.
pub fn parse_whole(text: &str) -> Result<u64, BadQuantity> {
    let mut suffixes = SUFFIXES.iter();
    let split = suffixes.find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    let (number, unit) = split.unwrap_or((text, 1));
    let number = parse_digits(number)?.checked_mul(unit);
    number.ok_or(BadQuantity::TooLarge)
}

/// Parses thousandths: `500m` is 500 and `10` is 10,000.
///
/// # Errors
/// The text has another form, or the number does not fit.
pub fn parse_thousandths(text: &str) -> Result<u64, BadQuantity> {
    match text.strip_suffix('m') {
        Some(number) => parse_digits(number),
        None => parse_whole(text)?
            .checked_mul(1_000)
            .ok_or(BadQuantity::TooLarge),
    }
}

fn parse_digits(text: &str) -> Result<u64, BadQuantity> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(BadQuantity::Invalid);
    }
    text.parse().map_err(|_| BadQuantity::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_suffixes() {
        for (text, number) in [
            ("0", 0),
            ("3k", 3_000),
            ("512M", 512_000_000),
            ("512Mi", 512 << 20),
            ("2Gi", 2 << 30),
            ("16E", 16_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_whole(text), Ok(number), "{text:?}");
        }
        for (text, number) in [("10", 10_000), ("500m", 500), ("2k", 2_000_000)] {
            assert_eq!(parse_thousandths(text), Ok(number), "{text:?}");
        }
    }

    #[test]
    fn a_text_of_another_form_is_invalid() {
        for text in [
            "", "Mi", "kk", "5kk", "5x", "abc", "-1", "+1", "1.5G", "1 G", "500m",
        ] {
            assert_eq!(parse_whole(text), Err(BadQuantity::Invalid), "{text:?}");
        }
        for text in ["", "m", "1.5m", "5mm"] {
            assert_eq!(
                parse_thousandths(text),
                Err(BadQuantity::Invalid),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_too_large() {
        for text in ["19E", "99999999999999999999"] {
            assert_eq!(parse_whole(text), Err(BadQuantity::TooLarge), "{text:?}");
        }
        assert_eq!(parse_thousandths("1E"), Err(BadQuantity::TooLarge));
    }
}
