//! Cursors. A cursor is an opaque text with a version, a fingerprint of the list and its filters,
//! and the last key. A cursor of another list or other filters is refused (A6).
//!
//! A cursor grants no rights: a forged cursor reads only what its caller may read anyway.

use std::fmt::Display;
use std::fmt::Write as _;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::problem::{Code, Problem};

const VERSION: &str = "1";
/// Pattern of every cursor, for the description of the API.
pub(crate) const PATTERN: &str = "^1\\.[0-9a-f]{12}\\.([0-9a-f]{2})*$";

/// A list with its filters. A cursor is valid for one list only.
#[derive(Debug, Clone)]
pub struct Listing(Sha256);

impl Listing {
    /// Creates a list. `route` is the path of the list in the description.
    pub fn new(route: &str) -> Self {
        Self(Sha256::new()).with("", &Some(route))
    }

    /// Adds a filter of the request. An absent filter differs from an empty one.
    #[must_use]
    pub fn with(mut self, name: &str, filter: &Option<impl Display>) -> Self {
        let text = match filter {
            Some(filter) => format!("{name}={filter}"),
            None => name.to_owned(),
        };
        // The length is included, so that different filters cannot give the same bytes.
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
        self
    }

    /// Returns a short digest. It only detects mistakes, so 48 bits are enough.
    fn fingerprint(&self) -> String {
        hex(&self.0.clone().finalize()[..6])
    }

    /// Returns the cursor after the key `last`.
    pub fn cursor(&self, last: impl Display) -> String {
        let last = hex(last.to_string().as_bytes());
        format!("{VERSION}.{}.{last}", self.fingerprint())
    }

    /// Returns the last key in a cursor.
    ///
    /// # Errors
    /// 422 if the text is not a cursor, or belongs to another list.
    pub fn last_key(&self, cursor: &str) -> Result<String, Problem> {
        let mut parts = cursor.split('.');
        let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
        let [Some(VERSION), Some(fingerprint), Some(last), None] = parts else {
            return Err(invalid_cursor("take it from the answer of the page before"));
        };
        if fingerprint != self.fingerprint() {
            return Err(invalid_cursor("it belongs to a list with other filters"));
        }
        unhex(last).ok_or_else(|| invalid_cursor("take it from the answer of the page before"))
    }

    /// Returns the last key, parsed.
    ///
    /// # Errors
    /// Same as [`Self::last_key`].
    pub fn key<K: FromStr>(&self, cursor: &str) -> Result<K, Problem> {
        let last = self.last_key(cursor)?;
        last.parse()
            .map_err(|_| invalid_cursor("take it from the answer of the page before"))
    }
}

fn invalid_cursor(detail: &str) -> Problem {
    Problem::new(Code::Invalid, "the cursor belongs to another list").at("/query/cursor", detail)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|start| u8::from_str_radix(&text[start..start + 2], 16));
    String::from_utf8(bytes.collect::<Result<_, _>>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(user: Option<&str>) -> Listing {
        Listing::new("/v1/jobs").with("user", &user)
    }

    #[test]
    fn a_cursor_contains_the_last_key_in_encoded_form() {
        for last in ["job_1", "ann~job_1", "ä.b", ""] {
            let cursor = jobs(None).cursor(last);
            assert_eq!(jobs(None).last_key(&cursor).unwrap(), last);
            assert!(!cursor.contains("job_"), "{cursor} can be read");
        }
    }

    #[test]
    fn a_cursor_belongs_to_its_filters() {
        let cursor = jobs(Some("ann")).cursor("job_1");
        let others = [
            jobs(None),
            jobs(Some("")),
            jobs(Some("ben")),
            Listing::new("/v1/services").with("user", &Some("ann")),
            jobs(Some("ann")).with("state", &None::<&str>),
        ];
        for other in others {
            let refusal = other.last_key(&cursor).unwrap_err();
            assert_eq!(refusal.status(), 422);
            assert_eq!(refusal.errors[0].pointer, "/query/cursor");
        }
    }

    #[test]
    fn a_text_that_is_not_a_cursor_is_refused() {
        let good = jobs(None).cursor("job_1");
        let bad = [
            String::new(),
            "job_1".to_owned(),
            good.replacen('1', "2", 1),
            format!("{good}.x"),
            format!("{good}0"),
            format!("{good}ff"),
            format!("{good}é"),
        ];
        for bad in bad {
            assert_eq!(
                jobs(None).last_key(&bad).unwrap_err().status(),
                422,
                "{bad}"
            );
        }
    }
}
