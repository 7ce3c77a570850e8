//! Idempotency keys: types, comparison of requests, and a store in memory (A4).
//!
//! A service stores the response in the transaction of the effect. The store in memory is for
//! effects that do no harm when they happen twice.

pub mod in_memory;

use std::collections::{HashMap, VecDeque};

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderName, Method};
use sha2::{Digest as _, Sha256};

use crate::locks::Mutex;
use crate::problem::{Code, Problem};

/// Request header with the key.
pub const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// Header of a repeated response.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The required `Idempotency-Key` of a request: 1–128 visible characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// Parses a key.
    ///
    /// # Errors
    /// 400 if the text is empty, too long, or has invisible characters.
    pub fn new(text: &str) -> Result<Self, Problem> {
        if (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            let detail = "Idempotency-Key takes 1 to 128 visible ASCII characters";
            Err(Problem::new(Code::BadRequest, detail).at("/header/idempotency-key", detail))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the key from the headers.
    ///
    /// # Errors
    /// 400 if the header is missing or invalid.
    pub fn from_headers(headers: &http::HeaderMap) -> Result<Self, Problem> {
        let Some(value) = headers.get(HEADER) else {
            let detail = "this request needs an Idempotency-Key header";
            return Err(
                Problem::new(Code::BadRequest, detail).at("/header/idempotency-key", detail)
            );
        };
        Self::new(value.to_str().unwrap_or(""))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Self::from_headers(&parts.headers)
    }
}

pub type RequestDigest = [u8; 32];

/// Returns the digest that identifies a request. The lengths are included, so that different parts
/// cannot give the same bytes.
pub fn digest(method: &Method, path: &str, body: &[u8]) -> RequestDigest {
    let mut hash = Sha256::new();
    for part in [method.as_str().as_bytes(), path.as_bytes(), body] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Returns the digest of a parsed body. Bodies of equal meaning have an equal digest.
///
/// # Errors
/// If the body cannot be written as JSON.
pub fn digest_of<B: serde::Serialize>(
    method: &Method,
    path: &str,
    body: &B,
) -> Result<RequestDigest, Problem> {
    // The body is converted through `Value`, because its maps are ordered.
    let body = serde_json::to_value(body).map_err(Problem::internal)?;
    Ok(digest(method, path, body.to_string().as_bytes()))
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// Headers with location, version and revision of the object.
    pub headers: Vec<(HeaderName, http::HeaderValue)>,
    pub body: bytes::Bytes,
}

impl axum::response::IntoResponse for StoredResponse {
    /// Returns the first response again, with the header for a repetition (A4).
    fn into_response(self) -> axum::response::Response {
        let status = http::StatusCode::from_u16(self.status)
            .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.body).into_response();
        let headers = response.headers_mut();
        headers.extend(self.headers);
        headers.insert(REPLAYED, http::HeaderValue::from_static("true"));
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
        response
    }
}

/// State of a key that was used before (A4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlierRequest {
    /// The same request is done, with this response.
    Done(StoredResponse),
    /// Another request has used the key.
    Mismatch,
    /// The same request is in progress.
    Running,
}

impl EarlierRequest {
    /// Returns the response to repeat.
    ///
    /// # Errors
    /// 422 for a mismatch. 409 with a time to retry while the first request is in progress.
    pub fn into_response_to_repeat(self) -> Result<StoredResponse, Problem> {
        match self {
            Self::Done(response) => Ok(response),
            Self::Mismatch => Err(Problem::new(
                Code::IdempotencyMismatch,
                "this Idempotency-Key was used before with another request",
            )),
            Self::Running => {
                let detail = "the request with this Idempotency-Key is still under way";
                Err(Problem::new(Code::Conflict, detail).retry_after_ms(1000))
            }
        }
    }
}

/// Compares a request with an earlier one. Without a response, the earlier request is in progress.
pub fn compare(
    earlier: &RequestDigest,
    response: Option<StoredResponse>,
    request: &RequestDigest,
) -> EarlierRequest {
    match response {
        _ if earlier != request => EarlierRequest::Mismatch,
        Some(response) => EarlierRequest::Done(response),
        None => EarlierRequest::Running,
    }
}

/// A key with the principal that sent it.
type OwnedKey = (String, Key);

/// A bounded store of keys. The oldest keys are evicted first, but never keys in progress.
pub struct KeyStore {
    /// Maximum number of keys.
    limit: usize,
    state: Mutex<Entries>,
}

/// A request with a key.
struct KeyedRequest {
    digest: RequestDigest,
    /// The response. `None` while the request is in progress.
    response: Option<StoredResponse>,
}

#[derive(Default)]
struct Entries {
    entries: HashMap<OwnedKey, KeyedRequest>,
    /// Keys from oldest to newest.
    order: VecDeque<OwnedKey>,
}

