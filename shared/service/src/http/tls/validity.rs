//! Parses the validity of a certificate from its DER encoding, for a metric (T8).
//!
//! The parser knows only the path to the two times: the first fields of the signed part (RFC 5280,
//! 4.1). Access control does not use the result.

use chrono::NaiveDateTime;

use super::Validity;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Tag `[0]` around the version. A certificate of the first version has none.
const VERSION: u8 = 0xa0;

/// Parses a certificate. Returns `None` if the bytes are not a certificate.
pub(super) fn parse(der: &[u8]) -> Option<Validity> {
    let (certificate, _) = read_element(der, SEQUENCE)?;
    let (signed, _) = read_element(certificate, SEQUENCE)?;
    let remaining = read_element(signed, VERSION).map_or(signed, |(_, remaining)| remaining);
    let (_serial, remaining) = read_element(remaining, INTEGER)?;
    let (_algorithm, remaining) = read_element(remaining, SEQUENCE)?;
    let (_issuer, remaining) = read_element(remaining, SEQUENCE)?;
    let (validity, _) = read_element(remaining, SEQUENCE)?;
    let (from_ms, remaining) = parse_time(validity)?;
    let (to_ms, _) = parse_time(remaining)?;
    Some(Validity { from_ms, to_ms })
}

/// Returns the content of the first element, which must have this tag, and the remaining bytes.
fn read_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found_tag, remaining) = der.split_first()?;
    let (first, remaining) = remaining.split_first()?;
    let (length, remaining) = match first {
        0..=0x7f => (usize::from(*first), remaining),
        // The length follows in this many bytes. A certificate never needs more than four.
        0x81..=0x84 => {
            let (bytes, remaining) = remaining.split_at_checked(usize::from(first - 0x80))?;
            let length = bytes
                .iter()
                .fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
            (length, remaining)
        }
        _ => return None,
    };
    let content_and_rest = remaining.split_at_checked(length)?;
    (*found_tag == tag).then_some(content_and_rest)
}

fn parse_time(der: &[u8]) -> Option<(i64, &[u8])> {
    let (text, remaining) = if der.first()? == &UTC_TIME {
        let (text, remaining) = read_element(der, UTC_TIME)?;
        let text = std::str::from_utf8(text).ok()?;
        // The year has two digits. Years below 50 are in this century.
        let century = if text < "50" { "20" } else { "19" };
        (format!("{century}{text}"), remaining)
    } else {
        let (text, remaining) = read_element(der, GENERALIZED_TIME)?;
        (std::str::from_utf8(text).ok()?.to_owned(), remaining)
    };
    let time = NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok()?;
    Some((time.and_utc().timestamp_millis(), remaining))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(from: (i32, u8, u8), to: (i32, u8, u8)) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(to.0, to.1, to.2);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn ms(text: &str) -> i64 {
        let time: chrono::DateTime<chrono::Utc> = text.parse().unwrap();
        time.timestamp_millis()
    }

    #[test]
    fn both_encodings_of_a_time_are_parsed() {
        let parsed = parse(&certificate((1999, 12, 31), (2026, 3, 4)));
        let expected = Validity {
            from_ms: ms("1999-12-31T00:00:00Z"),
            to_ms: ms("2026-03-04T00:00:00Z"),
        };
        assert_eq!(parsed, Some(expected));
        // Years from 2050 have four digits.
        let parsed = parse(&certificate((2049, 1, 1), (4096, 1, 1))).unwrap();
        assert_eq!(parsed.from_ms, ms("2049-01-01T00:00:00Z"));
        assert_eq!(parsed.to_ms, ms("4096-01-01T00:00:00Z"));
    }

    #[test]
    fn a_truncated_certificate_is_rejected_without_panic() {
        let valid = certificate((2024, 1, 1), (2030, 1, 1));
        for end in 0..valid.len() {
            assert_eq!(parse(&valid[..end]), None, "{end}");
        }
        for position in 0..120 {
            for byte in [0x00, 0x7f, 0x80, 0x84, 0x85, 0xff] {
                let mut corrupted = valid.clone();
                corrupted[position] = byte;
                let _ = parse(&corrupted);
            }
        }
    }
}
