//! Narrows query parameters whose type allows too much. A cursor gets a pattern, although it is
//! opaque (A6). A filter excludes the unknown value of an open enumeration.

use std::collections::BTreeMap;

use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::{Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};

use super::operations;
use crate::http::pagination::cursor;

type Schemas = BTreeMap<String, RefOr<Schema>>;

pub(super) const CURSOR: &str = "cursor";
const UNKNOWN_VALUE: &str = "unknown";

pub(super) fn add(document: &mut OpenApi) {
    let components = document.components.as_ref();
    let known = components.map(|it| it.schemas.clone()).unwrap_or_default();
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            for parameter in query_parameters_of(operation) {
                narrow(parameter, &known);
            }
        }
    }
}

fn query_parameters_of(operation: &mut Operation) -> impl Iterator<Item = &mut Parameter> {
    let parameters = operation.parameters.iter_mut().flatten();
    parameters.filter_map(|candidate| match candidate {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter),
        _ => None,
    })
}

fn narrow(parameter: &mut Parameter, known: &Schemas) {
    let is_cursor = parameter.name == CURSOR;
    let Some(mut object) = parameter
        .schema
        .as_ref()
        .and_then(|it| resolve_object(it, known))
    else {
        return;
    };
    if is_cursor {
        // A list with other cursors describes their pattern itself.
        let default_pattern = || cursor::PATTERN.to_owned();
        object.pattern.get_or_insert_with(default_pattern);
    } else if !remove_unknown(&mut object) {
        return;
    }
    parameter.schema = Some(RefOr::T(Schema::Object(object)));
}

fn resolve_object(schema: &RefOr<Schema>, known: &Schemas) -> Option<Object> {
    match schema {
        RefOr::T(Schema::Object(object)) => Some(object.clone()),
        RefOr::T(_) => None,
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next()?;
            known.get(name).and_then(|it| resolve_object(it, known))
        }
    }
}

/// Removes the unknown value. Returns whether it was there.
fn remove_unknown(object: &mut Object) -> bool {
    let Some(values) = &mut object.enum_values else {
        return false;
    };
    let before = values.len();
    values.retain(|value| {
        !value
            .as_str()
            .is_some_and(|it| it.eq_ignore_ascii_case(UNKNOWN_VALUE))
    });
    values.len() < before
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{Ref, path::ParameterBuilder};

    use super::*;

    fn narrowed_schema(name: &str, schema: impl Into<RefOr<Schema>>) -> serde_json::Value {
        let states = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(["waiting", "UNKNOWN"]));
        let known = Schemas::from([("State".to_owned(), RefOr::T(states.into()))]);
        let mut parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .schema(Some(schema))
            .build();
        narrow(&mut parameter, &known);
        serde_json::to_value(parameter.schema).unwrap()
    }

    fn text_schema() -> ObjectBuilder {
        ObjectBuilder::new().schema_type(Type::String)
    }

    /// A client cannot filter by the unknown value (A1).
    #[test]
    fn the_unknown_value_is_not_offered_as_a_filter() {
        let state = narrowed_schema("state", Ref::from_schema_name("State"));
        assert_eq!(state["enum"], json!(["waiting"]));
        let other = narrowed_schema("node", Ref::from_schema_name("NodeName"));
        assert_eq!(other, json!({ "$ref": "#/components/schemas/NodeName" }));
    }

    /// A route with other cursors keeps its own pattern (A6).
    #[test]
    fn a_cursor_has_the_pattern_of_issued_cursors() {
        let standard = narrowed_schema(CURSOR, Schema::Object(text_schema().build()));
        assert_eq!(standard["pattern"], cursor::PATTERN);
        let own = narrowed_schema(
            CURSOR,
            Schema::Object(text_schema().pattern(Some("^[0-9]+$")).build()),
        );
        assert_eq!(own["pattern"], "^[0-9]+$");
    }
}
