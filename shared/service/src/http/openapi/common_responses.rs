//! Common responses of all routes. The server and the extractors send them, so routes do not
//! describe them again. A description of the route itself takes precedence.

use std::collections::BTreeMap;

use http::header::IF_MATCH;
use utoipa::openapi::content::Content;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Components, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::{MIN_REVISION, if_revision, query_parameters::CURSOR};
use crate::http::idempotency::HEADER;
use crate::problem::{CONTENT_TYPE, Problem};

/// Condition under which a route gives a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    /// The route requires a token.
    Secured,
    /// The route takes a body.
    Body,
    /// The route takes a body or parameters.
    Input,
    /// The route waits for a revision (A11).
    Revision,
    /// The route takes `If-Revision` (A10).
    Conditional,
    /// The route requires the version of its object (A5).
    Versioned,
    /// The route returns a list in pages (A6).
    Paged,
    /// The route takes an idempotency key (A4).
    Keyed,
}

struct CommonResponse {
    status: &'static str,
    name: &'static str,
    text: &'static str,
    condition: Condition,
    /// Header in addition to the request id, which every response has.
    header: Option<(&'static str, &'static str)>,
}

const RETRY_AFTER: (&str, &str) = ("Retry-After", "seconds to wait before trying again");

/// Common responses. If several have the same status, only the first one whose condition holds is
/// added.
const COMMON: [CommonResponse; 14] = [
    CommonResponse {
        status: "400",
        name: "NotUnderstood",
        text: "the path, the query, a header or the body cannot be understood",
        condition: Condition::Input,
        header: None,
    },
    CommonResponse {
        status: "401",
        name: "Unauthenticated",
        text: "no token, or none that is accepted",
        condition: Condition::Secured,
        header: Some(("WWW-Authenticate", "the scheme of tokens")),
    },
    CommonResponse {
        status: "403",
        name: "Forbidden",
        text: "the token is valid and does not allow this",
        condition: Condition::Secured,
        header: None,
    },
    CommonResponse {
        status: "408",
        name: "TooSlow",
        text: "the body did not arrive in time",
        condition: Condition::Body,
        header: None,
    },
    CommonResponse {
        status: "409",
        name: "NotReached",
        text: "the revision in `min_revision` was not reached within 5 seconds",
        condition: Condition::Revision,
        header: Some(RETRY_AFTER),
    },
    CommonResponse {
        status: "412",
        name: "Moved",
        text: "the revision in `If-Revision`, or the version in `If-Match`, is not the current \
            one: read the object again",
        condition: Condition::Conditional,
        header: None,
    },
    CommonResponse {
        status: "413",
        name: "TooLarge",
        text: "the body is larger than this route takes",
        condition: Condition::Body,
        header: None,
    },
    CommonResponse {
        status: "415",
        name: "NotJson",
        text: "the body is not of a media type this route takes",
        condition: Condition::Body,
        header: None,
    },
    CommonResponse {
        status: "422",
        name: "NoSuchPage",
        text: "an invalid value, or a `cursor` that belongs to another list or other filters; \
            `errors` has a pointer to each fault",
        condition: Condition::Paged,
        header: None,
    },
    CommonResponse {
        status: "422",
        name: "KeyUsed",
        text: "an invalid value, with a pointer to each fault in `errors`, or an \
            `Idempotency-Key` that was used before with another request",
        condition: Condition::Keyed,
        header: None,
    },
    CommonResponse {
        status: "422",
        name: "Invalid",
        text: "an invalid value; `errors` has a pointer to each fault",
        condition: Condition::Input,
        header: None,
    },
    CommonResponse {
        status: "428",
        name: "Unread",
        text: "no `If-Match`: read the object first, or send `*` where the route accepts it",
        condition: Condition::Versioned,
        header: None,
    },
    CommonResponse {
        status: "429",
        name: "TooMany",
        text: "more requests than this caller is allowed",
        condition: Condition::Always,
        header: Some(RETRY_AFTER),
    },
    CommonResponse {
        status: "503",
        name: "NotNow",
        text: "this replica does not lead or is too busy, or a dependency is unavailable",
        condition: Condition::Always,
        header: Some(RETRY_AFTER),
    },
];

