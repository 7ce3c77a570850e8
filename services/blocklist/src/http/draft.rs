//! An item as it arrives: read loosely, then checked, so that every fault is told at once.

use hayward_blocklist_api::BlockAction;
use hayward_service::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{NodeName, Timestamp};
use serde::Deserialize;

use crate::ledger::{New, Until, kind};

/// Bytes of a cause (S27).
const CAUSE: usize = 1024;
/// S27: items of one request.
const ITEMS: usize = 1000;

/// The JSON of a `BlockRequest`, before its words are understood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    #[serde(rename = "type")]
    kind: String,
    identifier: String,
    action: String,
    cause: String,
    #[serde(default)]
    end: Option<String>,
    #[serde(default)]
    duration_ms: Option<i64>,
    #[serde(default)]
    permanent: bool,
    #[serde(default)]
    removal_no: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drafts {
    items: Vec<Draft>,
}

struct Faults {
    at: String,
    found: Vec<FieldFault>,
}

impl Faults {
    fn add(&mut self, field: &str, detail: impl Into<String>) {
        let pointer = format!("{}/{field}", self.at);
        self.found.push(FieldFault {
            pointer,
            detail: detail.into(),
        });
    }
}

impl Draft {
    /// # Errors
    /// 422 with everything that is wrong.
    pub fn checked(self, source: &str) -> Result<New, Problem> {
        self.read(String::new(), source).map_err(refuse)
    }

    fn read(self, at: String, source: &str) -> Result<New, Vec<FieldFault>> {
        let mut faults = Faults {
            at,
            found: Vec::new(),
        };
        let kind = kind(&self.kind);
        if kind.is_none() {
            faults.add(
                "type",
                format!("{:?} is neither NODE nor WORKER", self.kind),
            );
        }
        // Both kinds of identifier are names of the same form.
        if let Err(error) = NodeName::new(self.identifier.as_str()) {
            let error = error.to_string().replacen("node", "identifier", 1);
            faults.add("identifier", error);
        }
        let action = action(&self.action);
        if action.is_none() {
            let known = "MARK_BLOCKLISTED and MARK_BLOCKLISTED_AND_EVACUATE_TASKS";
            faults.add(
                "action",
                format!("{:?} is not an action; {known} are", self.action),
            );
        }
        let cause = self.cause.trim();
        if cause.is_empty() || cause.len() > CAUSE || cause.chars().any(char::is_control) {
            faults.add(
                "cause",
                format!("takes 1 to {CAUSE} bytes without control characters"),
            );
        }
        let until = self.until(&mut faults);
        match (kind, action, until) {
            (Some(kind), Some(action), Some(until)) if faults.found.is_empty() => Ok(New {
                cause: cause.to_owned(),
                key: (kind, self.identifier),
                action,
                source: source.to_owned(),
                until,
                based_on: self.removal_no,
            }),
            _ => Err(faults.found),
        }
    }

    fn until(&self, faults: &mut Faults) -> Option<Until> {
        let end = self.end.as_ref().map(|text| text.parse::<Timestamp>());
        if let Some(Err(_)) = end {
            faults.add("end", "an instant is RFC 3339, like 2026-11-21T10:42:00Z");
        }
        let duration = self.duration_ms.map(u64::try_from);
        if let Some(Err(_)) = duration {
            faults.add("duration_ms", "a duration is not negative");
        }
        if self.end.is_some() && self.duration_ms.is_some() {
            faults.add("duration_ms", "give an end or a duration, not both");
        }
        if self.permanent && (self.end.is_some() || self.duration_ms.is_some()) {
            faults.add("permanent", "what is permanent has no end and no duration");
        }
        match (end, duration) {
            (Some(Ok(end)), None) => Some(Until::At(end)),
            (None, Some(Ok(ms))) => Some(Until::For(ms)),
            (None, None) if self.permanent => Some(Until::Permanent),
            (None, None) => Some(Until::Default),
            _ => None,
        }
    }
}

impl Drafts {
    /// # Errors
    /// 422 with everything that is wrong in any item; then none is taken.
    pub fn checked(self, source: &str) -> Result<Vec<New>, Problem> {
        if !(1..=ITEMS).contains(&self.items.len()) {
            let detail = format!("takes 1 to {ITEMS} items");
            return Err(refuse(vec![FieldFault {
                pointer: "/items".to_owned(),
                detail,
            }]));
        }
        let (mut items, mut faults) = (Vec::new(), Vec::new());
        for (number, draft) in self.items.into_iter().enumerate() {
            match draft.read(format!("/items/{number}"), source) {
                Ok(new) => items.push(new),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() {
            Ok(items)
        } else {
            Err(refuse(faults))
        }
    }
}

/// In either spelling.
fn action(text: &str) -> Option<BlockAction> {
    serde_json::from_value(serde_json::Value::from(text)).ok()
}

fn refuse(faults: Vec<FieldFault>) -> Problem {
    let mut problem = Problem::new(
        Code::Invalid,
        "this does not say what to block, and how long",
    );
    problem.errors = faults;
    problem
}
