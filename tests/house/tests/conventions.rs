//! What holds for every route of every service (section 5 of the API conventions), looked for in
//! the descriptions: a route of tomorrow that forgets it fails here. Whoever is left out stands in
//! a list with the reason.

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

/// They say what is, make a secret that is shown once, or ask what would be: there is nothing to
/// try (`docs/trying-changes.md`).
const NOT_TRIED: [&str; 16] = [
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
/// Reports of agents, runners and owners, and questions (0030).
const WITHOUT_KEY: [&str; 6] = [
    "forecast_changes",
    "lease_tasks",
    "redeem_enrolment",
    "report_failures",
    "report_tasks",
    "worker_started",
];
/// What peers send: between them unknown fields are passed over.
const OF_PEERS: [&str; 3] = ["put_heartbeat", "report_containers", "report_output"];
/// The words of the application protocol, which is older than this API.
const PROTOCOL: [&str; 12] = [
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
/// Pieces of text from a place on, and no list of objects.
const NO_LIST: [&str; 2] = ["read_logs", "read_work_logs"];

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

    fn says(&self, what: &str) -> String {
        let method = self.method.to_uppercase();
        format!(
            "{}: {method} {} ({}) {what}",
            self.service,
            self.path,
            self.id()
        )
    }

    fn parameter(&self, name: &str) -> Option<&Value> {
        let all = self.operation["parameters"].as_array()?;
        all.iter().find(|one| one["name"] == name)
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

/// What a `$ref` of this document stands for.
fn meant<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(place) => document
            .pointer(place.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{place} leads nowhere")),
        None => schema,
    }
}

fn routes(service: &'static str, document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let mut all = Vec::new();
    for (path, item) in paths {
        let there = METHODS.iter().filter_map(|method| {
            let operation = item.get(*method)?.clone();
            Some(Route {
                service,
                method,
                path: path.clone(),
                operation,
            })
        });
        all.extend(there);
    }
    all
}

/// What is wrong with any route, each looked at beside its document.
fn found(wrong: impl Fn(&Value, &Route) -> Option<String>) -> Vec<String> {
    let mut all = Vec::new();
    for service in SERVICES {
        let document = document(service);
        for route in routes(service, &document) {
            all.extend(wrong(&document, &route).map(|what| route.says(&what)));
        }
    }
    all
}

/// Every property of every schema, with the schema it stands in.
fn properties(place: &str, value: &Value, seen: &mut dyn FnMut(&str, &str, &Value)) {
    if let Some(properties) = value["properties"].as_object() {
        for (name, schema) in properties {
            seen(place, name, schema);
        }
    }
    let within = value.as_object().into_iter().flat_map(|it| it.values());
    let within = within.chain(value.as_array().into_iter().flatten());
    for value in within {
        properties(place, value, seen);
    }
}

fn every_property(mut seen: impl FnMut(&str, &str, &Value)) {
    for service in SERVICES {
        let document = document(service);
        let schemas = document["components"]["schemas"].as_object();
        for (name, schema) in schemas.into_iter().flatten() {
            properties(name, schema, &mut seen);
        }
    }
}

#[test]
fn a2_names_are_in_snake_case_and_no_amount_is_a_fraction() {
    let mut wrong = BTreeSet::new();
    every_property(|place, name, schema| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(plain) && !PROTOCOL.contains(&place) {
            wrong.insert(format!("{place}.{name} is not in snake case"));
        }
        let kinds = schema["type"].as_array().cloned();
        let kinds = kinds.unwrap_or_else(|| vec![schema["type"].clone()]);
        if kinds.iter().any(|kind| kind == "number") {
            wrong.insert(format!("{place}.{name} may have a fraction"));
        }
    });
    assert_none(
        "names and amounts are as A2 has them",
        &Vec::from_iter(wrong),
    );
}

#[test]
fn a2_an_instant_is_a_date_and_a_duration_has_its_unit_in_its_name() {
    const DURATIONS: [&str; 7] = [
        "_wait",
        "_timeout",
        "_duration",
        "_grace",
        "_age",
        "_interval",
        "_delay",
    ];
    let mut wrong = BTreeSet::new();
    every_property(|place, name, schema| {
        let text = schema.to_string();
        let instant = text.contains("date-time") || text.contains("/Timestamp\"");
        if name.ends_with("_at") && !instant {
            wrong.insert(format!("{place}.{name} is no instant"));
        }
        if DURATIONS.iter().any(|end| name.ends_with(end)) && text.contains("\"integer\"") {
            wrong.insert(format!("{place}.{name} has no unit"));
        }
    });
    assert_none("times are as A2 has them", &Vec::from_iter(wrong));
}

#[test]
fn a4_a_post_takes_a_key() {
    let wrong = found(|_, route| {
        let key = route.parameter("Idempotency-Key");
        let left_out = WITHOUT_KEY.contains(&route.id());
        match (route.method, key) {
            ("post", None) if !left_out => Some("takes no Idempotency-Key".to_owned()),
            ("post", Some(key)) if key["required"] != true => {
                Some("does not ask for its key".to_owned())
            }
            (_, Some(_)) if left_out => Some("takes a key: take it off the list".to_owned()),
            _ => None,
        }
    });
    assert_none("every order has a key (A4)", &wrong);
}

#[test]
fn a6_every_list_has_pages_of_one_kind() {
    let wrong = found(|document, route| {
        route.parameter("cursor")?;
        if NO_LIST.contains(&route.id()) {
            return None;
        }
        let Some(limit) = route.parameter("limit") else {
            return Some("has no limit".to_owned());
        };
        if limit["schema"]["maximum"] != 1000 {
            return Some("gives more than 1,000 at once".to_owned());
        }
        let answer = &route.operation["responses"]["200"]["content"]["application/json"];
        let answer = meant(document, &answer["schema"]);
        let next = ["next_cursor", "nextCursor"].map(|name| &answer["properties"][name]);
        if next.iter().all(|it| it.is_null()) {
            return Some("does not say where the next page begins".to_owned());
        }
        let revision = &answer["properties"]["revision"];
        revision.is_null().then(|| "says no revision".to_owned())
    });
    assert_none("lists are alike (A6)", &wrong);
}

#[test]
fn a10_what_changes_something_can_be_tried_and_made_to_depend_on_a_revision() {
    let wrong = found(|_, route| {
        if route.method == "get" {
            return None;
        }
        let tried = route.parameter("dry_run").is_some();
        let depends = route.parameter("If-Revision").is_some();
        match (NOT_TRIED.contains(&route.id()), tried) {
            (false, false) => Some("takes no dry_run".to_owned()),
            (false, true) if !depends => Some("takes no If-Revision".to_owned()),
            (true, true) => Some("can be tried: take it off the list".to_owned()),
            _ => None,
        }
    });
    assert_none("whatever changes something can be tried (A10)", &wrong);
}

#[test]
fn a11_every_read_waits_for_what_its_reader_wrote() {
    let wrong = found(|_, route| {
        let follows = route.path.ends_with("/publication") || route.path == "/v1/changes";
        let state = follows || !route.path.starts_with("/v1/") || route.path == "/v1/status";
        let missing = route.parameter("min_revision").is_none();
        (route.method == "get" && !state && missing).then(|| "takes no min_revision".to_owned())
    });
    assert_none("who wrote reads what they wrote (A11)", &wrong);
}

#[test]
fn a15_what_people_send_is_closed_and_what_peers_send_is_open() {
    let wrong = found(|document, route| {
        let body = meant(document, route.body()?);
        // A map from names to whatever is closed by what its values are.
        let closed = match &body["additionalProperties"] {
            Value::Null => body["properties"].is_null(),
            closed => closed == false || closed.is_object(),
        };
        match (closed, OF_PEERS.contains(&route.id())) {
            (false, false) => Some("takes fields that nobody knows".to_owned()),
            (true, true) => Some("refuses what a newer peer says".to_owned()),
            _ => None,
        }
    });
    assert_none("unknown fields are refused, save of peers (A15)", &wrong);
}

#[test]
fn whoever_is_left_out_is_there() {
    let mut ids = BTreeSet::new();
    let mut schemas = BTreeSet::new();
    for service in SERVICES {
        let document = document(service);
        let there = routes(service, &document);
        ids.extend(there.iter().map(|route| route.id().to_owned()));
        let named = document["components"]["schemas"].as_object();
        schemas.extend(named.into_iter().flatten().map(|(name, _)| name.clone()));
    }
    let lists = [&NOT_TRIED[..], &WITHOUT_KEY, &OF_PEERS, &NO_LIST].concat();
    let gone = lists.iter().filter(|id| !ids.contains(**id));
    let unknown = PROTOCOL.iter().filter(|name| !schemas.contains(**name));
    let wrong: Vec<String> = gone.chain(unknown).map(|it| (*it).to_owned()).collect();
    assert_none("a list of exceptions names what is there", &wrong);
}
