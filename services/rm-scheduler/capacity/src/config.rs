//! The queues of a pool as people write them, ready for the policy document (11.1).
//!
//! [`read`] takes a document and gives the [`Queues`] of the snapshot or all its faults at once,
//! each with a JSON pointer and with what would mend it. What cannot be read is told and left out,
//! and the rest is judged all the same.

mod acl;
mod document;
mod limits;
mod placement;
mod translate;
mod validate;

use std::fmt;

use hayward_rm_scheduler_domain::snapshot::queues::Queues;
use serde_json::Value;

pub use document::Document;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// JSON pointer into the document.
    pub pointer: String,
    /// What is wrong, and what would mend it.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
    }
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn say(&mut self, at: &At, detail: impl Into<String>) {
        self.0.push(Fault {
            pointer: at.0.clone(),
            detail: detail.into(),
        });
    }
}

/// A place in the document.
#[derive(Clone, Default)]
struct At(String);

impl At {
    /// RFC 6901
    fn to(&self, step: &str) -> Self {
        let step = step.replace('~', "~0").replace('/', "~1");
        Self(format!("{}/{step}", self.0))
    }

    fn nth(&self, index: usize) -> Self {
        self.to(&index.to_string())
    }
}

/// Faults that are told at most; who has more made one mistake many times.
const MOST_FAULTS: usize = 200;

/// # Errors
/// All that is wrong at once, sorted by place.
pub fn read(document: &Value) -> Result<Queues, Vec<Fault>> {
    let mut faults = Faults::default();
    let document = document::read(document, &mut faults);
    let queues = translate::queues(&document, &mut faults);
    validate::all(&document, &queues, &mut faults);
    let mut faults = faults.0;
    if faults.is_empty() {
        return Ok(queues);
    }
    faults.sort();
    faults.dedup();
    // What was left out because it could not be read is not missing.
    let told = faults.clone();
    faults.retain(|fault| {
        let inside = |other: &Fault| other.pointer.starts_with(&format!("{}/", fault.pointer));
        !(fault.detail.starts_with("missing field") && told.iter().any(inside))
    });
    faults.truncate(MOST_FAULTS);
    Err(faults)
}

#[cfg(test)]
mod tests;
