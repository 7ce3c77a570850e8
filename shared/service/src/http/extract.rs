//! Extractors that refuse requests with problem documents, with a pointer to each fault.
//!
//! Bodies are limited before parsing. The server limits their size and time, and this module the
//! depth of their nesting (S27).

mod duplicate_keys;
mod whole_numbers;

pub use whole_numbers::normalize_whole_numbers;

use axum::extract::path::ErrorKind;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::{BodyTooSlow, MAX_JSON_DEPTH, nests_too_deep};
use crate::problem::{Code, Problem, pointer_of};

/// JSON body of a request or a response.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json<T>(pub T);

/// Query of the request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query<T>(pub T);

/// Query of a change that supports dry runs (A10). The committer enforces the dry run, even if the
/// handler ignores it.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DryRun {
    /// Evaluates the change and reports its result, without changing anything.
    #[serde(default)]
    #[param(required = false)]
    pub dry_run: bool,
}

/// Parameters in the path of the request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Path<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "this takes a body with content-type application/json";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        let body = Bytes::from_request(request, state)
            .await
            .map_err(body_problem)?;
        parse(&body).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let fault = text.strip_prefix("Failed to deserialize query string: ");
                let fault = fault.unwrap_or(&text);
                let problem = Problem::new(Code::BadRequest, "the query cannot be understood");
                Err(match fault.split_once(": ") {
                    Some((field, detail)) if !field.contains(' ') => {
                        problem.at(format!("/query{}", pointer_of(field)), detail)
                    }
                    _ => problem.at("/query", fault),
                })
            }
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(PathRejection::FailedToDeserializePathParams(fault)) => {
                let problem = Problem::new(Code::BadRequest, "the path cannot be understood");
                let text = fault.body_text();
                Err(match fault.into_kind() {
                    ErrorKind::ParseErrorAtKey {
                        key,
                        value,
                        expected_type,
                    } => problem.at(
                        format!("/path/{key}"),
                        format!("{value:?} is no {expected_type}"),
                    ),
                    ErrorKind::DeserializeError { key, message, .. } => {
                        problem.at(format!("/path/{key}"), message)
                    }
                    ErrorKind::InvalidUtf8InPathParam { key } => {
                        problem.at(format!("/path/{key}"), "not UTF-8")
                    }
                    _ => {
                        let detail = text.strip_prefix("Invalid URL: ").unwrap_or(&text);
                        problem.at("/path", detail)
                    }
                })
            }
            Err(other) => Err(Problem::internal(other)),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| {
        let kind = kind
            .split(';')
            .next()
            .unwrap_or("")
            .trim()
            .to_ascii_lowercase();
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
    })
}

pub(crate) fn body_problem(rejection: BytesRejection) -> Problem {
    if has_source::<BodyTooSlow>(&rejection) {
        return Problem::new(Code::Timeout, BodyTooSlow.to_string());
    }
    if rejection.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(
            Code::PayloadTooLarge,
            "the body is larger than this route takes",
        );
    }
    Problem::new(Code::BadRequest, "the body ended before it was complete").with_cause(rejection)
}

fn has_source<E: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(<dyn std::error::Error>::is::<E>)
}

/// Parses a body. A problem has a pointer to each fault.
///
/// # Errors
/// 400 if the body is not JSON or not the JSON of a `T`.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if nests_too_deep(body) {
        let detail = format!("the body is nested deeper than {MAX_JSON_DEPTH} levels");
        return Err(Problem::new(Code::MalformedJson, detail));
    }
    if let Some(key) = duplicate_keys::first_duplicate(body) {
        let detail = format!("the key {key:?} is twice in one object");
        return Err(Problem::new(Code::MalformedJson, detail));
    }
    // The original text is parsed first, so that a fault refers to it.
    deserialize(body).or_else(|problem| {
        let normalized = whole_numbers::normalized(body).and_then(|text| deserialize(&text).ok());
        normalized.ok_or(problem)
    })
}

