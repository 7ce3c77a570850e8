//! The sentence of a verdict, built when it is read: most verdicts are never read.

mod detail;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shares::Counts;
use detail::Named;
pub(crate) use detail::{Detail, UncountedDimension};

/// One sentence for users. Serialized as text.
#[derive(Clone)]
pub struct Sentence {
    detail: Detail,
    named: Named,
}

impl Sentence {
    pub(crate) fn of(detail: &Detail, counts: &Counts) -> Self {
        Self {
            detail: detail.clone(),
            named: Named::of(counts),
        }
    }

    pub fn contains(&self, words: &str) -> bool {
        self.to_string().contains(words)
    }
}

impl From<String> for Sentence {
    fn from(words: String) -> Self {
        Self {
            detail: Detail::words(words),
            named: Named::default(),
        }
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        self.detail.write(self.named, out)
    }
}

impl fmt::Debug for Sentence {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), out)
    }
}

/// A deserialized sentence is text, and equals the sentence with the same text.
impl PartialEq for Sentence {
    fn eq(&self, other: &Self) -> bool {
        let is_like = self.detail == other.detail && self.named == other.named;
        is_like || self.to_string() == other.to_string()
    }
}

impl Eq for Sentence {}

impl PartialEq<str> for Sentence {
    fn eq(&self, words: &str) -> bool {
        let text = self.to_string();
        text == words
    }
}

impl PartialEq<&str> for Sentence {
    fn eq(&self, words: &&str) -> bool {
        *self == **words
    }
}

impl Serialize for Sentence {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sentence {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_the_same_after_serialization() {
        let counts = Counts {
            counted: 3,
            current: 2,
            leaving: 0,
            order: 7,
            wanted: 9,
        };
        let text = Sentence::of(&Detail::RoomIsSplit, &counts);
        let words = "due 3 processes of 7 quanta, has 2: the free room is split over nodes";
        assert_eq!(text, *words);
        let written = serde_json::to_string(&text).unwrap();
        assert_eq!(written, format!("{words:?}"));
        let read: Sentence = serde_json::from_str(&written).unwrap();
        assert_eq!(read, text);
        let more = Counts {
            current: 4,
            ..counts
        };
        assert_ne!(read, Sentence::of(&Detail::RoomIsSplit, &more));
    }
}
