//! Merges the parts (`allOf`) of an alternative of an enum into one object. `serde` writes a tagged
//! enum of structs as one object, and generators handle one object better.
//!
//! An alternative that is identified by its only field also forbids other fields.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{AdditionalProperties, AllOf, Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};

type Schemas = BTreeMap<String, RefOr<Schema>>;

pub(super) fn apply(document: &mut OpenApi) {
    let Some(components) = &mut document.components else {
        return;
    };
    let known = components.schemas.clone();
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::OneOf(one)) = schema else {
            continue;
        };
        for item in &mut one.items {
            if let RefOr::T(Schema::AllOf(all)) = item
                && let Some(object) = merge(all, &known)
            {
                *item = RefOr::T(Schema::Object(object));
            }
            if let RefOr::T(Schema::Object(object)) = item {
                forbid_other_fields(object);
            }
        }
    }
}

/// Forbids other fields in an alternative that is identified by its only field. With two such
/// fields the object would be ambiguous, and `serde` refuses it.
fn forbid_other_fields(object: &mut Object) {
    let has_one_field = object.properties.len() == 1 && object.required.len() == 1;
    // Other fields are allowed if the value of the field identifies the alternative.
    let is_enum = |it: &RefOr<Schema>| match it {
        RefOr::T(Schema::Object(it)) => it.enum_values.is_some(),
        _ => false,
    };
    if has_one_field && !object.properties.values().any(is_enum) {
        let none = AdditionalProperties::FreeForm(false);
        object.additional_properties.get_or_insert(Box::new(none));
    }
}

/// Returns one object with the properties of all parts. Returns `None` unless all parts are
/// objects.
fn merge(all: &AllOf, known: &Schemas) -> Option<Object> {
    let mut merged_object = Object::default();
    for part in &all.items {
        let part = resolve_object(part, known)?;
        merged_object.properties.extend(part.properties.clone());
        merged_object.required.extend(part.required.iter().cloned());
        if part.additional_properties.is_some() {
            merged_object
                .additional_properties
                .clone_from(&part.additional_properties);
        }
        if merged_object.description.is_none() {
            merged_object.description.clone_from(&part.description);
        }
    }
    merged_object.description = all.description.clone().or(merged_object.description);
    Some(merged_object)
}

fn resolve_object<'a>(part: &'a RefOr<Schema>, known: &'a Schemas) -> Option<&'a Object> {
    match part {
        RefOr::T(Schema::Object(object)) => Some(object),
        RefOr::T(_) => None,
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next()?;
            match known.get(name)? {
                RefOr::T(Schema::Object(object)) => Some(object),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use utoipa::openapi::schema::{ObjectBuilder, Type};

    use super::*;

    fn forbids_other_fields(field: ObjectBuilder) -> bool {
        let mut object = ObjectBuilder::new()
            .property("field", field)
            .required("field")
            .build();
        forbid_other_fields(&mut object);
        object.additional_properties.is_some()
    }

    #[test]
    fn an_alternative_identified_by_its_field_allows_no_other_field() {
        assert!(forbids_other_fields(
            ObjectBuilder::new().schema_type(Type::Integer)
        ));
        let tag = ObjectBuilder::new().enum_values(Some(["IMMEDIATE"]));
        assert!(!forbids_other_fields(tag));
    }
}
