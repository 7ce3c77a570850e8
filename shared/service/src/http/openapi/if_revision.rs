//! Describes `If-Revision`, a header of every change by a client. The committer checks the header,
//! so routes do not describe it. This module also adds the revision to the response (A10).

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{OpenApi, RefOr, Required};

use crate::http::authorization::SCOPES;

pub(super) const HEADER: &str = "If-Revision";

/// Operations that are sent like a change and commit nothing.
const NOT_COMMITTED: [&str; 2] = ["forecast_changes", "renew_orchestrator_credentials"];

/// Scopes that order changes. The other scopes report facts, which are valid at any revision.
const COMMANDING_SCOPES: [&str; 4] = ["operator", "submitter", "owner", "orchestrator"];

pub(super) fn add(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let changes = [&mut item.put, &mut item.post, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            if is_command(operation) {
                let parameters = operation.parameters.get_or_insert_default();
                parameters.push(RefOr::T(if_revision_parameter()));
                add_revision_header(operation);
            }
        }
    }
}

/// Adds the revision that a client waits for to read its own write (A11).
fn add_revision_header(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let (true, RefOr::T(response)) = (status.starts_with('2'), response) {
            let revision = HeaderBuilder::new()
                .description(Some("revision of this write"))
                .schema(Some(revision_schema()))
                .build();
            let headers = response.headers.entry("Hayward-Revision".to_owned());
            headers.or_insert(RefOr::T(revision));
        }
    }
}

fn revision_schema() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0))
}

fn is_command(operation: &Operation) -> bool {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let scopes = operation.extensions.as_ref().and_then(|it| it.get(SCOPES));
    let mut scopes = scopes.and_then(|it| it.as_array()).into_iter().flatten();
    let is_commanding = |scope: &str| {
        let kind = scope.split(':').next().unwrap_or_default();
        COMMANDING_SCOPES.contains(&kind)
    };
    !NOT_COMMITTED.contains(&id) && scopes.any(|scope| scope.as_str().is_some_and(is_commanding))
}

fn if_revision_parameter() -> Parameter {
    ParameterBuilder::new()
        .name(HEADER)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "makes the change only if the service is still at this revision, which a dry run or a \
             list has returned",
        ))
        .schema(Some(revision_schema()))
        .build()
}
