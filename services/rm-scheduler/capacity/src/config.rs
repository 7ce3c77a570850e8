//! Configuration of the queues of a pool, as part of the policy document.
//!
//! [`read`] parses and validates a document into the [`Queues`] of the snapshot, or returns all
//! faults, each with a JSON pointer and a remedy. Unreadable parts are reported and left out, and
//! all other parts are still validated.

mod acl;
mod document;
mod inherited_queue;
mod limits;
mod placement_rules;
mod translate;
mod validate;

use std::fmt;

use hayward_rm_scheduler_domain::snapshot::queues::Queues;
use serde_json::Value;

pub use document::Document;

/// A fault in the document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// JSON pointer into the document.
    pub pointer: String,
    /// The fault and its remedy.
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
    fn add(&mut self, pointer: &JsonPointer, detail: impl Into<String>) {
        self.0.push(Fault {
            pointer: pointer.0.clone(),
            detail: detail.into(),
        });
    }
}

/// JSON pointer of a value in the document (RFC 6901).
#[derive(Clone, Default)]
struct JsonPointer(String);

impl JsonPointer {
    /// Returns the pointer of a field of this value.
    fn child(&self, step: &str) -> Self {
        let step = step.replace('~', "~0").replace('/', "~1");
        Self(format!("{}/{step}", self.0))
    }

    /// Returns the pointer of an item of this list.
    fn item(&self, index: usize) -> Self {
        self.child(&index.to_string())
    }
}

/// Maximum number of reported faults. A larger number usually has one common cause.
const MAX_FAULTS: usize = 200;

/// Parses and validates a document. Otherwise returns all faults, sorted by position.
pub fn read(document: &Value) -> Result<Queues, Vec<Fault>> {
    let mut faults = Faults::default();
    let document = document::read(document, &mut faults);
    let queues = translate::translate(&document, &mut faults);
    validate::check(&document, &queues, &mut faults);
    let mut faults = faults.0;
    if faults.is_empty() {
        return Ok(queues);
    }
    faults.sort();
    faults.dedup();
    // A part that was left out as unreadable is not reported as missing.
    let unreadable = faults.clone();
    faults.retain(|fault| {
        let is_inside = |other: &Fault| other.pointer.starts_with(&format!("{}/", fault.pointer));
        !(fault.detail.starts_with("missing field") && unreadable.iter().any(is_inside))
    });
    faults.truncate(MAX_FAULTS);
    Err(faults)
}

#[cfg(test)]
mod tests;
