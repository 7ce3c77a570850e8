//! Conventions of every route of every service (docs/spec/api.md), checked in the descriptions.
//! Exceptions are in lists, each with its reason.

use std::collections::BTreeSet;
use std::path::Path;

use hayward_tests_house::{assert_none, read};
use serde_json::Value;

const SERVICES: [&str; 5] = [
    "blocklist",
    "container-manager",
    "job-converter",
    "node-status",
    "rm-scheduler",
];
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Routes without a dry run: reports, secrets that are shown once, and forecasts
/// (`docs/trying-changes.md`).
const WITHOUT_DRY_RUN: [&str; 16] = [
    "connect_owner",
    "create_enrolment",
    "disconnect_owner",
    "forecast_changes",
    "lease_tasks",
    "put_heartbeat",
    "redeem_enrolment",
    "renew_credentials",
    "renew_orchestrator_credentials",
    "renew_pool_credentials",
    "report_containers",
    "report_failures",
    "report_idle_workers",
    "report_output",
    "report_tasks",
    "worker_started",
];
/// Routes without an idempotency key: reports of agents, runners and owners, and forecasts
/// (`docs/decisions/0043-conditional-writes.md`).
const WITHOUT_KEY: [&str; 6] = [
    "forecast_changes",
    "lease_tasks",
    "redeem_enrolment",
    "report_failures",
    "report_tasks",
    "worker_started",
];
/// Operations between services and agents, whose bodies may have unknown fields.
const PEER_OPERATIONS: [&str; 3] = ["put_heartbeat", "report_containers", "report_output"];
/// Schemas of the application protocol, which has its own names.
const PROTOCOL_SCHEMAS: [&str; 12] = [
    "ApartSubmission",
    "ApplicationList",
    "ApplicationSubmission",
    "ApplicationSummary",
    "ApplicationTaskView",
    "ApplicationView",
    "Confirmation",
    "GroupView",
    "PlaceholderView",
    "TaskAccepted",
    "TaskGroupSubmission",
    "TaskSubmission",
];
/// Operations that return text from an offset on. They are not lists of objects.
const NOT_LISTS: [&str; 2] = ["read_logs", "read_work_logs"];

struct Route {
    service: &'static str,
    method: &'static str,
    path: String,
    operation: Value,
}

impl Route {
    fn id(&self) -> &str {
        self.operation["operationId"].as_str().unwrap_or_default()
    }

    fn fault(&self, what: &str) -> String {
        let method = self.method.to_uppercase();
        format!(
            "{}: {method} {} ({}) {what}",
            self.service,
            self.path,
            self.id()
        )
    }

    fn parameter(&self, name: &str) -> Option<&Value> {
        let parameters = self.operation["parameters"].as_array()?;
        parameters
            .iter()
            .find(|parameter| parameter["name"] == name)
    }

    fn body(&self) -> Option<&Value> {
        let body = self.operation.get("requestBody")?;
        Some(&body["content"]["application/json"]["schema"])
    }
}