impl KeyStore {
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            state: Mutex::default(),
        }
    }

    /// Reserves a key. Report the response with [`RunningRequest::complete`]. Dropping the guard
    /// frees the key.
    ///
    /// # Errors
    /// With the state of the key if it was used before.
    pub fn begin(
        &self,
        principal: &str,
        key: Key,
        digest: RequestDigest,
    ) -> Result<RunningRequest<'_>, EarlierRequest> {
        let owned_key = (principal.to_owned(), key);
        let mut state = self.state.lock();
        if let Some(earlier) = state.entries.get(&owned_key) {
            return Err(compare(&earlier.digest, earlier.response.clone(), &digest));
        }
        state.evict(self.limit);
        state.order.push_back(owned_key.clone());
        let request = KeyedRequest {
            digest,
            response: None,
        };
        state.entries.insert(owned_key.clone(), request);
        Ok(RunningRequest {
            store: self,
            owned_key: Some(owned_key),
        })
    }
}

impl Entries {
    /// Removes the oldest finished requests until there is space for one more.
    fn evict(&mut self, limit: usize) {
        // A key in progress moves to the back once, so the loop always ends.
        for _ in 0..self.order.len() {
            if self.entries.len() < limit {
                return;
            }
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            match self.entries.get(&oldest) {
                Some(request) if request.response.is_none() => self.order.push_back(oldest),
                _ => {
                    self.entries.remove(&oldest);
                }
            }
        }
    }
}

/// Guard of a key whose request is in progress.
pub struct RunningRequest<'a> {
    store: &'a KeyStore,
    owned_key: Option<OwnedKey>,
}

impl RunningRequest<'_> {
    pub fn complete(mut self, response: StoredResponse) {
        if let Some(owned_key) = self.owned_key.take()
            && let Some(request) = self.store.state.lock().entries.get_mut(&owned_key)
        {
            request.response = Some(response);
        }
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        if let Some(owned_key) = self.owned_key.take() {
            let mut state = self.store.state.lock();
            state.entries.remove(&owned_key);
            state.order.retain(|other| *other != owned_key);
        }
    }
}

#[cfg(test)]
mod interleaving_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn response(text: &'static str) -> StoredResponse {
        StoredResponse {
            status: 201,
            headers: Vec::new(),
            body: bytes::Bytes::from_static(text.as_bytes()),
        }
    }

    #[test]
    fn a_used_key_is_done_running_or_mismatched() {
        let store = KeyStore::new(10);
        let request = digest(&Method::POST, "/v1/jobs", b"{}");
        let running = store.begin("ann", key("k"), request).ok().unwrap();
        assert_eq!(
            store.begin("ann", key("k"), request).err(),
            Some(EarlierRequest::Running)
        );
        running.complete(response("first"));
        assert_eq!(
            store.begin("ann", key("k"), request).err(),
            Some(EarlierRequest::Done(response("first")))
        );
        let other = digest(&Method::POST, "/v1/jobs", b"{ }");
        assert_eq!(
            store.begin("ann", key("k"), other).err(),
            Some(EarlierRequest::Mismatch)
        );
        assert!(
            store.begin("bob", key("k"), other).is_ok(),
            "keys belong to their principal"
        );
    }

    #[test]
    fn a_failed_request_frees_its_key() {
        let store = KeyStore::new(10);
        drop(store.begin("ann", key("k"), [0; 32]));
        assert!(store.begin("ann", key("k"), [1; 32]).is_ok());
    }

    #[test]
    fn the_store_is_bounded_and_never_evicts_a_key_in_progress() {
        let store = KeyStore::new(3);
        let _running = store.begin("ann", key("runs"), [0; 32]).ok().unwrap();
        for number in 0..50 {
            let running = store
                .begin("ann", key(&format!("k{number}")), [0; 32])
                .ok()
                .unwrap();
            running.complete(response("x"));
            let state = store.state.lock();
            assert!(state.entries.len() <= 3 && state.order.len() == state.entries.len());
        }
        assert_eq!(
            store.begin("ann", key("runs"), [0; 32]).err(),
            Some(EarlierRequest::Running)
        );
    }

    #[test]
    fn different_parts_give_different_digests() {
        assert_ne!(
            digest(&Method::POST, "/a", b"b"),
            digest(&Method::POST, "/ab", b"")
        );
        assert_ne!(
            digest(&Method::POST, "/a", b""),
            digest(&Method::PUT, "/a", b"")
        );
    }

    #[test]
    fn keys_are_visible_and_short() {
        for bad in ["", "a b", "ä", &"x".repeat(129)] {
            assert_eq!(Key::new(bad).unwrap_err().status(), 400);
        }
        assert!(Key::new(&"x".repeat(128)).is_ok());
    }
}