fn deserialize<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // The library writes `?` for a part of the path that it does not know.
        let pointer = pointer_of(&error.path().to_string()).replace("/?", "");
        json_problem(pointer, &error.into_inner())
    })?;
    reader.end().map_err(|error| {
        Problem::new(Code::MalformedJson, "something follows the body").at("", error.to_string())
    })?;
    Ok(value)
}

/// Creates the problem for valid JSON of another shape, which is 422. A missing field has a pointer
/// too (A9).
fn json_problem(pointer: String, error: &serde_json::Error) -> Problem {
    let detail = error.to_string();
    if !error.is_data() {
        let problem = Problem::new(Code::MalformedJson, "the body is not JSON");
        return problem.at(pointer, detail);
    }
    let missing = detail.strip_prefix("missing field `");
    let missing = missing.and_then(|rest| rest.split_once('`'));
    let problem = Problem::new(Code::Invalid, "the body is not what this route takes");
    match missing {
        Some((field, _)) => problem.at(format!("{pointer}/{field}"), "is required"),
        None => problem.at(pointer, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        size: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    struct ItemList {
        items: Vec<Item>,
    }

    fn parse_problem(body: &str) -> Problem {
        parse::<ItemList>(body.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_fault_has_a_pointer() {
        let problem = parse_problem(r#"{"items":[{"size":1},{"size":"big"}]}"#);
        assert_eq!(problem.errors[0].pointer, "/items/1/size");
        assert!(problem.errors[0].detail.contains("line 1"), "{problem}");
        let problem = parse_problem(r#"{"items":[{"size":1,"colour":2}]}"#);
        assert!(problem.errors[0].detail.contains("colour"), "{problem}");
        assert_eq!(problem.errors[0].pointer, "/items/0/colour");
        assert!(parse_problem("{").errors[0].detail.contains("EOF"));
        assert_eq!(parse_problem("{").status(), 400);
        assert_eq!(parse_problem(r#"{"items":[]} {}"#).errors.len(), 1);
    }

    #[test]
    fn a_missing_field_is_422_with_its_own_pointer() {
        let problem = parse_problem(r#"{"items":[{"size":1},{}]}"#);
        assert_eq!(
            (problem.status().as_u16(), problem.code),
            (422, Code::Invalid)
        );
        assert_eq!(problem.errors[0].pointer, "/items/1/size");
        assert_eq!(problem.errors[0].detail, "is required");
        assert_eq!(parse_problem("{}").errors[0].pointer, "/items");
    }

    #[test]
    fn a_whole_number_may_have_a_zero_fraction() {
        let list = parse::<ItemList>(br#"{"items":[{"size":2.0}]}"#).unwrap();
        assert_eq!(list.items[0].size, 2);
        let problem = parse_problem(r#"{"items":[{"size":2.5}]}"#);
        assert_eq!(problem.errors[0].pointer, "/items/0/size");
        assert!(problem.errors[0].detail.contains("2.5"), "{problem}");
    }

    #[test]
    fn a_deep_body_is_refused_before_it_is_parsed() {
        let deep = "[".repeat(MAX_JSON_DEPTH + 1);
        assert!(parse_problem(&deep).detail.contains("deeper"));
    }

    #[tokio::test]
    async fn a_query_fault_names_its_field() {
        #[derive(Debug, serde::Deserialize)]
        struct LimitQuery {
            #[serde(rename = "limit")]
            _limit: u32,
        }
        let (mut parts, ()) = http::Request::builder()
            .uri("/x?limit=many")
            .body(())
            .unwrap()
            .into_parts();
        let problem = Query::<LimitQuery>::from_request_parts(&mut parts, &())
            .await
            .unwrap_err();
        assert_eq!(problem.errors[0].pointer, "/query/limit");
        assert_eq!(problem.status(), 400);
    }
}
