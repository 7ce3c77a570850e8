//! Amounts as written in a scenario. Gigabytes may have a fraction and are rounded down to KiB, as
//! nodes report them.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Number;

const KIB: u64 = 1 << 10;
const KIB_PER_GB: u64 = 1 << 20;

/// Gigabytes, stored in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gigabytes(pub u64);

impl<'de> Deserialize<'de> for Gigabytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        let kib = parts(&number)
            .and_then(|parts| {
                let kib = parts.checked_mul(u128::from(KIB_PER_GB))? / PARTS;
                u64::try_from(kib).ok()
            })
            .and_then(|kib| kib.checked_mul(KIB));
        kib.map(Self)
            .ok_or_else(|| D::Error::custom(format!("{number} is no amount of gigabytes")))
    }
}

/// Maximum number of decimal places.
const DIGITS: usize = 15;
const PARTS: u128 = 1_000_000_000_000_000;

/// Parses a number exactly, in units of 1 / [`PARTS`].
fn parts(number: &Number) -> Option<u128> {
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.get(..DIGITS).unwrap_or(part);
    let part: u128 = format!("{part:0<DIGITS$}").parse().ok()?;
    let whole: u128 = whole.parse().ok()?;
    whole.checked_mul(PARTS)?.checked_add(part)
}

/// Maximum milliseconds: a hundred years, so that sums do not overflow.
const MAX_MS: u64 = 100 * 366 * 24 * 3_600_000;

/// Milliseconds. A fraction is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        let text = number.to_string();
        let whole = text
            .split_once('.')
            .map_or(text.as_str(), |(whole, _)| whole);
        let whole = whole.parse().ok().filter(|ms| *ms <= MAX_MS).map(Self);
        let wrong = || format!("{number} is no time in milliseconds: from 0 to {MAX_MS}");
        whole.ok_or_else(|| D::Error::custom(wrong()))
    }
}

/// A field that is absent, `null` or has a value. `null` removes a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Given<T> {
    #[default]
    Nothing,
    None,
    Some(T),
}

impl<T> Given<T> {
    /// The value after this field, given the value before.
    pub fn or(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Nothing => before,
            Self::None => None,
            Self::Some(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(from)? {
            None => Self::None,
            Some(value) => Self::Some(value),
        })
    }
}

/// A limit. A negative one means the number of processes that the work holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub processes: u64,
    pub keeps: bool,
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        Ok(Self {
            processes: u64::try_from(number).unwrap_or(u64::MAX),
            keeps: number < 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        serde_json::from_str(text)
            .ok()
            .map(|Gigabytes(bytes)| bytes)
    }

    #[test]
    fn fractions_of_a_gigabyte_are_rounded_down_to_a_kib() {
        assert_eq!(bytes("15"), Some(15 << 30));
        assert_eq!(bytes("0.5"), Some(1 << 29));
        assert_eq!(bytes("0.333333333333"), Some((KIB_PER_GB / 3) * KIB));
        assert_eq!(bytes("0.3333333333333333333"), Some((KIB_PER_GB / 3) * KIB));
        assert_eq!(bytes("-1"), None);
    }
}
