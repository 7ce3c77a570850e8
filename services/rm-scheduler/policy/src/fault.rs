//! Faults of a document, each with a JSON pointer.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// JSON pointer into the document.
    pub pointer: String,
    /// The fault and how to correct it.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
    }
}

/// Joins steps to a JSON pointer (RFC 6901).
pub fn pointer(steps: &[&str]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push('/');
        text.push_str(&step.replace('~', "~0").replace('/', "~1"));
    }
    text
}

/// Collects faults.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub Vec<Fault>);

impl Faults {
    pub fn add(&mut self, steps: &[&str], detail: impl Into<String>) {
        self.0.push(Fault {
            pointer: pointer(steps),
            detail: detail.into(),
        });
    }
}
