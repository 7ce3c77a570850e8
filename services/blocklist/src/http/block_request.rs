//! An item as it arrives: read loosely, then checked, so that every fault is told at once.

use hayward_blocklist_api::{BlockAction, BlockKind, EvacuationPolicy};
use hayward_blocklist_domain::Action;
use hayward_blocklist_domain::block::MANUAL;
use hayward_service::extract::write_whole;
use hayward_service::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Evacuation, Settings};
use crate::model::{Key, New, Until, kind};

/// Characters of a cause (S27).
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
    #[serde(default, alias = "end_timestamp")]
    end: Option<String>,
    #[serde(default)]
    duration_ms: Option<i64>,
    #[serde(default)]
    permanent: bool,
    #[serde(default)]
    removal_no: Option<u64>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    evacuation: Option<Value>,
}

/// The JSON of a `BlockOrder`: an item whose key stands in the path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderDraft {
    action: String,
    cause: String,
    #[serde(default)]
    end_timestamp: Option<String>,
    #[serde(default)]
    duration_ms: Option<i64>,
    #[serde(default)]
    permanent: bool,
    #[serde(default)]
    pub allow_merge: bool,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    evacuation: Option<Value>,
    #[serde(default)]
    removal_no: Option<u64>,
}

impl OrderDraft {
    /// # Errors
    /// 422 with everything that is wrong.
    pub fn checked(
        self,
        kind: BlockKind,
        identifier: String,
        (source, settings): (&str, &Settings),
    ) -> Result<New, Problem> {
        let draft = Draft {
            kind: match kind {
                BlockKind::Node => "NODE".to_owned(),
                BlockKind::Worker => "WORKER".to_owned(),
            },
            identifier,
            action: self.action,
            cause: self.cause,
            end: self.end_timestamp,
            duration_ms: self.duration_ms,
            permanent: self.permanent,
            removal_no: self.removal_no,
            scope: self.scope,
            evacuation: self.evacuation,
        };
        let names = |mut fault: FieldFault| {
            fault.pointer = match fault.pointer.as_str() {
                "/identifier" => "/path/id".to_owned(),
                "/end" => "/end_timestamp".to_owned(),
                _ => fault.pointer,
            };
            fault
        };
        draft
            .read(String::new(), source, settings)
            .map_err(|faults| refuse(faults.into_iter().map(names).collect()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drafts {
    items: Vec<Draft>,
    #[serde(default)]
    source: Option<String>,
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
    pub fn checked(self, source: &str, settings: &Settings) -> Result<New, Problem> {
        self.read(String::new(), source, settings).map_err(refuse)
    }

    fn read(self, at: String, source: &str, settings: &Settings) -> Result<New, Vec<FieldFault>> {
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
        let action = self.action(settings, &mut faults);
        let job = scope(self.scope.as_deref()).unwrap_or_else(|detail| {
            faults.add("scope", detail);
            None
        });
        let cause = self.cause.trim();
        let long = self.cause.chars().count() > CAUSE;
        if cause.is_empty() || long || self.cause.chars().any(char::is_control) {
            faults.add(
                "cause",
                format!("takes 1 to {CAUSE} characters without control characters"),
            );
        }
        let until = self.until(&mut faults);
        match (kind, action, until) {
            (Some(kind), Some(action), Some(until)) if faults.found.is_empty() => Ok(New {
                cause: cause.to_owned(),
                key: Key {
                    kind,
                    identifier: self.identifier,
                    job,
                },
                action,
                source: source.to_owned(),
                until,
                based_on: self.removal_no,
            }),
            _ => Err(faults.found),
        }
    }

    fn action(&self, settings: &Settings, faults: &mut Faults) -> Option<Action> {
        let known = "MARK_BLOCKLISTED and MARK_BLOCKLISTED_AND_EVACUATE_TASKS";
        let Some(action) = action(&self.action) else {
            let detail = format!("{:?} is not an action; {known} are", self.action);
            faults.add("action", detail);
            return None;
        };
        let policy = self.evacuation.clone().map(|mut policy| {
            write_whole(&mut policy);
            let fields = policy.as_object_mut();
            let graceful = fields.filter(|fields| fields.get("policy") == Some(&"GRACEFUL".into()));
            if let Some(fields) = graceful {
                let usual = settings.evacuation_grace_ms;
                fields.entry("grace_ms").or_insert_with(|| usual.into());
            }
            serde_json::from_value::<EvacuationPolicy>(policy)
        });
        if let Some(Err(_)) = &policy {
            let wanted =
                "is {\"policy\": \"IMMEDIATE\"} or {\"policy\": \"GRACEFUL\", \"grace_ms\": N}";
            faults.add("evacuation", wanted);
            return None;
        }
        match (action, policy.and_then(Result::ok)) {
            (BlockAction::Mark, Some(_)) => {
                faults.add("evacuation", "a mark takes nothing off");
                None
            }
            (BlockAction::Mark, None) => Some(Action::Mark),
            (BlockAction::Evacuate, Some(EvacuationPolicy::Immediate)) => Some(Action::IMMEDIATE),
            (BlockAction::Evacuate, Some(EvacuationPolicy::Graceful { grace_ms })) => {
                Some(Action::evacuate(grace_ms))
            }
            (BlockAction::Evacuate, None) => Some(match settings.evacuation_policy {
                Evacuation::Immediate => Action::IMMEDIATE,
                Evacuation::Graceful => Action::evacuate(settings.evacuation_grace_ms),
            }),
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
    pub fn checked(self, by: &str, settings: &Settings) -> Result<Vec<New>, Problem> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, detail: String| {
            faults.push(FieldFault {
                pointer: pointer.to_owned(),
                detail,
            });
        };
        if !(1..=ITEMS).contains(&self.items.len()) {
            fault("/items", format!("takes 1 to {ITEMS} items"));
            return Err(refuse(faults));
        }
        let own = format!("{MANUAL}{by}");
        let source = self.source.unwrap_or_else(|| own.clone());
        if source != own && !is_source(&source) {
            let forms = "`strategy:NAME`, `slow-task:JOB`, `detector:NAME`, or left out";
            fault("/source", format!("takes {forms}"));
        }
        let mut items = Vec::new();
        for (number, draft) in self.items.into_iter().enumerate() {
            match draft.read(format!("/items/{number}"), &source, settings) {
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

    pub fn is_automatic(&self) -> bool {
        let source = self.source.as_deref();
        source.is_some_and(|source| !source.starts_with(MANUAL))
    }
}

/// A finding of a program: of which kind, and whose.
fn is_source(text: &str) -> bool {
    let Some((kind, name)) = text.split_once(':') else {
        return false;
    };
    matches!(kind, "strategy" | "slow-task" | "detector") && NodeName::new(name).is_ok()
}

/// `CLUSTER`, or the work of `JOB:<id>`.
pub fn scope(text: Option<&str>) -> Result<Option<WorkId>, String> {
    match text {
        None | Some("CLUSTER") => Ok(None),
        Some(text) => {
            let job = text
                .strip_prefix("JOB:")
                .and_then(|id| WorkId::new(id).ok());
            let wrong = || format!("{text:?} is neither CLUSTER nor JOB:<id>");
            job.map(Some).ok_or_else(wrong)
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
