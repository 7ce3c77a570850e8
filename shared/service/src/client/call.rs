//! One call: built step by step, then sent to one address after another.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayward_vocabulary::Timestamp;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, IF_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, ClientError, DEFAULT_TIMEOUT};
use crate::http::request_context::{REQUEST_ID, current_id};
use crate::metrics::catalogue::{
    ERROR_TYPE, HTTP_CLIENT_DURATION, IS_LONG_POLL, METHOD, PORT, SERVER, STATUS,
};
use crate::problem::{Code, Problem};
use crate::runtime::clock::fresh_uuid;
use crate::trace::inject_current;

/// Time for which a call retries after 503. A new leader is elected within that time.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A request that is not sent yet.
#[must_use = "a call does nothing until it is sent"]
pub struct Call {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Option<Bytes>,
    timeout: Duration,
    /// Whether the request may be sent more than once.
    is_idempotent: bool,
    /// The first error of the builder. It is reported when the call is sent.
    invalid: Option<anyhow::Error>,
}

/// A response with status and headers.
#[derive(Debug)]
pub struct Response<T> {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: T,
}

impl<T> Response<T> {
    /// Returns the time of the response by the clock of the service, in whole seconds. It is for
    /// display only (R4).
    pub fn date(&self) -> Option<Timestamp> {
        parse_http_date(self.headers.get(DATE)?.to_str().ok()?)
    }
}

/// Parses a date such as `Sun, 22 Nov 2026 11:25:00 GMT`.
fn parse_http_date(date: &str) -> Option<Timestamp> {
    let parsed = chrono::DateTime::parse_from_rfc2822(date).ok()?;
    Some(Timestamp::from_unix_ms(parsed.timestamp_millis()))
}

impl Call {
    pub(super) fn new(client: Client, method: Method, path: String) -> Self {
        let is_idempotent = method.is_idempotent();
        Self {
            client,
            method,
            path,
            headers: HeaderMap::new(),
            body: None,
            timeout: DEFAULT_TIMEOUT,
            is_idempotent,
            invalid: None,
        }
    }

