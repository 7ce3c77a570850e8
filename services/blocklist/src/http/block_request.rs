//! Request bodies with items: parsed leniently, then validated, so that one response lists every
//! fault.

use hayward_blocklist_api::{BlockAction, BlockKind, EvacuationPolicy};
use hayward_blocklist_domain::Action;
use hayward_blocklist_domain::block::MANUAL;
use hayward_service::http::extract::normalize_whole_numbers;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{Evacuation, Settings};
use crate::model::{BlockEnd, BlockRequest, Key, parse_kind};

/// Most characters of a cause (S27).
const MAX_CAUSE_CHARS: usize = 1024;
/// Most items of one request (S27).
const MAX_ITEMS: usize = 1000;

/// JSON of an api `BlockRequest`, not yet validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRequestBody {
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

/// JSON of an api `BlockOrder` before validation: an item without its key, which is in the path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockOrderBody {
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

impl BlockOrderBody {
    /// 422 with all faults.
    pub fn validate(
        self,
        kind: BlockKind,
        identifier: String,
        source: &str,
        settings: &Settings,
    ) -> Result<BlockRequest, Problem> {
        let body = BlockRequestBody {
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
        body.parse(String::new(), source, settings)
            .map_err(|faults| refuse(faults.into_iter().map(names).collect()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockBatchBody {
    items: Vec<BlockRequestBody>,
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

impl BlockRequestBody {
    /// 422 with all faults.
    pub fn validate(self, source: &str, settings: &Settings) -> Result<BlockRequest, Problem> {
        self.parse(String::new(), source, settings).map_err(refuse)
    }

    fn parse(
        self,
        at: String,
        source: &str,
        settings: &Settings,
    ) -> Result<BlockRequest, Vec<FieldFault>> {
        let mut faults = Faults {
            at,
            found: Vec::new(),
        };
        let kind = parse_kind(&self.kind);
        if kind.is_none() {
            faults.add(
                "type",
                format!("{:?} is neither NODE nor WORKER", self.kind),
            );
        }
        // Identifiers of nodes and workers have the same form.
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
        let long = self.cause.chars().count() > MAX_CAUSE_CHARS;
        if cause.is_empty() || long || self.cause.chars().any(char::is_control) {
            faults.add(
                "cause",
                format!("takes 1 to {MAX_CAUSE_CHARS} characters without control characters"),
            );
        }
        let end = self.end(&mut faults);
        match (kind, action, end) {
            (Some(kind), Some(action), Some(end)) if faults.found.is_empty() => Ok(BlockRequest {
                cause: cause.to_owned(),
                key: Key {
                    kind,
                    identifier: self.identifier,
                    job,
                },
                action,
                source: source.to_owned(),
                end,
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
            normalize_whole_numbers(&mut policy);
            let fields = policy.as_object_mut();
            let graceful = fields.filter(|fields| fields.get("policy") == Some(&"GRACEFUL".into()));
            if let Some(fields) = graceful {
                let usual = settings.evacuation_grace_ms;
                fields.entry("grace_ms").or_insert_with(|| usual.into());
            }
            serde_json::from_value::<EvacuationPolicy>(policy)
        });
        if let Some(Err(_)) = &policy {
            let expected =
                "is {\"policy\": \"IMMEDIATE\"} or {\"policy\": \"GRACEFUL\", \"grace_ms\": N}";
            faults.add("evacuation", expected);
            return None;
        }
        match (action, policy.and_then(Result::ok)) {
            (BlockAction::Mark, Some(_)) => {
                faults.add("evacuation", "MARK_BLOCKLISTED evacuates no work");
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

    fn end(&self, faults: &mut Faults) -> Option<BlockEnd> {
        let end = self.end.as_ref().map(|text| text.parse::<Timestamp>());
        if let Some(Err(_)) = end {
            faults.add(
                "end",
                "must be an RFC 3339 instant, like 2026-11-21T10:42:00Z",
            );
        }
        let duration = self.duration_ms.map(u64::try_from);
        if let Some(Err(_)) = duration {
            faults.add("duration_ms", "must not be negative");
        }
        if self.end.is_some() && self.duration_ms.is_some() {
            faults.add("duration_ms", "give an end or a duration, not both");
        }
        if self.permanent && (self.end.is_some() || self.duration_ms.is_some()) {
            faults.add("permanent", "a permanent item has no end and no duration");
        }
        match (end, duration) {
            (Some(Ok(end)), None) => Some(BlockEnd::At(end)),
            (None, Some(Ok(ms))) => Some(BlockEnd::After(ms)),
            (None, None) if self.permanent => Some(BlockEnd::Permanent),
            (None, None) => Some(BlockEnd::Default),
            _ => None,
        }
    }
}

impl BlockBatchBody {
    /// 422 with the faults of all items; then none is added.
    pub fn validate(self, by: &str, settings: &Settings) -> Result<Vec<BlockRequest>, Problem> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, detail: String| {
            faults.push(FieldFault {
                pointer: pointer.to_owned(),
                detail,
            });
        };
        if !(1..=MAX_ITEMS).contains(&self.items.len()) {
            fault("/items", format!("takes 1 to {MAX_ITEMS} items"));
            return Err(refuse(faults));
        }
        let own = format!("{MANUAL}{by}");
        let source = self.source.unwrap_or_else(|| own.clone());
        if source != own && !is_source(&source) {
            let forms = "`strategy:NAME`, `slow-task:JOB`, `detector:NAME`, or left out";
            fault("/source", format!("takes {forms}"));
        }
        let mut items = Vec::new();
        for (number, body) in self.items.into_iter().enumerate() {
            match body.parse(format!("/items/{number}"), &source, settings) {
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

/// True for a source that names a program: its kind and its name.
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

/// Parses an action in either spelling.
fn action(text: &str) -> Option<BlockAction> {
    serde_json::from_value(serde_json::Value::from(text)).ok()
}

fn refuse(faults: Vec<FieldFault>) -> Problem {
    let mut problem = Problem::new(Code::Invalid, "invalid block request");
    problem.errors = faults;
    problem
}
