//! Compares the OpenAPI document of a service with an older one. A promise is anything in the older
//! document that a client may rely on. Within v1 there may only be additions. Each broken promise
//! is reported as a line with its place (A1).
//!
//! Requests may only widen, so that the service still accepts everything that a client sends.
//! Answers may only gain fields, so that everything that a client reads is still there.
//! Enumerations of answers are open.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Direction of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    /// Values from clients, which know only the old document.
    Request,
    /// Values to clients.
    Response,
}

/// Returns the promises of `before` that `now` breaks.
#[must_use]
pub fn breaking_changes(before: &Value, now: &Value) -> Vec<String> {
    let mut check = Check {
        before,
        now,
        seen: BTreeSet::new(),
        findings: Vec::new(),
    };
    let current = operations(now);
    for (location, operation) in operations(before) {
        match current.get(&location) {
            None => check.findings.push(format!("{location} is gone")),
            Some(current) => check.check_operation(&location, operation, current),
        }
    }
    check.findings
}

/// Returns every operation by method and path.
fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let mut all = BTreeMap::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                all.insert(format!("{} {path}", method.to_uppercase()), operation);
            }
        }
    }
    all
}

/// A comparison of two documents, with its findings so far.
struct Check<'a> {
    before: &'a Value,
    now: &'a Value,
    /// Pairs of named schemas that were compared already. A schema may contain itself.
    seen: BTreeSet<(String, String, Direction)>,
    findings: Vec<String>,
}

impl<'a> Check<'a> {
    fn report(&mut self, location: &str, problem: &str) {
        self.findings.push(format!("{location}: {problem}"));
    }

    fn check_operation(&mut self, location: &str, before: &'a Value, now: &'a Value) {
        self.check_parameters(location, before, now);
        self.check_body(location, &before["requestBody"], &now["requestBody"]);
        for (status, answer) in entries(&before["responses"]) {
            if !status.starts_with('2') {
                continue;
            }
            match now["responses"].get(status) {
                None => self.report(location, &format!("no longer answers {status}")),
                Some(current) => {
                    let location = format!("{location} {status}");
                    for (name, _) in entries(&answer["headers"]) {
                        if current["headers"].get(name).is_none() {
                            self.report(&location, &format!("has no header {name} any more"));
                        }
                    }
                    self.check_content(&location, answer, current, Direction::Response);
                }
            }
        }
    }

    fn check_parameters(&mut self, location: &str, before: &'a Value, now: &'a Value) {
        let (old, new) = (parameters(before), parameters(now));
        for (key, parameter) in &old {
            let location = format!("{location} {key}");
            match new.get(key) {
                None => self.report(&location, "is not taken any more"),
                Some(current) => {
                    if is_true(&current["required"]) && !is_true(&parameter["required"]) {
                        self.report(&location, "is required now");
                    }
                    self.check_schema(
                        &location,
                        &parameter["schema"],
                        &current["schema"],
                        Direction::Request,
                    );
                }
            }
        }
        for (key, parameter) in &new {
            if is_true(&parameter["required"]) && !old.contains_key(key) {
                self.report(location, &format!("requires {key} now"));
            }
        }
    }

    fn check_body(&mut self, location: &str, before: &'a Value, now: &'a Value) {
        if !before.is_null() && now.is_null() {
            self.report(location, "takes no body any more");
        }
        if is_true(&now["required"]) && !is_true(&before["required"]) {
            self.report(location, "requires a body now");
        }
        if !now.is_null() {
            self.check_content(&format!("{location} body"), before, now, Direction::Request);
        }
    }

    fn check_content(
        &mut self,
        location: &str,
        before: &'a Value,
        now: &'a Value,
        direction: Direction,
    ) {
        for (kind, content) in entries(&before["content"]) {
            match now["content"].get(kind) {
                None => self.report(location, &format!("is not {kind} any more")),
                Some(current) => {
                    self.check_schema(location, &content["schema"], &current["schema"], direction);
                }
            }
        }
    }