const REQUEST_ID: &str = "RequestId";

/// Adds the common responses to every versioned route, and the request id to every response (A13).
pub(super) fn add(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    let id = text_header(
        "the id of the request, from the client or a new one; quote it when asking for help",
    );
    components
        .headers
        .insert(REQUEST_ID.to_owned(), RefOr::T(id));
    let mut used_responses = BTreeMap::new();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            if path.starts_with("/v1/") {
                add_common_responses(operation, &mut used_responses);
            }
            for response in operation.responses.responses.values_mut() {
                add_request_id(response);
            }
        }
    }
    components.responses.append(&mut used_responses);
    let mut schemas = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    components.schemas.extend(schemas);
}

fn add_common_responses(
    operation: &mut Operation,
    used_responses: &mut BTreeMap<String, RefOr<Response>>,
) {
    let has_body = operation.request_body.is_some();
    let has_input = has_body
        || operation
            .parameters
            .as_ref()
            .is_some_and(|all| !all.is_empty());
    for common in &COMMON {
        let holds = match common.condition {
            Condition::Always => true,
            Condition::Secured => operation.security.is_none(),
            Condition::Body => has_body,
            Condition::Input => has_input,
            Condition::Revision => has_parameter(operation, MIN_REVISION),
            Condition::Conditional => has_parameter(operation, if_revision::HEADER),
            Condition::Versioned => requires_parameter(operation, IF_MATCH.as_str()),
            Condition::Paged => has_parameter(operation, CURSOR),
            Condition::Keyed => has_parameter(operation, HEADER.as_str()),
        };
        let responses = &mut operation.responses.responses;
        if holds && !responses.contains_key(common.status) {
            let reference = Ref::from_response_name(common.name);
            responses.insert(common.status.to_owned(), RefOr::Ref(reference));
            used_responses
                .entry(common.name.to_owned())
                .or_insert_with(|| RefOr::T(response_for(common)));
        }
    }
}

pub(super) fn has_parameter(operation: &Operation, name: &str) -> bool {
    find_parameter(operation, name).is_some()
}

fn requires_parameter(operation: &Operation, name: &str) -> bool {
    find_parameter(operation, name).is_some_and(|parameter| parameter.required == Required::True)
}

fn find_parameter<'a>(operation: &'a Operation, name: &str) -> Option<&'a Parameter> {
    let mut parameters = operation.parameters.iter().flatten();
    parameters.find_map(|candidate| match candidate {
        RefOr::T(parameter) if parameter.name.eq_ignore_ascii_case(name) => Some(parameter),
        _ => None,
    })
}

/// Returns the response for a status that the route does not describe itself.
fn response_for(common: &CommonResponse) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    let mut response = ResponseBuilder::new()
        .description(common.text)
        .content(CONTENT_TYPE, content)
        .build();
    if let Some((name, text)) = common.header {
        let header = RefOr::T(text_header(text));
        response.headers.insert(name.to_owned(), header);
    }
    let mut response = RefOr::T(response);
    add_request_id(&mut response);
    match response {
        RefOr::T(response) => response,
        RefOr::Ref(_) => Response::new(common.text),
    }
}

fn add_request_id(response: &mut RefOr<Response>) {
    if let RefOr::T(response) = response {
        let id = Ref::new(format!("#/components/headers/{REQUEST_ID}"));
        response
            .headers
            .insert("X-Request-Id".to_owned(), RefOr::Ref(id));
    }
}

fn text_header(text: &str) -> Header {
    HeaderBuilder::new()
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// Returns the operations of a path, by all methods.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
        &mut item.head,
        &mut item.options,
        &mut item.trace,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
}