    pub fn body<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        match serde_json::to_vec(body) {
            Ok(bytes) => self.body = Some(bytes.into()),
            Err(error) => self.invalid = Some(error.into()),
        }
        self.header(CONTENT_TYPE, "application/json")
    }

    /// Adds one parameter to the query, escaped.
    pub fn query(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.path
            .push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(&escape(name));
        self.path.push('=');
        self.path.push_str(&escape(&value.to_string()));
        self
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => {
                self.headers.insert(name, value);
            }
            Err(error) => self.invalid = Some(error.into()),
        }
        self
    }

    /// Sets `If-Match: *`, which allows a change of any version (A5).
    pub fn if_match_any(self) -> Self {
        self.header(IF_MATCH, "*")
    }

    /// Allows sending the request more than once (A4).
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.is_idempotent = true;
        self.header(crate::http::idempotency::HEADER, key)
    }

    /// Sets the timeout. For a long poll it is the wait plus some slack.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub async fn send<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        self.send_for_response().await.map(|response| response.body)
    }

    /// Sends the request like [`Call::send`], and returns the whole response.
    pub async fn send_for_response<T: DeserializeOwned>(
        mut self,
    ) -> Result<Response<T>, ClientError> {
        if let Some(error) = self.invalid.take() {
            return Err(ClientError::InvalidRequest(error));
        }
        self.add_default_headers();
        let addresses = self.client.0.urls.len();
        let mut attempts = 0;
        let retry_until = Instant::now() + UNAVAILABLE_RETRY;
        loop {
            attempts += 1;
            let index = self.client.current_index();
            let started = Instant::now();
            let attempt = self.attempt(index).await;
            self.record_metrics(index, started, &attempt);
            match attempt {
                Ok(response) => return decode(response),
                Err(error) => {
                    let decision = self.decide_retry(&error);
                    if decision.leaves_address {
                        self.client.advance_from(index);
                    }
                    if !decision.sends_again {
                        return Err(error);
                    }
                    if attempts >= addresses {
                        // A service without a leader responds with 503. It will have a leader soon.
                        let has_response = matches!(error, ClientError::Problem(_));
                        if !has_response || Instant::now() >= retry_until {
                            return Err(error);
                        }
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                    tracing::debug!(
                        error = format!("{:#}", anyhow::Error::new(error)),
                        "next address"
                    );
                }
            }
        }
    }

    /// Decides what to do after a failed attempt.
    fn decide_retry(&self, error: &ClientError) -> RetryDecision {
        match error {
            // A request with response 503 was not executed.
            ClientError::Problem(problem) => {
                let is_unavailable = problem.status() == StatusCode::SERVICE_UNAVAILABLE;
                RetryDecision {
                    leaves_address: is_unavailable,
                    sends_again: is_unavailable,
                }
            }
            ClientError::Unreachable { source, .. } => RetryDecision {
                leaves_address: true,
                sends_again: source.is_connect() || self.is_idempotent,
            },
            ClientError::Unreadable { .. } | ClientError::InvalidRequest(_) => RetryDecision {
                leaves_address: false,
                sends_again: false,
            },
        }
    }

    /// Records the duration of an attempt. The path is not a label, because it contains ids (T3).
    fn record_metrics(
        &self,
        index: usize,
        started: Instant,
        attempt: &Result<RawResponse, ClientError>,
    ) {
        let urls = &self.client.0.urls;
        let url = &urls[index % urls.len()];
        let is_long_poll = self.path.contains("wait=") && !self.path.contains("wait=0");
        let host = url.host_str().unwrap_or_default().to_owned();
        let outcome = match attempt {
            Ok(raw) => STATUS.with(i64::from(raw.status.as_u16())),
            Err(ClientError::Problem(problem)) => STATUS.with(i64::from(problem.status().as_u16())),
            Err(ClientError::Unreachable { source, .. }) if source.is_timeout() => {
                ERROR_TYPE.with("timeout")
            }
            Err(ClientError::Unreachable { source, .. }) if source.is_connect() => {
                ERROR_TYPE.with("connect")
            }
            Err(ClientError::Unreadable { .. }) => ERROR_TYPE.with("unreadable"),
            Err(_) => ERROR_TYPE.with("broken"),
        };
        let attributes = [
            METHOD.with(self.method.as_str().to_owned()),
            SERVER.with(host),
            PORT.with(i64::from(url.port_or_known_default().unwrap_or(0))),
            IS_LONG_POLL.with(if is_long_poll { "true" } else { "false" }),
            outcome,
        ];
        HTTP_CLIENT_DURATION.record_duration(started.elapsed(), &attributes);
    }

    fn add_default_headers(&mut self) {
        inject_current(&mut self.headers);
        let id = current_id().unwrap_or_else(|| fresh_uuid().simple().to_string());
        if let Ok(value) = HeaderValue::from_str(&id) {
            self.headers.entry(REQUEST_ID).or_insert(value);
        }
        // Every `POST` has a key (A4).
        if self.method == Method::POST
            && let Ok(key) = HeaderValue::from_str(&fresh_uuid().simple().to_string())
        {
            self.headers
                .entry(crate::http::idempotency::HEADER)
                .or_insert(key);
        }
    }

    async fn attempt(&self, index: usize) -> Result<RawResponse, ClientError> {
        let shared = &self.client.0;
        let base = &shared.urls[index % shared.urls.len()];
        let url = base
            .join(self.path.trim_start_matches('/'))
            .map_err(|error| ClientError::InvalidRequest(error.into()))?;
        let request_line = format!("{} {url}", self.method);
        let mut request = shared
            .http
            .client()
            .request(self.method.clone(), url)
            .headers(self.headers.clone())
            .timeout(self.timeout);
        if let Some(token) = shared
            .token
            .current()
            .map_err(ClientError::InvalidRequest)?
        {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let unreachable = |source: reqwest::Error| ClientError::Unreachable {
            url: request_line.clone(),
            source: source.without_url(),
        };
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let body = response.bytes().await.map_err(unreachable)?;
        if status.is_success() {
            Ok(RawResponse {
                request_line,
                status,
                headers,
                body,
            })
        } else {
            Err(ClientError::Problem(problem_from(status, &body)))
        }
    }
}

/// Decision after a failed attempt.
struct RetryDecision {
    /// Whether the next call uses the next address.
    leaves_address: bool,
    /// Whether this call sends its request again.
    sends_again: bool,
}

/// A successful response whose body is not parsed yet.
struct RawResponse {
    request_line: String,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

fn decode<T: DeserializeOwned>(raw: RawResponse) -> Result<Response<T>, ClientError> {
    // An empty body is read as `null`, for the type `()`.
    let text = if raw.body.is_empty() {
        &b"null"[..]
    } else {
        &raw.body
    };
    let body = serde_json::from_slice(text).map_err(|source| ClientError::Unreadable {
        url: raw.request_line,
        source,
    })?;
    Ok(Response {
        status: raw.status,
        headers: raw.headers,
        body,
    })
}

/// Returns the problem document of a response. If a proxy responded, creates one from the status.
fn problem_from(status: StatusCode, body: &[u8]) -> Problem {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) if problem.code != Code::Unknown => problem,
        parsed => {
            let code = code_of(status);
            let detail = match parsed {
                Ok(problem) if !problem.detail.is_empty() => String::from(problem.detail),
                _ => format!("answered {status} without a problem document"),
            };
            Problem::new(code, detail)
        }
    }
}

fn code_of(status: StatusCode) -> Code {
    let exact = Code::ALL
        .iter()
        .copied()
        .find(|code| code.status() == status);
    exact.unwrap_or(match status.as_u16() {
        502 | 504 => Code::Unavailable,
        400..=499 => Code::BadRequest,
        _ => Code::Internal,
    })
}

/// Percent-encodes all characters that a query part cannot contain.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_date_is_parsed_and_an_invalid_one_is_none() {
        let parsed = parse_http_date("Thu, 01 Jan 1970 00:01:00 GMT");
        assert_eq!(parsed, Some(Timestamp::from_unix_ms(60_000)));
        assert_eq!(parse_http_date("yesterday"), None);
        assert_eq!(parse_http_date(""), None);
    }
}
