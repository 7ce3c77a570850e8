//! Amounts as people write them. Gigabytes may have a fraction; they are taken in KiB, rounded
//! down, which is how nodes report.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Number;

const KIB: u64 = 1 << 10;
const KIB_PER_GB: u64 = 1 << 20;

/// Gigabytes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gigabytes(pub u64);

impl<'de> Deserialize<'de> for Gigabytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        let kib = millionths(&number)
            .and_then(|millionths| {
                let kib = u128::from(millionths) * u128::from(KIB_PER_GB) / 1_000_000;
                u64::try_from(kib).ok()
            })
            .and_then(|kib| kib.checked_mul(KIB));
        kib.map(Self)
            .ok_or_else(|| D::Error::custom(format!("{number} is no amount of gigabytes")))
    }
}

/// Millionths of a number as it was written, without passing through a binary fraction.
fn millionths(number: &Number) -> Option<u64> {
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    if part.len() > 6 {
        return None;
    }
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(part)
}

/// Milliseconds; a fraction is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        let text = number.to_string();
        let whole = text
            .split_once('.')
            .map_or(text.as_str(), |(whole, _)| whole);
        let whole = whole.parse().map(Self);
        whole.map_err(|_| D::Error::custom(format!("{number} is no time in milliseconds")))
    }
}

/// Tells `null` from absence: a later document may take a limit away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Said<T> {
    #[default]
    Nothing,
    None,
    Some(T),
}

impl<T> Said<T> {
    /// What holds from now on, given what held before.
    pub fn or(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Nothing => before,
            Self::None => None,
            Self::Some(value) => Some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(from)? {
            None => Self::None,
            Some(value) => Self::Some(value),
        })
    }
}

/// A limit that may be negative, which says "what it holds now".
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