fn document(service: &str) -> Value {
    let path = format!("openapi/{service}.json");
    let text = read(Path::new(&path)).unwrap_or_else(|| panic!("{path} is missing"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the schema that a `$ref` of this document names.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(pointer) => document
            .pointer(pointer.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{pointer} does not exist")),
        None => schema,
    }
}

fn routes(service: &'static str, document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let mut routes = Vec::new();
    for (path, item) in paths {
        let found = METHODS.iter().filter_map(|method| {
            let operation = item.get(*method)?.clone();
            Some(Route {
                service,
                method,
                path: path.clone(),
                operation,
            })
        });
        routes.extend(found);
    }
    routes
}

/// Returns the faults of all routes.
fn find_faults(check: impl Fn(&Value, &Route) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for service in SERVICES {
        let document = document(service);
        for route in routes(service, &document) {
            faults.extend(check(&document, &route).map(|fault| route.fault(&fault)));
        }
    }
    faults
}

/// Calls `visit` with every property of a schema: the name of the schema, the name of the property,
/// and its schema.
fn visit_properties(schema_name: &str, value: &Value, visit: &mut dyn FnMut(&str, &str, &Value)) {
    if let Some(properties) = value["properties"].as_object() {
        for (name, schema) in properties {
            visit(schema_name, name, schema);
        }
    }
    let children = value.as_object().into_iter().flat_map(|it| it.values());
    let children = children.chain(value.as_array().into_iter().flatten());
    for value in children {
        visit_properties(schema_name, value, visit);
    }
}

fn visit_every_property(mut visit: impl FnMut(&str, &str, &Value)) {
    for service in SERVICES {
        let document = document(service);
        let schemas = document["components"]["schemas"].as_object();
        for (name, schema) in schemas.into_iter().flatten() {
            visit_properties(name, schema, &mut visit);
        }
    }
}

#[test]
fn names_are_in_snake_case_and_no_amount_is_a_fraction() {
    let mut faults = BTreeSet::new();
    visit_every_property(|schema_name, name, schema| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(is_allowed) && !PROTOCOL_SCHEMAS.contains(&schema_name) {
            faults.insert(format!("{schema_name}.{name} is not in snake case"));
        }
        let kinds = schema["type"].as_array().cloned();
        let kinds = kinds.unwrap_or_else(|| vec![schema["type"].clone()]);
        if kinds.iter().any(|kind| kind == "number") {
            faults.insert(format!("{schema_name}.{name} may have a fraction"));
        }
    });
    assert_none(
        "names are in snake case and amounts are integers (A2)",
        &Vec::from_iter(faults),
    );
}

#[test]
fn an_instant_is_a_date_and_a_duration_has_its_unit_in_its_name() {
    const DURATIONS: [&str; 7] = [
        "_wait",
        "_timeout",
        "_duration",
        "_grace",
        "_age",
        "_interval",
        "_delay",
    ];
    let mut faults = BTreeSet::new();
    visit_every_property(|schema_name, name, schema| {
        let text = schema.to_string();
        let is_instant = text.contains("date-time") || text.contains("/Timestamp\"");
        if name.ends_with("_at") && !is_instant {
            faults.insert(format!("{schema_name}.{name} is not an instant"));
        }
        if DURATIONS.iter().any(|suffix| name.ends_with(suffix)) && text.contains("\"integer\"") {
            faults.insert(format!("{schema_name}.{name} has no unit"));
        }
    });
    assert_none(
        "instants are dates and durations have a unit (A2)",
        &Vec::from_iter(faults),
    );
}

#[test]
fn a_post_takes_a_key() {
    let faults = find_faults(|_, route| {
        let key = route.parameter("Idempotency-Key");
        let is_exempt = WITHOUT_KEY.contains(&route.id());
        match (route.method, key) {
            ("post", None) if !is_exempt => Some("takes no Idempotency-Key".to_owned()),
            ("post", Some(key)) if key["required"] != true => {
                Some("does not require its key".to_owned())
            }
            (_, Some(_)) if is_exempt => Some("takes a key: remove it from the list".to_owned()),
            _ => None,
        }
    });
    assert_none("every POST has a key (A4)", &faults);
}

#[test]
fn every_list_has_pages_of_one_kind() {
    let faults = find_faults(|document, route| {
        route.parameter("cursor")?;
        if NOT_LISTS.contains(&route.id()) {
            return None;
        }
        let Some(limit) = route.parameter("limit") else {
            return Some("has no limit".to_owned());
        };
        if limit["schema"]["maximum"] != 1000 {
            return Some("gives more than 1,000 at once".to_owned());
        }
        let response = &route.operation["responses"]["200"]["content"]["application/json"];
        let response = resolve(document, &response["schema"]);
        let next = ["next_cursor", "nextCursor"].map(|name| &response["properties"][name]);
        if next.iter().all(|it| it.is_null()) {
            return Some("has no cursor of the next page".to_owned());
        }
        let revision = &response["properties"]["revision"];
        revision.is_null().then(|| "has no revision".to_owned())
    });
    assert_none("lists are alike (A6)", &faults);
}

#[test]
fn every_change_has_a_dry_run_and_can_depend_on_a_revision() {
    let faults = find_faults(|_, route| {
        if route.method == "get" {
            return None;
        }
        let has_dry_run = route.parameter("dry_run").is_some();
        let has_if_revision = route.parameter("If-Revision").is_some();
        match (WITHOUT_DRY_RUN.contains(&route.id()), has_dry_run) {
            (false, false) => Some("takes no dry_run".to_owned()),
            (false, true) if !has_if_revision => Some("takes no If-Revision".to_owned()),
            (true, true) => Some("takes dry_run: remove it from the list".to_owned()),
            _ => None,
        }
    });
    assert_none("every change has a dry run (A10)", &faults);
}

#[test]
fn every_read_can_wait_for_a_revision() {
    let faults = find_faults(|_, route| {
        let follows = route.path.ends_with("/publication") || route.path == "/v1/changes";
        let is_exempt = follows || !route.path.starts_with("/v1/") || route.path == "/v1/status";
        let takes_none = route.parameter("min_revision").is_none();
        (route.method == "get" && !is_exempt && takes_none)
            .then(|| "takes no min_revision".to_owned())
    });
    assert_none("a read takes min_revision (A11)", &faults);
}

#[test]
fn bodies_of_users_are_closed_and_bodies_of_services_are_open() {
    let faults = find_faults(|document, route| {
        let body = resolve(document, route.body()?);
        // A map with any keys is closed when the schema of its values is closed.
        let is_closed = match &body["additionalProperties"] {
            Value::Null => body["properties"].is_null(),
            schema => schema == false || schema.is_object(),
        };
        match (is_closed, PEER_OPERATIONS.contains(&route.id())) {
            (false, false) => Some("takes unknown fields".to_owned()),
            (true, true) => Some("refuses fields of a newer version".to_owned()),
            _ => None,
        }
    });
    assert_none(
        "unknown fields are refused, except between services (A15)",
        &faults,
    );
}

#[test]
fn exceptions_exist() {
    let mut ids = BTreeSet::new();
    let mut schemas = BTreeSet::new();
    for service in SERVICES {
        let document = document(service);
        let service_routes = routes(service, &document);
        ids.extend(service_routes.iter().map(|route| route.id().to_owned()));
        let service_schemas = document["components"]["schemas"].as_object();
        schemas.extend(
            service_schemas
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone()),
        );
    }
    let lists = [
        &WITHOUT_DRY_RUN[..],
        &WITHOUT_KEY,
        &PEER_OPERATIONS,
        &NOT_LISTS,
    ]
    .concat();
    let missing = lists.iter().filter(|id| !ids.contains(**id));
    let unknown = PROTOCOL_SCHEMAS
        .iter()
        .filter(|name| !schemas.contains(**name));
    let faults: Vec<String> = missing.chain(unknown).map(|it| (*it).to_owned()).collect();
    assert_none("an exception names a route or schema that exists", &faults);
}