    fn check_schema(
        &mut self,
        location: &str,
        before: &'a Value,
        now: &'a Value,
        direction: Direction,
    ) {
        let (old, new) = (
            Shape::from_schema(self.before, before),
            Shape::from_schema(self.now, now),
        );
        if !self.check_types(location, &old, &new, direction) {
            return;
        }
        let (before, now) = (single_variant(before), single_variant(now));
        let mut location = location.to_owned();
        if let (Some(old), Some(new)) = (ref_name(before), ref_name(now)) {
            let compared = (old.to_owned(), new.to_owned(), direction);
            if !self.seen.insert(compared) {
                return;
            }
            location = if direction == Direction::Request {
                "in "
            } else {
                "out "
            }
            .to_owned()
                + old;
        }
        let (before, now) = (resolve(self.before, before), resolve(self.now, now));
        let (old, new) = (
            Shape::from_schema(self.before, before),
            Shape::from_schema(self.now, now),
        );
        if direction == Direction::Request {
            self.check_limits(&location, before, now);
        }
        self.check_properties(&location, &old, &new, direction);
        for inner in ["items", "additionalProperties"] {
            if before[inner].is_object() && now[inner].is_object() {
                self.check_schema(
                    &format!("{location}/{inner}"),
                    &before[inner],
                    &now[inner],
                    direction,
                );
            }
        }
        for (key, variant) in &old.variants {
            match new.variants.get(key) {
                Some(current) => {
                    self.check_schema(&format!("{location} {key}"), variant, current, direction);
                }
                None if direction == Direction::Request && !new.variants.is_empty() => {
                    self.report(&location, &format!("does not take {key} any more"));
                }
                None => {}
            }
        }
    }

    /// Returns whether the types are compatible. Reports them if they are not.
    fn check_types(
        &mut self,
        location: &str,
        before: &Shape,
        now: &Shape,
        direction: Direction,
    ) -> bool {
        let (narrow, wide) = match direction {
            Direction::Request => (before, now),
            Direction::Response => (now, before),
        };
        let is_allowed = |kind: &String| {
            wide.types.contains(kind) || (kind == "integer" && wide.types.contains("number"))
        };
        let is_subset = wide.types.is_empty()
            || (!narrow.types.is_empty() && narrow.types.iter().all(is_allowed));
        let compatible = is_subset && before.variants.is_empty() == now.variants.is_empty();
        if !compatible {
            let text = format!("was {:?}, is {:?}", before.types, now.types);
            self.report(location, &text);
        }
        compatible
    }

    /// Compares the limits of a request within its type: enumerations, formats and bounds.
    fn check_limits(&mut self, location: &str, before: &Value, now: &Value) {
        if let Some(allowed) = now["enum"].as_array() {
            match before["enum"].as_array() {
                None => self.report(location, "takes only some values now"),
                Some(old) => {
                    for removed in old.iter().filter(|value| !allowed.contains(value)) {
                        self.report(location, &format!("does not take {removed} any more"));
                    }
                }
            }
        }
        for name in ["format", "pattern"] {
            if !now[name].is_null() && now[name] != before[name] {
                let text = format!("{name} was {}, is {}", before[name], now[name]);
                self.report(location, &text);
            }
        }
        // Lower bounds are negated, so that a lower number is narrower for every bound.
        for (name, sign) in [
            ("minimum", -1.0),
            ("minLength", -1.0),
            ("minItems", -1.0),
            ("maximum", 1.0),
            ("maxLength", 1.0),
            ("maxItems", 1.0),
        ] {
            let bound = |value: &Value| value[name].as_f64().map(|bound| bound * sign);
            let narrower = match (bound(before), bound(now)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(before), Some(now)) => now < before,
            };
            if narrower {
                let text = format!("{name} was {}, is {}", before[name], now[name]);
                self.report(location, &text);
            }
        }
    }

    fn check_properties(
        &mut self,
        location: &str,
        before: &Shape<'a>,
        now: &Shape<'a>,
        direction: Direction,
    ) {
        for (name, property) in &before.properties {
            let Some(current) = now.properties.get(name) else {
                self.report(location, &format!("has no {name} any more"));
                continue;
            };
            if direction == Direction::Response
                && before.required.contains(name)
                && !now.required.contains(name)
            {
                self.report(location, &format!("{name} may be absent now"));
            }
            self.check_schema(&format!("{location}/{name}"), property, current, direction);
        }
        if direction == Direction::Request {
            for name in now.required.difference(&before.required) {
                self.report(location, &format!("{name} is required now"));
            }
        }
    }
}

/// A schema with `allOf` merged and `null` removed from its alternatives.
#[derive(Default)]
struct Shape<'a> {
    types: BTreeSet<String>,
    properties: BTreeMap<String, &'a Value>,
    required: BTreeSet<String>,
    variants: BTreeMap<String, &'a Value>,
}

impl<'a> Shape<'a> {
    fn from_schema(document: &'a Value, schema: &'a Value) -> Self {
        let mut shape = Self::default();
        shape.add(document, resolve(document, schema));
        shape
    }

