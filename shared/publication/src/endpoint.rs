//! The HTTP form of a publication: `GET …/publication?since=CURSOR&wait=SECONDS`.

use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Publisher;
use crate::published::Delta;
use crate::publisher::Poll;

/// Query of a publication.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SinceQuery {
    /// The `cursor` of the last answer. Without it, or with an unknown cursor, the answer has all
    /// entries.
    #[serde(default)]
    #[param(required = false, nullable = false)]
    pub since: Option<String>,
    /// Seconds to wait for changes before an empty answer; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    pub wait: u64,
}

/// A caller that is one of our services, with its cursor and wait.
#[derive(Debug)]
pub struct Reader(SinceQuery);

impl Reader {
    /// Returns the response for a publication without scopes.
    ///
    /// # Errors
    /// A problem if this replica does not lead, or the database went back in time.
    pub async fn follow(
        &self,
        publisher: &Publisher,
        publication: &'static str,
    ) -> Result<Response, Problem> {
        respond(publisher, publication, "", &self.0, true).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        caller.require_service()?;
        let Query(since) = Query::from_request_parts(parts, state).await?;
        Ok(Self(since))
    }
}

/// Serves a reader from memory. `trusted` readers are services and agents.
///
/// # Errors
/// A problem if this replica does not lead, or the database went back in time.
pub async fn respond(
    publisher: &Publisher,
    publication: &'static str,
    scope: &str,
    query: &SinceQuery,
    trusted: bool,
) -> Result<Response, Problem> {
    let poll = Poll {
        publication,
        scope,
        cursor: query.since.as_deref(),
        wait: Duration::from_secs(query.wait),
        trusted,
    };
    let (delta, cursor) = publisher.updates(poll).await?;
    let body = to_json(&delta, &cursor.to_string());
    Ok((
        [(axum::http::header::CONTENT_TYPE, "application/json")],
        Body::from(body),
    )
        .into_response())
}

/// Joins stored bodies into a response without serializing them again.
fn to_json(delta: &Delta, cursor: &str) -> String {
    // The sizes are estimates with some room for punctuation, so that the text rarely grows.
    let size: usize = delta
        .changed
        .iter()
        .map(|(key, body)| key.len() + body.get().len() + 8)
        .sum();
    let mut text = String::with_capacity(size + 128);
    let json_string = |key: &str| serde_json::Value::from(key).to_string();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{{\"cursor\":\"{cursor}\",\"full\":{},\"changed\":{{",
        delta.full
    );
    for (index, (key, body)) in delta.changed.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}:{}", json_string(key), body.get());
    }
    text.push_str("},\"removed\":[");
    for (index, key) in delta.removed.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}", json_string(key));
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Update;

    #[test]
    fn a_joined_response_parses_as_an_update() {
        let raw = |text: &str| {
            serde_json::value::RawValue::from_string(text.to_owned())
                .unwrap()
                .into()
        };
        let delta = Delta {
            full: false,
            changed: vec![("a\"b".into(), raw("1")), ("c".into(), raw("2"))],
            removed: vec!["d".into(), "e".into()],
        };
        let update: Update<u32> = serde_json::from_str(&to_json(&delta, "x-1")).unwrap();
        assert_eq!(update.cursor, "x-1");
        assert_eq!(update.changed.get("a\"b"), Some(&1));
        assert_eq!(update.removed, ["d", "e"]);
    }
}
