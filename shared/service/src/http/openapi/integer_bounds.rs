//! Adds the bounds of integer types to the description. A `u32` accepts at most 4294967295. Neither
//! a generator nor a reader of the document can guess that.

use utoipa::Number;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayItems, KnownFormat, Object, Schema, SchemaFormat,
};
use utoipa::openapi::{OpenApi, RefOr, Response};

use super::operations;

/// Adds bounds everywhere in the document.
pub(super) fn add(document: &mut OpenApi) {
    for schema in document
        .components
        .iter_mut()
        .flat_map(|it| it.schemas.values_mut())
    {
        visit(schema);
    }
    for item in document.paths.paths.values_mut() {
        operations(item).for_each(visit_operation);
    }
}

fn visit_operation(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            parameter.schema.iter_mut().for_each(visit);
        }
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.schema.iter_mut().for_each(visit);
            }
        }
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            visit_response(response);
        }
    }
}

fn visit_response(response: &mut Response) {
    for content in response.content.values_mut() {
        if let RefOr::T(content) = content {
            content.schema.iter_mut().for_each(visit);
        }
    }
    for header in response.headers.values_mut() {
        if let RefOr::T(header) = header {
            header.schema.iter_mut().for_each(visit);
        }
    }
}

fn visit(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else {
        return;
    };
    match schema {
        Schema::Object(object) => visit_object(object),
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                visit(items);
            }
        }
        Schema::OneOf(one) => one.items.iter_mut().for_each(visit),
        Schema::AllOf(all) => all.items.iter_mut().for_each(visit),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(visit),
        _ => {}
    }
}

fn visit_object(object: &mut Object) {
    if let Some((minimum, maximum)) = object.format.as_ref().and_then(bounds_of) {
        object.minimum.get_or_insert(minimum);
        object.maximum.get_or_insert(maximum);
    }
    object.properties.values_mut().for_each(visit);
    if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
        visit(values);
    }
}

/// Returns the smallest and the largest value of an integer format.
fn bounds_of(format: &SchemaFormat) -> Option<(Number, Number)> {
    macro_rules! range {
        (unsigned $kind:ty) => {
            Some((
                Number::UInt(0),
                Number::UInt(usize::try_from(<$kind>::MAX).ok()?),
            ))
        };
        (signed $kind:ty) => {
            Some((
                Number::Int(isize::try_from(<$kind>::MIN).ok()?),
                Number::Int(isize::try_from(<$kind>::MAX).ok()?),
            ))
        };
    }
    let SchemaFormat::KnownFormat(format) = format else {
        return None;
    };
    match format {
        KnownFormat::UInt8 => range!(unsigned u8),
        KnownFormat::UInt16 => range!(unsigned u16),
        KnownFormat::UInt32 => range!(unsigned u32),
        KnownFormat::UInt64 => range!(unsigned u64),
        KnownFormat::Int8 => range!(signed i8),
        KnownFormat::Int16 => range!(signed i16),
        KnownFormat::Int32 => range!(signed i32),
        KnownFormat::Int64 => range!(signed i64),
        _ => None,
    }
}
