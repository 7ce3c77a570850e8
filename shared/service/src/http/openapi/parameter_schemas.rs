//! Corrects the schemas of parameters: `null` is not a value of a parameter, and idempotency keys
//! and versions have a pattern.

use http::header::IF_MATCH;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr};

use super::operations;
use crate::http::idempotency::HEADER;

/// Corrects all parameters of the document.
pub(super) fn correct(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        operations(item).for_each(correct_parameters);
    }
}

fn correct_parameters(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            parameter.schema.iter_mut().for_each(remove_null);
            if parameter.name.eq_ignore_ascii_case(HEADER.as_str()) {
                parameter.schema = Some(RefOr::T(Schema::Object(key_schema())));
            }
            if parameter.name.eq_ignore_ascii_case(IF_MATCH.as_str()) {
                parameter.schema.iter_mut().for_each(set_version_pattern);
            }
        }
    }
}

/// Removes `null` from the type of a parameter. A header or query has no value for `null`: the
/// parameter is present or absent.
fn remove_null(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else {
        return;
    };
    if let SchemaType::Array(types) = &mut object.schema_type {
        types.retain(|kind| *kind != Type::Null);
        if let [only] = types.as_slice() {
            object.schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// Sets the pattern of an `ETag`. Our versions are numbers unless the route states otherwise (A5).
fn set_version_pattern(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(object)) = schema {
        let default_pattern = || r#"^(\*|"?[0-9]{1,18}"?)$"#.to_owned();
        object.pattern.get_or_insert_with(default_pattern);
    }
}

/// Returns the schema of [`crate::http::idempotency::Key`].
fn key_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(128))
        .pattern(Some("^[!-~]+$"))
        .build()
}
