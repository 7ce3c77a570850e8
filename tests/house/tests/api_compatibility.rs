//! Tests of the comparison of API documents: it finds the changes that break a client, and no
//! others (A1).

use hayward_tests_house::api_compatibility::{breaking_changes, promises};
use serde_json::{Value, json};

/// Returns a document with one route that takes an order and answers with one.
fn document() -> Value {
    json!({
        "paths": { "/v1/orders": { "post": {
            "parameters": [
                { "in": "query", "name": "limit", "schema": { "type": "integer", "maximum": 10 } }
            ],
            "requestBody": { "content": { "application/json": {
                "schema": { "$ref": "#/components/schemas/Order" } } } },
            "responses": {
                "201": { "description": "made", "headers": { "Location": {} },
                    "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/Made" } } } },
                "422": { "description": "refused" }
            }
        } } },
        "components": { "schemas": {
            "Order": { "type": "object", "required": ["size"], "properties": {
                "size": { "type": "integer", "format": "int64", "minimum": 0 },
                "colour": { "type": "string", "enum": ["red", "blue"] },
                "above": { "oneOf": [
                    { "$ref": "#/components/schemas/Order" }, { "type": "null" }] },
                "what": { "oneOf": [
                    { "type": "object", "properties": { "kind": { "enum": ["a"] } } },
                    { "type": "object", "properties": { "kind": { "enum": ["b"] } } }] },
                "description": { "type": "string", "description": "in words" }
            } },
            "Made": { "type": "object", "required": ["id", "state"], "properties": {
                "id": { "type": "string" },
                "state": { "type": "string", "enum": ["new"] },
                "note": { "type": ["string", "null"] }
            } }
        } }
    })
}

/// Returns the breaks that are found when the value at this place is replaced.
fn breaks_after_change(pointer: &str, value: Value) -> Vec<String> {
    let mut now = document();
    *now.pointer_mut(pointer).expect("it is there") = value;
    breaking_changes(&document(), &now)
}

const ORDER: &str = "/components/schemas/Order";
const MADE: &str = "/components/schemas/Made";
const POST: &str = "/paths/~1v1~1orders/post";

#[test]
fn an_unchanged_document_breaks_nothing() {
    assert_eq!(breaking_changes(&document(), &document()), [""; 0]);
}

#[test]
fn additions_break_nothing() {
    let size = json!({ "type": "integer", "format": "int64" });
    for (pointer, value) in [
        ("/paths/~1v1~1new", json!({ "get": { "responses": {} } })),
        (
            &format!("{ORDER}/properties/new"),
            json!({ "type": "string" }),
        ),
        (
            &format!("{MADE}/properties/new"),
            json!({ "type": "string" }),
        ),
        (&format!("{ORDER}/properties/size"), size),
        (&format!("{ORDER}/required"), json!([])),
        (
            &format!("{ORDER}/properties/colour/enum"),
            json!(["red", "blue", "green"]),
        ),
        (
            &format!("{MADE}/properties/state/enum"),
            json!(["new", "old"]),
        ),
        (&format!("{MADE}/required"), json!(["id", "state", "note"])),
        (&format!("{MADE}/properties/note/type"), json!("string")),
        (&format!("{POST}/parameters/0/schema/maximum"), json!(100)),
        (
            &format!("{POST}/responses/429"),
            json!({ "description": "too many" }),
        ),
    ] {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let mut now = document();
        let parent = now.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(name.replace("~1", "/"), value);
        assert_eq!(breaking_changes(&document(), &now), [""; 0], "{pointer}");
    }
}

#[test]
fn removals_are_reported() {
    for (pointer, name, expected) in [
        ("/paths", "/v1/orders", "POST /v1/orders is gone"),
        (
            POST,
            "requestBody",
            "POST /v1/orders: takes no body any more",
        ),
        (
            POST,
            "parameters",
            "POST /v1/orders query limit: is not taken any more",
        ),
        (
            "/paths/~1v1~1orders/post/responses",
            "201",
            "POST /v1/orders: no longer answers 201",
        ),
        (
            "/paths/~1v1~1orders/post/responses/201/headers",
            "Location",
            "POST /v1/orders 201: has no header Location any more",
        ),
        (
            "/components/schemas/Order/properties",
            "colour",
            "in Order: has no colour any more",
        ),
        (
            "/components/schemas/Made/properties",
            "note",
            "out Made: has no note any more",
        ),
    ] {
        let mut now = document();
        let parent = now.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        parent.remove(name).unwrap();
        assert_eq!(breaking_changes(&document(), &now), [expected]);
    }
}

#[test]
fn new_requirements_and_absences_are_reported() {
    for (pointer, value, expected) in [
        (
            format!("{ORDER}/required"),
            json!(["size", "colour"]),
            "in Order: colour is required now",
        ),
        (
            format!("{MADE}/required"),
            json!(["id"]),
            "out Made: state may be absent now",
        ),
        (
            format!("{ORDER}/properties/colour/enum"),
            json!(["red"]),
            "in Order/colour: does not take \"blue\" any more",
        ),
        (
            format!("{ORDER}/properties/what/oneOf"),
            json!([
                { "type": "object", "properties": { "kind": { "enum": ["a"] } } },
                { "type": "object", "properties": { "kind": { "enum": ["c"] } } }]),
            "in Order/what: does not take kind=\"b\" any more",
        ),
        (
            format!("{ORDER}/properties/size/minimum"),
            json!(1),
            "in Order/size: minimum was 0, is 1",
        ),
        (
            format!("{POST}/parameters/0"),
            json!({ "in": "query", "name": "limit", "required": true,
                "schema": { "type": "integer" } }),
            "POST /v1/orders query limit: is required now",
        ),
        (
            format!("{POST}/parameters"),
            json!([document()["paths"]["/v1/orders"]["post"]["parameters"][0],
                { "in": "header", "name": "Key", "required": true }]),
            "POST /v1/orders: requires header Key now",
        ),
    ] {
        assert_eq!(breaks_after_change(&pointer, value), [expected]);
    }
}

#[test]
fn changed_types_are_reported() {
    let text = json!({ "type": "string" });
    for pointer in [
        format!("{ORDER}/properties/size"),
        format!("{ORDER}/properties/above"),
        format!("{POST}/parameters/0/schema"),
    ] {
        assert_eq!(
            breaks_after_change(&pointer, text.clone()).len(),
            1,
            "{pointer}"
        );
    }
    let nullable = json!({ "type": ["string", "null"] });
    let found = breaks_after_change(&format!("{MADE}/properties/id"), nullable);
    assert!(found[0].starts_with("out Made/id: was"), "{found:?}");
}

#[test]
fn promises_are_the_document_without_descriptions() {
    let reduced: Value = serde_json::from_str(&promises(&document())).unwrap();
    assert_eq!(breaking_changes(&reduced, &document()), [""; 0]);
    assert_eq!(breaking_changes(&document(), &reduced), [""; 0]);
    let order = &reduced["components"]["schemas"]["Order"]["properties"];
    assert_eq!(order["description"], json!({ "type": "string" }));
    let responses = reduced["paths"]["/v1/orders"]["post"]["responses"].as_object();
    assert_eq!(responses.unwrap().len(), 1);
}
