//! Problem documents (RFC 9457) with a closed list of codes (A8).
//!
//! The client gets the [`Problem`]. Its cause is logged once and never sent, because it may contain
//! names of nodes, tables or people.

mod code;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use code::Code;

/// One fault of a request, and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldFault {
    /// JSON pointer into the body; `/query/name` or `/path/name` for the other parts of a request.
    pub pointer: String,
    pub detail: String,
}

/// A refusal or a failure of a request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "wire::Document", into = "wire::Document")]
pub struct Problem {
    pub code: Code,
    /// Human-readable description.
    pub detail: Box<str>,
    pub errors: Vec<FieldFault>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
    pub request_id: Option<Box<str>>,
    /// Path of the request.
    pub instance: Option<Box<str>>,
    pub trace_id: Option<Box<str>>,
    details: Option<Box<Details>>,
}

/// Fields that few problems have. They are boxed to make [`Problem`] small.
#[derive(Clone, Default)]
struct Details {
    /// Extension members (RFC 9457, 3.2), by name.
    extensions: BTreeMap<String, serde_json::Value>,
    cause: Option<Arc<anyhow::Error>>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into().into_boxed_str(),
            errors: Vec::new(),
            retryable: code.retryable(),
            retry_after_ms: code.retry_after_ms(),
            request_id: None,
            instance: None,
            trace_id: None,
            details: None,
        }
    }

    /// Creates the problem for an internal error. Only the log has the cause.
    pub fn internal(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(
            Code::Internal,
            "something broke here; the request id finds it in our logs",
        )
        .with_cause(cause)
    }

    /// Creates the problem for an unavailable dependency.
    pub fn unavailable(what: impl Into<String>, cause: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Unavailable, what).with_cause(cause)
    }

    /// Creates the problem for a replica that does not lead.
    pub fn standby() -> Self {
        Self::new(
            Code::Standby,
            "this replica is on standby; ask another one, or again soon",
        )
    }

    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(
            Code::NotFound,
            format!("{what} was not found, or you may not see it"),
        )
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    /// Adds a fault of a field.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldFault {
            pointer: pointer.into(),
            detail: detail.into(),
        });
        self
    }

    /// Adds an extension member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        let details = self.details.get_or_insert_default();
        details.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// Returns an extension member.
    pub fn extension(&self, name: &str) -> Option<&serde_json::Value> {
        self.details.as_ref()?.extensions.get(name)
    }

    /// Adds a cause, for the log only.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<anyhow::Error>) -> Self {
        self.details.get_or_insert_default().cause = Some(Arc::new(cause.into()));
        self
    }

    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retryable = true;
        self.retry_after_ms = Some(ms);
        self
    }

    pub fn status(&self) -> http::StatusCode {
        self.code.status()
    }

    pub fn cause(&self) -> Option<&anyhow::Error> {
        self.details.as_ref()?.cause.as_deref()
    }

    /// Returns the response without logging. The server renders it again with the ids.
    pub(crate) fn render(self) -> Response {
        let status = self.status();
        let retry_after = self.retry_after_ms.map(|ms| ms.div_ceil(1000).max(1));
        let body = serde_json::to_vec(&self).unwrap_or_else(|_| b"{}".to_vec());
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Standby {
            // Replicas may share a name, so the next connection may reach another one.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == http::StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The media type of every problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self.cause() {
            Some(cause) if self.status().is_server_error() => {
                tracing::error!(code = %self.code, cause = format!("{cause:#}"), "request failed");
            }
            Some(cause) => {
                tracing::debug!(code = %self.code, cause = format!("{cause:#}"), "request refused");
            }
            None => {}
        }
        self.render()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        for fault in &self.errors {
            write!(f, "; {} {}", fault.pointer, fault.detail)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({self}")?;
        if let Some(cause) = self.cause() {
            write!(f, "; cause: {cause:#}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Problem {}

impl From<anyhow::Error> for Problem {
    fn from(cause: anyhow::Error) -> Self {
        match cause.downcast::<Self>() {
            Ok(problem) => problem,
            Err(cause) => Self::internal(cause),
        }
    }
}

/// Converts a path such as `items[0].name` to a JSON pointer: `/items/0/name`.
pub(crate) fn pointer_of(path: &str) -> String {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.fold(String::new(), |mut pointer, part| {
        pointer.push('/');
        pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
        pointer
    })
}

impl utoipa::PartialSchema for Problem {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        wire::Document::schema()
    }
}

impl ToSchema for Problem {
    fn name() -> std::borrow::Cow<'static, str> {
        "Problem".into()
    }
    fn schemas(
        schemas: &mut Vec<(
            String,
            utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>,
        )>,
    ) {
        wire::Document::schemas(schemas);
    }
}

#[cfg(test)]
mod tests;
