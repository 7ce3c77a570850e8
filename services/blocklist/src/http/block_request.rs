//! Bodies of requests that add items. The fields are first parsed as plain texts and validated
//! afterwards, so that one response lists every fault.

use hayward_blocklist_api::{BlockAction, BlockKind, EvacuationPolicy};
use hayward_blocklist_domain::Action;
use hayward_blocklist_domain::block::MANUAL_PREFIX;
use hayward_service::http::extract::normalize_whole_numbers;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use serde::Deserialize;
use serde_json::Value;

use crate::config::{DefaultEvacuation, Settings};
use crate::model::{BlockEnd, BlockRequest, Key, parse_kind};

/// Maximum number of characters of a cause (S27).
const MAX_CAUSE_CHARS: usize = 1024;
/// Maximum number of items of one request (S27).
const MAX_ITEMS: usize = 1000;

/// JSON of the API type `BlockRequest` before validation.
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

/// JSON of the API type `BlockOrder` before validation: an item without its key, which is in the
/// path.
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
    /// Validates the body for a target. Returns a problem with all faults.
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
        let rename_pointer = |mut fault: FieldFault| {
            fault.pointer = match fault.pointer.as_str() {
                "/identifier" => "/path/id".to_owned(),
                "/end" => "/end_timestamp".to_owned(),
                _ => fault.pointer,
            };
            fault
        };
        body.parse(String::new(), source, settings)
            .map_err(|faults| invalid_request(faults.into_iter().map(rename_pointer).collect()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockBatchBody {
    items: Vec<BlockRequestBody>,
    #[serde(default)]
    source: Option<String>,
}

/// Faults of one item.
struct Faults {
    /// Pointer of the item.
    pointer: String,
    list: Vec<FieldFault>,
}

impl Faults {
    fn add(&mut self, field: &str, detail: impl Into<String>) {
        let pointer = format!("{}/{field}", self.pointer);
        self.list.push(FieldFault {
            pointer,
            detail: detail.into(),
        });
    }
}

impl BlockRequestBody {
    /// Validates the body. Returns a problem with all faults.
    pub fn validate(self, source: &str, settings: &Settings) -> Result<BlockRequest, Problem> {
        self.parse(String::new(), source, settings)
            .map_err(invalid_request)
    }

    fn parse(
        self,
        pointer: String,
        source: &str,
        settings: &Settings,
    ) -> Result<BlockRequest, Vec<FieldFault>> {
        let mut faults = Faults {
            pointer,
            list: Vec::new(),
        };
        let kind = parse_kind(&self.kind);
        if kind.is_none() {
            faults.add("type", format!("{:?} must be NODE or WORKER", self.kind));
        }
        // Identifiers of nodes and workers have the same form.
        if let Err(error) = NodeName::new(self.identifier.as_str()) {
            let error = error.to_string().replacen("node", "identifier", 1);
            faults.add("identifier", error);
        }
        let action = self.parse_action(settings, &mut faults);
        let job = parse_scope(self.scope.as_deref()).unwrap_or_else(|detail| {
            faults.add("scope", detail);
            None
        });
        let cause = self.cause.trim();
        let is_too_long = self.cause.chars().count() > MAX_CAUSE_CHARS;
        if cause.is_empty() || is_too_long || self.cause.chars().any(char::is_control) {
            faults.add(
                "cause",
                format!("must have 1 to {MAX_CAUSE_CHARS} characters and no control characters"),
            );
        }
        let end = self.parse_end(&mut faults);
        match (kind, action, end) {
            (Some(kind), Some(action), Some(end)) if faults.list.is_empty() => Ok(BlockRequest {
                cause: cause.to_owned(),
                key: Key {
                    kind,
                    identifier: self.identifier,
                    job,
                },
                action,
                source: source.to_owned(),
                end,
                copied_removal_no: self.removal_no,
            }),
            _ => Err(faults.list),
        }
    }

    /// Parses the action and the evacuation policy.
    fn parse_action(&self, settings: &Settings, faults: &mut Faults) -> Option<Action> {
        let expected = "MARK_BLOCKLISTED or MARK_BLOCKLISTED_AND_EVACUATE_TASKS";
        let Some(action) = parse_action_name(&self.action) else {
            let detail = format!("{:?} must be {expected}", self.action);
            faults.add("action", detail);
            return None;
        };
        let policy = self.evacuation.clone().map(|mut policy| {
            normalize_whole_numbers(&mut policy);
            let fields = policy.as_object_mut();
            let graceful_fields =
                fields.filter(|fields| fields.get("policy") == Some(&"GRACEFUL".into()));
            if let Some(fields) = graceful_fields {
                let default_ms = settings.evacuation_grace_ms;
                fields
                    .entry("grace_ms")
                    .or_insert_with(|| default_ms.into());
            }
            serde_json::from_value::<EvacuationPolicy>(policy)
        });
        if let Some(Err(_)) = &policy {
            let expected = "must be {\"policy\": \"IMMEDIATE\"} or \
                        {\"policy\": \"GRACEFUL\", \"grace_ms\": N}";
            faults.add("evacuation", expected);
            return None;
        }
        match (action, policy.and_then(Result::ok)) {
            (BlockAction::Mark, Some(_)) => {
                faults.add(
                    "evacuation",
                    "must be absent, because MARK_BLOCKLISTED evacuates no work",
                );
                None
            }
            (BlockAction::Mark, None) => Some(Action::Mark),
            (BlockAction::Evacuate, Some(EvacuationPolicy::Immediate)) => Some(Action::IMMEDIATE),
            (BlockAction::Evacuate, Some(EvacuationPolicy::Graceful { grace_ms })) => {
                Some(Action::evacuate(grace_ms))
            }
            (BlockAction::Evacuate, None) => Some(match settings.evacuation_policy {
                DefaultEvacuation::Immediate => Action::IMMEDIATE,
                DefaultEvacuation::Graceful => Action::evacuate(settings.evacuation_grace_ms),
            }),
        }
    }

    fn parse_end(&self, faults: &mut Faults) -> Option<BlockEnd> {
        let end = self.end.as_ref().map(|text| text.parse::<Timestamp>());
        if let Some(Err(_)) = end {
            faults.add(
                "end",
                "must be an RFC 3339 timestamp, such as 2026-11-21T10:42:00Z",
            );
        }
        let duration = self.duration_ms.map(u64::try_from);
        if let Some(Err(_)) = duration {
            faults.add("duration_ms", "must not be negative");
        }
        if self.end.is_some() && self.duration_ms.is_some() {
            faults.add("duration_ms", "must not be used together with an end");
        }
        if self.permanent && (self.end.is_some() || self.duration_ms.is_some()) {
            faults.add(
                "permanent",
                "must not be used together with an end or a duration",
            );
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
    /// Validates all items. Returns a problem with the faults of all items.
    pub fn validate(
        self,
        caller_name: &str,
        settings: &Settings,
    ) -> Result<Vec<BlockRequest>, Problem> {
        let mut faults = Vec::new();
        let mut add_fault = |pointer: &str, detail: String| {
            faults.push(FieldFault {
                pointer: pointer.to_owned(),
                detail,
            });
        };
        if !(1..=MAX_ITEMS).contains(&self.items.len()) {
            add_fault("/items", format!("must have 1 to {MAX_ITEMS} items"));
            return Err(invalid_request(faults));
        }
        let manual_source = format!("{MANUAL_PREFIX}{caller_name}");
        let source = self.source.unwrap_or_else(|| manual_source.clone());
        if source != manual_source && !is_program_source(&source) {
            let detail = "must be `strategy:NAME`, `slow-task:JOB` or `detector:NAME`, or absent";
            add_fault("/source", detail.to_owned());
        }
        let mut items = Vec::new();
        for (index, body) in self.items.into_iter().enumerate() {
            match body.parse(format!("/items/{index}"), &source, settings) {
                Ok(request) => items.push(request),
                Err(item_faults) => faults.extend(item_faults),
            }
        }
        if faults.is_empty() {
            Ok(items)
        } else {
            Err(invalid_request(faults))
        }
    }

    /// Returns whether the source of the items is not a person.
    pub fn is_automatic(&self) -> bool {
        let source = self.source.as_deref();
        source.is_some_and(|source| !source.starts_with(MANUAL_PREFIX))
    }
}

/// Returns whether a text is the source of a program, such as `strategy:NAME`.
fn is_program_source(text: &str) -> bool {
    let Some((kind, name)) = text.split_once(':') else {
        return false;
    };
    matches!(kind, "strategy" | "slow-task" | "detector") && NodeName::new(name).is_ok()
}

/// Parses `CLUSTER`, which gives `None`, or `JOB:<id>`.
pub fn parse_scope(text: Option<&str>) -> Result<Option<WorkId>, String> {
    match text {
        None | Some("CLUSTER") => Ok(None),
        Some(text) => {
            let job = text
                .strip_prefix("JOB:")
                .and_then(|id| WorkId::new(id).ok());
            let detail = || format!("{text:?} must be CLUSTER or JOB:<id>");
            job.map(Some).ok_or_else(detail)
        }
    }
}

/// Parses the name of an action, in any of its spellings.
fn parse_action_name(text: &str) -> Option<BlockAction> {
    serde_json::from_value(serde_json::Value::from(text)).ok()
}

fn invalid_request(faults: Vec<FieldFault>) -> Problem {
    let mut problem = Problem::new(Code::Invalid, "invalid block request");
    problem.errors = faults;
    problem
}
