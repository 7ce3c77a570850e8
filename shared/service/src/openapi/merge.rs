//! Alternatives that consist of parts become one object each: what `serde` writes for a tagged enum
//! of structs is one object on the wire, and generators understand it better as one.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{AllOf, Object, Schema};
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
        }
    }
}

/// One object with the properties of all parts, if all of them are objects.
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
