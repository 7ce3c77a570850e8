//! No field that a user writes makes a service call an address. Every field of an API that looks
//! like an address is listed here with its use (S22).

use std::path::Path;

use hayward_tests_house::{assert_none, read};
use serde_json::Value;

/// Fields that look like an address, as document, schema and field.
const KNOWN_FIELDS: [&str; 9] = [
    // The policy of the operator sets the URL. Redirects are not followed, and answers are checked.
    "rm-scheduler PoolPlanner url",
    "rm-scheduler OutsidePlanner url",
    // The address is passed on to the workers of the pool. No service calls it.
    "rm-scheduler OwnerOrder address",
    "rm-scheduler OwnerView address",
    // This address is the source of a request.
    "blocklist AuditRecord address",
    "container-manager AuditRecord address",
    "job-converter AuditRecord address",
    "node-status AuditRecord address",
    "rm-scheduler AuditRecord address",
];
const SERVICES: [&str; 5] = [
    "blocklist",
    "container-manager",
    "job-converter",
    "node-status",
    "rm-scheduler",
];
const ADDRESS_WORDS: [&str; 6] = ["url", "uri", "callback", "webhook", "endpoint", "address"];

fn collect_address_fields(value: &Value, location: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            for name in properties.into_iter().flatten().map(|(name, _)| name) {
                let lower = name.to_lowercase();
                if ADDRESS_WORDS.iter().any(|word| lower.contains(word)) {
                    found.push(format!("{location} {name}"));
                }
            }
            for inner in fields.values() {
                collect_address_fields(inner, location, found);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|it| collect_address_fields(it, location, found)),
        _ => {}
    }
}

#[test]
fn no_field_is_an_address_that_a_service_would_call() {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for service in SERVICES {
        let path = format!("openapi/{service}.json");
        let text = read(Path::new(&path)).unwrap_or_default();
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        let schemas = document["components"]["schemas"].as_object();
        if schemas.is_none_or(serde_json::Map::is_empty) {
            faults.push(format!("{path} has no schemas"));
        }
        for (name, schema) in schemas.into_iter().flatten() {
            collect_address_fields(schema, &format!("{service} {name}"), &mut found);
        }
    }
    let unknown = found
        .iter()
        .filter(|field| !KNOWN_FIELDS.contains(&field.as_str()));
    faults.extend(unknown.map(|field| format!("{field}: add it to KNOWN_FIELDS with its use")));
    let missing = KNOWN_FIELDS
        .iter()
        .filter(|field| !found.iter().any(|found| found == *field));
    faults.extend(missing.map(|field| format!("{field} is not there any more")));
    assert_none("addresses", &faults);
}
