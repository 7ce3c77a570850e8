//! OpenAPI descriptions of the responses that refuse a request: a status with a sentence. Each is
//! defined once and used by many routes.
//!
//! A service defines its own with [`refusals!`](crate::refusals).

use std::collections::BTreeMap;

use utoipa::openapi::content::Content;
use utoipa::openapi::{Ref, RefOr, Response, ResponseBuilder};

pub use utoipa::IntoResponses;

/// Responses of an operation, by status.
pub type ResponsesByStatus = BTreeMap<String, RefOr<Response>>;

/// Returns the description of a problem document with this status.
pub fn problem_response(status: u16, description: &str) -> ResponsesByStatus {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content)
        .build();
    BTreeMap::from([(status.to_string(), RefOr::T(response))])
}

/// Defines refusals, each as `Name = status, "sentence";`.
#[macro_export]
macro_rules! refusals {
    ($($name:ident = $status:literal, $description:literal;)+) => {$(
        #[doc = concat!($status, ": ", $description, ".")]
        #[derive(Debug)]
        pub struct $name;

        impl $crate::http::refusal_responses::IntoResponses for $name {
            fn responses() -> $crate::http::refusal_responses::ResponsesByStatus {
                $crate::http::refusal_responses::problem_response($status, $description)
            }
        }
    )+};
}

refusals! {
    NotOperator = 403, "not an operator";
    ServicesOnly = 403, "for services only";
    NotAService = 403, "not a service";
}
