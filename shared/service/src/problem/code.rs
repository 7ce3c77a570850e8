//! The closed list of codes. Each has a status, a title, and whether a retry may help.

use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! codes {
    ($( $(#[$doc:meta])* $name:ident = $wire:literal, $status:ident, $title:literal;)*) => {
        /// Why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $( $(#[$doc])* $name, )*
            /// A code of a newer version than ours; the status is still valid.
            #[serde(other)]
            Unknown,
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $wire,)*
                    Self::Unknown => "unknown",
                }
            }
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                    Self::Unknown => "Unknown",
                }
            }
            pub fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                    Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
                }
            }
        }
    };
}

codes! {
    /// The request line, a header, a path or a query cannot be understood.
    BadRequest = "bad_request", BAD_REQUEST, "Bad request";
    /// The body is not JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, "Malformed JSON";
    /// There is no token, or none that we accept.
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "Unauthenticated";
    /// The token is valid and does not allow this.
    Forbidden = "forbidden", FORBIDDEN, "Forbidden";
    /// The object does not exist, or the caller may not see it (S7).
    NotFound = "not_found", NOT_FOUND, "Not found";
    /// The route exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "Method not allowed";
    /// The client did not send its request in time.
    Timeout = "timeout", REQUEST_TIMEOUT, "Too slow";
    /// The state of the object does not allow this now.
    Conflict = "conflict", CONFLICT, "Conflict";
    /// A newer owner of the worker pool has connected.
    StaleEpoch = "stale_epoch", CONFLICT, "Stale epoch";
    /// The owner of the worker pool must connect first, or again.
    NotConnected = "not_connected", CONFLICT, "Not connected";
    /// The owner of the worker pool has connected again, so this connection is outdated.
    StaleConnection = "stale_connection", CONFLICT, "Stale connection";
    /// The blocklist is switched off by its setting.
    BlocklistDisabled = "blocklist_disabled", CONFLICT, "Blocklist disabled";
    /// The object or position existed and will not come back.
    Gone = "gone", GONE, "Gone";
    /// `If-Match` names an older state (A5).
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, "Changed meanwhile";
    /// `If-Revision` names another revision than the current one (A10).
    RevisionMoved = "revision_moved", PRECONDITION_FAILED, "Revision moved";
    /// The body is larger than this route takes.
    PayloadTooLarge = "payload_too_large", PAYLOAD_TOO_LARGE, "Payload too large";
    /// The body is not of a media type this route takes.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE,
        "Unsupported media type";
    /// The request is well-formed, but a value is invalid or not supported.
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "Invalid";
    /// The work does not fit any node of the pool, even an empty one.
    CanNeverFit = "can_never_fit", UNPROCESSABLE_ENTITY, "Can never fit";
    /// The key was used before with another request (A4).
    IdempotencyMismatch = "idempotency_mismatch", UNPROCESSABLE_ENTITY, "Key used before";
    /// `If-Match` is missing (A5).
    PreconditionRequired = "precondition_required", PRECONDITION_REQUIRED, "If-Match required";
    /// More requests than this caller is allowed.
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS, "Too many requests";
    /// An internal error; the log of the service has the cause.
    Internal = "internal", INTERNAL_SERVER_ERROR, "Internal error";
    /// A dependency of this service is unavailable, or the service is too busy.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Unavailable";
    /// The database has an older state than a reader has seen. Writes are refused until an operator
    /// decides; reads continue (R9).
    WentBack = "went_back", SERVICE_UNAVAILABLE, "Read only";
    /// This replica does not lead.
    Standby = "standby", SERVICE_UNAVAILABLE, "On standby";
}

impl Code {
    /// Returns whether the same request may succeed later.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::TooManyRequests
                | Self::Unavailable
                | Self::Standby
                | Self::WentBack
                | Self::Internal
        )
    }

    /// Returns the time to wait before a retry, for the codes that need a `Retry-After` (A9).
    pub(super) fn retry_after_ms(self) -> Option<u64> {
        matches!(
            self,
            Self::TooManyRequests | Self::Unavailable | Self::Standby | Self::WentBack
        )
        .then_some(1000)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
