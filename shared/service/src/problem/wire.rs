//! The JSON form of a problem document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Code, FieldFault, Problem};

/// A problem document (RFC 9457): the reason why a request was refused or failed.
#[derive(Serialize, Deserialize, ToSchema)]
pub(super) struct Document {
    /// A URN made from `code`.
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    detail: String,
    /// Path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(default = "unknown_code")]
    code: Code,
    /// True when the same request may succeed later.
    #[serde(default)]
    retryable: bool,
    /// Milliseconds to wait before trying again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Id of the request, which the logs of the service contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// All faults of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldFault>,
    /// Further members of some kinds of problems.
    #[serde(flatten)]
    #[schema(ignore)]
    extensions: BTreeMap<String, serde_json::Value>,
}

fn unknown_code() -> Code {
    Code::Unknown
}

impl From<Problem> for Document {
    fn from(problem: Problem) -> Self {
        Self {
            kind: format!("urn:hayward:problem:{}", problem.code),
            title: problem.code.title().to_owned(),
            status: problem.status().as_u16(),
            detail: problem.detail.into(),
            instance: problem.instance.map(Into::into),
            code: problem.code,
            retryable: problem.retryable,
            retry_after_ms: problem.retry_after_ms,
            request_id: problem.request_id.map(Into::into),
            trace_id: problem.trace_id.map(Into::into),
            errors: problem.errors,
            extensions: problem
                .details
                .map(|details| details.extensions)
                .unwrap_or_default(),
        }
    }
}

impl From<Document> for Problem {
    fn from(document: Document) -> Self {
        let mut problem = Self::new(document.code, document.detail);
        problem.errors = document.errors;
        problem.instance = document.instance.map(Into::into);
        problem.retryable = document.retryable;
        problem.retry_after_ms = document.retry_after_ms;
        problem.request_id = document.request_id.map(Into::into);
        problem.trace_id = document.trace_id.map(Into::into);
        if !document.extensions.is_empty() {
            problem.details.get_or_insert_default().extensions = document.extensions;
        }
        problem
    }
}
