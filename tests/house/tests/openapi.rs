//! The checked-in API documents, read as a client reads them. There are five documents of version
//! 3.1, in which every operation is named, grouped and described. Each service compares its own
//! document with its code.

use std::collections::BTreeMap;
use std::path::Path;

use hayward_tests_house::api_compatibility::{breaking_changes, promises};
use hayward_tests_house::{assert_none, read, root};
use serde_json::Value;

const SERVICES: [&str; 5] = [
    "blocklist",
    "container-manager",
    "job-converter",
    "node-status",
    "rm-scheduler",
];
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "patch", "head", "options"];

/// Returns the document of a service, or the reason why it cannot be read.
fn document(service: &str) -> Result<Value, String> {
    let path = format!("openapi/{service}.json");
    let text = read(Path::new(&path)).ok_or_else(|| format!("{path} is missing"))?;
    serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
}

/// Returns every operation with its place, such as `GET /v1/jobs`.
fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let mut all = Vec::new();
    for (path, item) in paths {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                all.push((
                    format!("{} {path}", method.to_uppercase()),
                    operation.clone(),
                ));
            }
        }
    }
    all
}

#[test]
fn there_are_five_documents_of_version_3_1() {
    let mut found = Vec::new();
    for service in SERVICES {
        match document(service) {
            Err(reason) => found.push(reason),
            Ok(document) => {
                let version = document["openapi"].as_str().unwrap_or_default();
                if !version.starts_with("3.1.") {
                    found.push(format!("{service}: openapi {version:?}"));
                }
                if operations(&document).is_empty() {
                    found.push(format!("{service}: no operations"));
                }
            }
        }
    }
    assert_none("openapi/ holds a 3.1 document for each service", &found);
}

#[test]
fn operations_are_named_grouped_and_answered() {
    let mut found = Vec::new();
    for service in SERVICES {
        let Ok(document) = document(service) else {
            continue;
        };
        let mut locations_by_id: BTreeMap<String, String> = BTreeMap::new();
        for (location, operation) in operations(&document) {
            let mut report = |what: &str| found.push(format!("{service}: {location}: {what}"));
            match operation["operationId"].as_str() {
                None | Some("") => report("no operationId"),
                Some(id) => {
                    if let Some(other) = locations_by_id.insert(id.to_owned(), location.clone()) {
                        report(&format!("operationId {id} is taken by {other}"));
                    }
                }
            }
            if operation["tags"].as_array().is_none_or(Vec::is_empty) {
                report("no tag");
            }
            let empty = serde_json::Map::new();
            let responses = operation["responses"].as_object().unwrap_or(&empty);
            if responses.is_empty() {
                report("no responses");
            }
            for (status, response) in responses {
                let described = response["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty());
                if !described && response.get("$ref").is_none() {
                    report(&format!("response {status} is not described"));
                }
            }
        }
    }
    assert_none(
        "a client generated from the document must be able to name everything",
        &found,
    );
}

/// Operations without `Location`: bulks, whose answers have the ids, and a secret that is shown
/// once.
const WITHOUT_LOCATION: [&str; 3] = ["submit_jobs", "add_tasks", "redeem_enrolment"];

#[test]
fn a_creation_answers_with_location_and_etag() {
    let mut found = Vec::new();
    for service in SERVICES {
        let Ok(document) = document(service) else {
            continue;
        };
        for (location, operation) in operations(&document) {
            let id = operation["operationId"].as_str().unwrap_or_default();
            let created_headers = &operation["responses"]["201"]["headers"];
            if !location.starts_with("POST")
                || created_headers.is_null()
                || WITHOUT_LOCATION.contains(&id)
            {
                continue;
            }
            // A secret for a node is exchanged and never read, so it has no ETag.
            let headers: &[&str] = match id {
                "create_enrolment" => &["Location"],
                _ => &["Location", "ETag"],
            };
            let missing = headers
                .iter()
                .filter(|name| created_headers[**name].is_null());
            found.extend(missing.map(|name| format!("{service}: {id}: 201 without {name}")));
        }
    }
    assert_none(
        "a POST that creates an object answers with Location and ETag (A3)",
        &found,
    );
}

/// Returns every `$ref` in the text, as a pointer.
fn references(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split("\"$ref\"").skip(1);
    parts.filter_map(|part| Some(part.split('"').nth(1)?.strip_prefix('#')?.to_owned()))
}

#[test]
fn every_reference_resolves() {
    let mut found = Vec::new();
    for service in SERVICES {
        let Ok(document) = document(service) else {
            continue;
        };
        let text = document.to_string();
        let missing = references(&text).filter(|pointer| document.pointer(pointer).is_none());
        found.extend(missing.map(|pointer| format!("{service}: {pointer}")));
    }
    found.sort();
    found.dedup();
    assert_none(
        "a reference that does not resolve stops every generator",
        &found,
    );
}

/// `openapi/v1/` holds the promises of v1. `BLESS=1` only adds to them. A promise is withdrawn only
/// by deleting its file (A1).
#[test]
fn no_promise_of_v1_is_broken() {
    let mut found = Vec::new();
    for service in SERVICES {
        let Ok(document) = document(service) else {
            continue;
        };
        let path = format!("openapi/v1/{service}.json");
        let text = promises(&document);
        let promised = read(Path::new(&path));
        let broken_promises = match &promised {
            None => Vec::new(),
            Some(promised) => match serde_json::from_str(promised) {
                Ok(before) => breaking_changes(&before, &document),
                Err(error) => vec![format!("{path}: {error}")],
            },
        };
        let is_unbroken = broken_promises.is_empty();
        found.extend(
            broken_promises
                .iter()
                .map(|what| format!("{service}: {what}")),
        );
        if is_unbroken && promised.as_deref() != Some(&text) {
            if std::env::var_os("BLESS").is_some() {
                std::fs::create_dir_all(root().join("openapi/v1")).unwrap();
                std::fs::write(root().join(&path), text).unwrap();
            } else {
                found.push(format!(
                    "{path} lacks the newest additions: BLESS=1 adds them"
                ));
            }
        }
    }
    assert_none("v1 keeps what it promised", &found);
}
