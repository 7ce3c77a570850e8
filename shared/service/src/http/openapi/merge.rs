//! Merges alternatives that consist of parts into one object each. `serde` writes a tagged enum of
//! structs as one object, and generators handle one object better.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{AdditionalProperties, AllOf, Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};

type Schemas = BTreeMap<String, RefOr<Schema>>;

pub(super) fn alternatives(document: &mut OpenApi) {
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
                && let Some(object) = merged(all, &known)
            {
                *item = RefOr::T(Schema::Object(object));
            }
            if let RefOr::T(Schema::Object(object)) = item {
                close(object);
            }
        }
    }
}

/// Forbids other fields in an alternative that is identified by its only field. With two such
/// fields the object would be ambiguous, and `serde` refuses it.
fn close(object: &mut Object) {
    let named = object.properties.len() == 1 && object.required.len() == 1;
    // Other fields are allowed if the value of the field identifies the alternative.
    let word = |it: &RefOr<Schema>| match it {
        RefOr::T(Schema::Object(it)) => it.enum_values.is_some(),
        _ => false,
    };
    if named && !object.properties.values().any(word) {
        let none = AdditionalProperties::FreeForm(false);
        object.additional_properties.get_or_insert(Box::new(none));
    }
}

/// Returns one object with the properties of all parts. Returns `None` unless all parts are
/// objects.
fn merged(all: &AllOf, known: &Schemas) -> Option<Object> {
    let mut whole = Object::default();
    for part in &all.items {
        let part = object(part, known)?;
        whole.properties.extend(part.properties.clone());
        whole.required.extend(part.required.iter().cloned());
        if part.additional_properties.is_some() {
            whole
                .additional_properties
                .clone_from(&part.additional_properties);
        }
        if whole.description.is_none() {
            whole.description.clone_from(&part.description);
        }
    }
    whole.description = all.description.clone().or(whole.description);
    Some(whole)
}

fn object<'a>(part: &'a RefOr<Schema>, known: &'a Schemas) -> Option<&'a Object> {
    match part {
        RefOr::T(Schema::Object(object)) => Some(object),
        RefOr::T(_) => None,
        RefOr::Ref(named) => {
            let name = named.ref_location.rsplit('/').next()?;
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

    fn closed(field: ObjectBuilder) -> bool {
        let mut object = ObjectBuilder::new()
            .property("field", field)
            .required("field")
            .build();
        close(&mut object);
        object.additional_properties.is_some()
    }

    #[test]
    fn an_alternative_identified_by_its_field_allows_no_other_field() {
        assert!(closed(ObjectBuilder::new().schema_type(Type::Integer)));
        let tag = ObjectBuilder::new().enum_values(Some(["IMMEDIATE"]));
        assert!(!closed(tag));
    }
}
