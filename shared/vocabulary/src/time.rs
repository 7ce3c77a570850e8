//! Instants: RFC 3339 UTC with milliseconds on the wire, integer milliseconds in decisions (D13).

use std::fmt;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

/// The end of the year 9999, the last one in RFC 3339.
const LAST_MS: i64 = 253_402_300_799_999;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = DateTime, examples("2026-11-21T10:42:00.000Z"))]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }
    pub const fn unix_ms(self) -> i64 {
        self.0
    }
    /// Saturates at [`LAST_MS`], because a later instant could not be parsed again.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        let sum = self.0.saturating_add_unsigned(ms);
        Self(sum.min(LAST_MS.max(self.0)))
    }
    #[must_use]
    pub fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(ms))
    }
    /// Milliseconds from `earlier` to `self`; zero if the clock went backwards.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0) {
            Some(instant) => f.write_str(&instant.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{} ms", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = chrono::ParseError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(text).map(|instant| Self(instant.timestamp_millis()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let expected = "an instant is RFC 3339, like 2026-11-21T10:42:00Z";
        text.parse().map_err(|_| D::Error::custom(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_survives_the_wire_format() {
        let instant = Timestamp::from_unix_ms(1_795_257_720_123);
        let text = serde_json::to_string(&instant).unwrap();
        assert_eq!(text, "\"2026-11-21T10:42:00.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), instant);
    }

    #[test]
    fn a_sum_never_exceeds_the_last_valid_instant() {
        let last = Timestamp::from_unix_ms(1_795_257_720_123).plus_ms(u64::MAX);
        let text = serde_json::to_string(&last).unwrap();
        assert_eq!(text, "\"9999-12-31T23:59:59.999Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), last);
        let never = Timestamp::from_unix_ms(i64::MAX);
        assert_eq!(never.plus_ms(1), never);
    }
}