    fn add(&mut self, document: &'a Value, schema: &'a Value) {
        match &schema["type"] {
            Value::String(kind) => {
                self.types.insert(kind.clone());
            }
            Value::Array(kinds) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                self.types.extend(kinds.map(str::to_owned));
            }
            _ => {}
        }
        for (name, property) in entries(&schema["properties"]) {
            self.properties.insert(name.clone(), property);
        }
        let required = schema["required"].as_array().into_iter().flatten();
        self.required
            .extend(required.filter_map(Value::as_str).map(str::to_owned));
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.add(document, resolve(document, part));
        }
        for key in ["oneOf", "anyOf"] {
            let variants: Vec<&Value> = schema[key].as_array().into_iter().flatten().collect();
            let non_null: Vec<&&Value> = variants
                .iter()
                .filter(|variant| variant["type"] != "null")
                .collect();
            if non_null.len() < variants.len() {
                self.types.insert("null".to_owned());
            }
            if let [single] = non_null[..] {
                self.add(document, resolve(document, single));
                continue;
            }
            for (number, variant) in non_null.into_iter().enumerate() {
                let key = variant_key(document, variant).unwrap_or_else(|| number.to_string());
                self.variants.insert(key, variant);
            }
        }
    }
}

/// Returns the key of an alternative: its name, its tags, or its required fields.
fn variant_key(document: &Value, variant: &Value) -> Option<String> {
    if let Some(name) = ref_name(variant) {
        return Some(name.to_owned());
    }
    if let Some(values) = variant["enum"].as_array() {
        return Some(Value::from(values.clone()).to_string());
    }
    let shape = Shape::from_schema(document, variant);
    let tags = shape.properties.iter().filter_map(|(name, property)| {
        let [value] = &property["enum"].as_array()?[..] else {
            return None;
        };
        Some(format!("{name}={value}"))
    });
    let tags: Vec<String> = tags.collect();
    if !tags.is_empty() {
        return Some(tags.join(","));
    }
    let required_names: Vec<&str> = shape.required.iter().map(String::as_str).collect();
    (!required_names.is_empty()).then(|| required_names.join(","))
}

/// Returns the alternative other than `null`, if there is just one.
fn single_variant(schema: &Value) -> &Value {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let non_null: Vec<&Value> = variants
        .filter(|variant| variant["type"] != "null")
        .collect();
    match non_null[..] {
        [single] => single,
        _ => schema,
    }
}

fn ref_name(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match ref_name(schema) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    }
}

fn parameters(operation: &Value) -> BTreeMap<String, &Value> {
    let list = operation["parameters"].as_array().into_iter().flatten();
    let key = |parameter: &Value| {
        let part = |name| parameter[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", part("in"), part("name"))
    };
    list.map(|parameter| (key(parameter), parameter)).collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

/// Returns the promises of a document: its paths and schemas without descriptions and without error
/// responses. Each path and each schema is a line.
#[must_use]
pub fn promises(document: &Value) -> String {
    let format_lines = |values: &Value| {
        let lines = entries(values).map(|(name, value)| {
            let value = strip_descriptions_and_errors(value);
            format!("{}: {value}", Value::from(name.clone()))
        });
        lines.collect::<Vec<_>>().join(",\n")
    };
    format!(
        "{{\"paths\": {{\n{}\n}}, \"components\": {{\"schemas\": {{\n{}\n}}}}}}\n",
        format_lines(&document["paths"]),
        format_lines(&document["components"]["schemas"])
    )
}

/// Returns a value without descriptions and error responses. A property that is called
/// `description` has an object as its value and stays.
fn strip_descriptions_and_errors(value: &Value) -> Value {
    const DESCRIPTIVE_KEYS: [&str; 8] = [
        "description",
        "summary",
        "title",
        "operationId",
        "tags",
        "examples",
        "example",
        "default",
    ];
    match value {
        Value::Object(map) => {
            let remaining = map.iter().filter(|(name, value)| {
                let is_status = name.len() == 3 && !name.starts_with('2');
                let is_error_status = is_status && name.bytes().all(|byte| byte.is_ascii_digit());
                !is_error_status
                    && (value.is_object() || !DESCRIPTIVE_KEYS.contains(&name.as_str()))
            });
            let remaining =
                remaining.map(|(name, value)| (name.clone(), strip_descriptions_and_errors(value)));
            Value::Object(remaining.collect::<Map<_, _>>())
        }
        Value::Array(values) => {
            Value::Array(values.iter().map(strip_descriptions_and_errors).collect())
        }
        other => other.clone(),
    }
}
