//! Parses flag values: sizes (`2G`), CPUs (`1.5`), durations (`10m`) and `NAME=VALUE` pairs.
//!
//! Amounts are integers. A fraction is parsed digit by digit without floating point. (D6)

/// A flag value that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error("{0:?} is not a size; write bytes, or a number with K, M, G or T, as in 1.5G")]
    Size(String),
    #[error("{0:?} is not an amount of cpu; write 2, 1.5 or 250m")]
    Cpu(String),
    #[error("{0:?} is not a duration; write numbers with d, h, m, s or ms, as in 1h30m")]
    Duration(String),
    #[error("{0:?} is not NAME=VALUE")]
    Pair(String),
}

/// Parses bytes. `K`, `M`, `G` and `T` are powers of 1024. `i` and `B` may follow them.
pub fn parse_bytes(text: &str) -> Result<u64, InvalidValue> {
    let invalid = || InvalidValue::Size(text.to_owned());
    let (number, unit) = split_unit(text);
    let unit = unit.to_ascii_uppercase();
    let letter = unit.strip_suffix('B').unwrap_or(&unit);
    let letter = letter
        .strip_suffix('I')
        .filter(|rest| !rest.is_empty())
        .unwrap_or(letter);
    let factor = match letter {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(invalid()),
    };
    // The result is rounded down to whole bytes.
    multiply_decimal(number, factor)
        .filter(|_| factor > 1 || !number.contains('.'))
        .ok_or_else(invalid)
}

/// Parses a number of CPUs. Returns thousandths of a CPU.
pub fn parse_cpu_milli(text: &str) -> Result<u64, InvalidValue> {
    let invalid = || InvalidValue::Cpu(text.to_owned());
    match split_unit(text) {
        (number, "") => multiply_decimal(number, 1000).ok_or_else(invalid),
        (number, "m") if !number.contains('.') => multiply_decimal(number, 1).ok_or_else(invalid),
        _ => Err(invalid()),
    }
}

/// Parses a duration. Returns milliseconds. A number without a unit is refused, because its unit
/// cannot be guessed.
pub fn parse_duration_ms(text: &str) -> Result<u64, InvalidValue> {
    let invalid = || InvalidValue::Duration(text.to_owned());
    let mut rest = text.trim();
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(invalid)?;
        let (number, after_number) = rest.split_at(number_end);
        let unit_end = after_number
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after_number.len());
        let (unit, after_unit) = after_number.split_at(unit_end);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        let part_ms = multiply_decimal(number, factor).ok_or_else(invalid)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(invalid)?;
        rest = after_unit;
    }
    if text.trim().is_empty() {
        Err(invalid())
    } else {
        Ok(total_ms)
    }
}

/// Parses `NAME=VALUE`. The value may be empty and may contain further equals signs.
pub fn parse_pair(text: &str) -> Result<(String, String), InvalidValue> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(InvalidValue::Pair(text.to_owned())),
    }
}

/// Splits `1.5G` into `1.5` and `G`.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Digits after the decimal point that count. Further digits would change no result, because they
/// are worth less than one byte, millisecond or thousandth of a CPU.
const MAX_FRACTION_DIGITS: usize = 18;

/// Multiplies a decimal number by a factor and rounds down. Returns `None` if the text is not a
/// number or the result is too large.
fn multiply_decimal(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    let whole: u64 = if whole.is_empty() && !fraction.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    if fraction.contains('.') {
        return None;
    }
    // The fraction is `numerator / denominator`.
    let (mut numerator, mut denominator): (u128, u128) = (0, 1);
    for digit in fraction.chars().take(MAX_FRACTION_DIGITS) {
        numerator = numerator * 10 + u128::from(digit.to_digit(10)?);
        denominator *= 10;
    }
    let whole_part = u128::from(whole) * u128::from(factor);
    let fraction_part = numerator * u128::from(factor) / denominator;
    u64::try_from(whole_part + fraction_part).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_exact() {
        for (text, expected) in [
            ("0", 0),
            ("123", 123),
            ("1k", 1024),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            ("1.5G", 3 << 29),
            (".5M", 1 << 19),
            ("7 MB", 7 << 20),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "G",
            "1.5",
            "2X",
            "-1G",
            "1..5G",
            "1.2.3G",
            "1.G",
            "99999999999T",
            "i",
        ] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpus_are_parsed_to_thousandths() {
        assert_eq!(parse_cpu_milli("1.5"), Ok(1500));
        assert_eq!(parse_cpu_milli("2"), Ok(2000));
        assert_eq!(parse_cpu_milli("250m"), Ok(250));
        for bad in ["", "m", "1.5m", "two", "-1"] {
            assert!(parse_cpu_milli(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_refused() {
        for (text, expected) in [
            ("500ms", 500),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(expected), "{text}");
        }
        for bad in ["", "10", "10x", "m", "-5m", "1h30"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pair_splits_at_the_first_equals_sign() {
        assert_eq!(parse_pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(parse_pair("A="), Ok(("A".into(), String::new())));
        assert!(parse_pair("A").is_err() && parse_pair("=b").is_err());
    }
}
