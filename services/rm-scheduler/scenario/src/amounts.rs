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
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        let kib = parse_fixed_point(&number)
            .and_then(|fixed_point| {
                let kib = fixed_point.checked_mul(u128::from(KIB_PER_GB))? / FIXED_POINT_ONE;
                u64::try_from(kib).ok()
            })
            .and_then(|kib| kib.checked_mul(KIB));
        kib.map(Self)
            .ok_or_else(|| D::Error::custom(format!("{number} is no amount of gigabytes")))
    }
}

/// Maximum number of decimal places of a number. Further places are ignored.
const MAX_DECIMALS: usize = 15;
/// The number 1 as a fixed-point number with [`MAX_DECIMALS`] decimal places.
const FIXED_POINT_ONE: u128 = 1_000_000_000_000_000;

/// Parses a non-negative number exactly as a fixed-point number.
fn parse_fixed_point(number: &Number) -> Option<u128> {
    let text = number.to_string();
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.get(..MAX_DECIMALS).unwrap_or(fraction);
    let fraction: u128 = format!("{fraction:0<MAX_DECIMALS$}").parse().ok()?;
    let integer: u128 = integer.parse().ok()?;
    integer.checked_mul(FIXED_POINT_ONE)?.checked_add(fraction)
}

/// Maximum number of milliseconds: a hundred years, so that sums do not overflow.
const MAX_MS: u64 = 100 * 366 * 24 * 3_600_000;

/// Milliseconds. A fraction is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        let text = number.to_string();
        let integer = text
            .split_once('.')
            .map_or(text.as_str(), |(integer, _)| integer);
        let milliseconds = integer.parse().ok().filter(|ms| *ms <= MAX_MS).map(Self);
        let message = || format!("{number} is no time in milliseconds: from 0 to {MAX_MS}");
        milliseconds.ok_or_else(|| D::Error::custom(message()))
    }
}

/// A field that is absent, `null` or has a value. `null` removes a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NullableField<T> {
    #[default]
    Absent,
    Null,
    Value(T),
}

impl<T> NullableField<T> {
    /// Returns the new value. An absent field keeps the previous one.
    pub fn or_previous(self, previous: Option<T>) -> Option<T> {
        match self {
            Self::Absent => previous,
            Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NullableField<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(deserializer)? {
            None => Self::Null,
            Some(value) => Self::Value(value),
        })
    }
}

/// Maximum number of processes of a job. A negative number in the document means the number of
/// processes that the job holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The limit. `u64::MAX` if `keeps_held` is set.
    pub processes: u64,
    /// True if the limit is the number of processes that the job holds.
    pub keeps_held: bool,
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        Ok(Self {
            processes: u64::try_from(number).unwrap_or(u64::MAX),
            keeps_held: number < 0,
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
