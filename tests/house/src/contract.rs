//! Compares a description of an API with an older one. Within v1 there may only be additions. Each
//! broken promise is a line with its place (A1).
//!
//! Requests may only widen, so that the service still accepts everything that a client sends.
//! Answers may only gain fields, so that everything that a client reads is still there.
//! Enumerations of answers are open.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Direction of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Values from clients, which know only the old description.
    In,
    /// Values to clients.
    Out,
}

/// Returns the promises of `before` that `now` breaks.
#[must_use]
pub fn breaks(before: &Value, now: &Value) -> Vec<String> {
    let mut check = Check {
        before,
        now,
        seen: BTreeSet::new(),
        found: Vec::new(),
    };
    let current = operations(now);
    for (place, operation) in operations(before) {
        match current.get(&place) {
            None => check.found.push(format!("{place} is gone")),
            Some(current) => check.operation(&place, operation, current),
        }
    }
    check.found
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

struct Check<'a> {
    before: &'a Value,
    now: &'a Value,
    /// Pairs of named schemas that were compared already. A schema may contain itself.
    seen: BTreeSet<(String, String, Way)>,
    found: Vec<String>,
}

impl<'a> Check<'a> {
    fn found(&mut self, place: &str, what: &str) {
        self.found.push(format!("{place}: {what}"));
    }

    fn operation(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        self.parameters(place, before, now);
        self.body(place, &before["requestBody"], &now["requestBody"]);
        for (status, answer) in entries(&before["responses"]) {
            if !status.starts_with('2') {
                continue;
            }
            match now["responses"].get(status) {
                None => self.found(place, &format!("no longer answers {status}")),
                Some(current) => {
                    let place = format!("{place} {status}");
                    for (name, _) in entries(&answer["headers"]) {
                        if current["headers"].get(name).is_none() {
                            self.found(&place, &format!("has no header {name} any more"));
                        }
                    }
                    self.content(&place, answer, current, Way::Out);
                }
            }
        }
    }

    fn parameters(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        let (old, new) = (parameters(before), parameters(now));
        for (key, parameter) in &old {
            let place = format!("{place} {key}");
            match new.get(key) {
                None => self.found(&place, "is not taken any more"),
                Some(current) => {
                    if truth(&current["required"]) && !truth(&parameter["required"]) {
                        self.found(&place, "is required now");
                    }
                    self.schema(&place, &parameter["schema"], &current["schema"], Way::In);
                }
            }
        }
        for (key, parameter) in &new {
            if truth(&parameter["required"]) && !old.contains_key(key) {
                self.found(place, &format!("requires {key} now"));
            }
        }
    }

    fn body(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        if !before.is_null() && now.is_null() {
            self.found(place, "takes no body any more");
        }
        if truth(&now["required"]) && !truth(&before["required"]) {
            self.found(place, "requires a body now");
        }
        if !now.is_null() {
            self.content(&format!("{place} body"), before, now, Way::In);
        }
    }

    fn content(&mut self, place: &str, before: &'a Value, now: &'a Value, way: Way) {
        for (kind, content) in entries(&before["content"]) {
            match now["content"].get(kind) {
                None => self.found(place, &format!("is not {kind} any more")),
                Some(current) => self.schema(place, &content["schema"], &current["schema"], way),
            }
        }
    }

    fn schema(&mut self, place: &str, before: &'a Value, now: &'a Value, way: Way) {
        let (old, new) = (
            Shape::from_schema(self.before, before),
            Shape::from_schema(self.now, now),
        );
        if !self.types(place, &old, &new, way) {
            return;
        }
        let (before, now) = (only(before), only(now));
        let mut place = place.to_owned();
        if let (Some(old), Some(new)) = (name_of(before), name_of(now)) {
            if !self.seen.insert((old.to_owned(), new.to_owned(), way)) {
                return;
            }
            place = if way == Way::In { "in " } else { "out " }.to_owned() + old;
        }
        let (before, now) = (resolved(self.before, before), resolved(self.now, now));
        let (old, new) = (
            Shape::from_schema(self.before, before),
            Shape::from_schema(self.now, now),
        );
        if way == Way::In {
            self.limits(&place, before, now);
        }
        self.properties(&place, &old, &new, way);
        for inner in ["items", "additionalProperties"] {
            if before[inner].is_object() && now[inner].is_object() {
                self.schema(
                    &format!("{place}/{inner}"),
                    &before[inner],
                    &now[inner],
                    way,
                );
            }
        }
        for (key, variant) in &old.variants {
            match new.variants.get(key) {
                Some(current) => self.schema(&format!("{place} {key}"), variant, current, way),
                None if way == Way::In && !new.variants.is_empty() => {
                    self.found(&place, &format!("does not take {key} any more"));
                }
                None => {}
            }
        }
    }

    fn types(&mut self, place: &str, before: &Shape, now: &Shape, way: Way) -> bool {
        let (narrow, wide) = match way {
            Way::In => (before, now),
            Way::Out => (now, before),
        };
        let fits = |kind: &String| {
            wide.types.contains(kind) || (kind == "integer" && wide.types.contains("number"))
        };
        let is_subset =
            wide.types.is_empty() || (!narrow.types.is_empty() && narrow.types.iter().all(fits));
        let same = is_subset && before.variants.is_empty() == now.variants.is_empty();
        if !same {
            let text = format!("was {:?}, is {:?}", before.types, now.types);
            self.found(place, &text);
        }
        same
    }

    /// Compares the limits of a request within its type: enumerations, formats and bounds.
    fn limits(&mut self, place: &str, before: &Value, now: &Value) {
        if let Some(allowed) = now["enum"].as_array() {
            match before["enum"].as_array() {
                None => self.found(place, "takes only some values now"),
                Some(old) => {
                    for gone in old.iter().filter(|value| !allowed.contains(value)) {
                        self.found(place, &format!("does not take {gone} any more"));
                    }
                }
            }
        }
        for name in ["format", "pattern"] {
            if !now[name].is_null() && now[name] != before[name] {
                let text = format!("{name} was {}, is {}", before[name], now[name]);
                self.found(place, &text);
            }
        }
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
                self.found(place, &text);
            }
        }
    }

    fn properties(&mut self, place: &str, before: &Shape<'a>, now: &Shape<'a>, way: Way) {
        for (name, property) in &before.properties {
            let Some(current) = now.properties.get(name) else {
                self.found(place, &format!("has no {name} any more"));
                continue;
            };
            if way == Way::Out && before.required.contains(name) && !now.required.contains(name) {
                self.found(place, &format!("{name} may be absent now"));
            }
            self.schema(&format!("{place}/{name}"), property, current, way);
        }
        if way == Way::In {
            for name in now.required.difference(&before.required) {
                self.found(place, &format!("{name} is required now"));
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
        shape.add(document, resolved(document, schema));
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
            self.add(document, resolved(document, part));
        }
        for key in ["oneOf", "anyOf"] {
            let variants: Vec<&Value> = schema[key].as_array().into_iter().flatten().collect();
            let some: Vec<&&Value> = variants
                .iter()
                .filter(|one| one["type"] != "null")
                .collect();
            if some.len() < variants.len() {
                self.types.insert("null".to_owned());
            }
            if let [only] = some[..] {
                self.add(document, resolved(document, only));
                continue;
            }
            for (number, variant) in some.into_iter().enumerate() {
                let key = key_of(document, variant).unwrap_or_else(|| number.to_string());
                self.variants.insert(key, variant);
            }
        }
    }
}

/// Returns the key of an alternative: its name, its tags, or its required fields.
fn key_of(document: &Value, variant: &Value) -> Option<String> {
    if let Some(name) = name_of(variant) {
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
    let names: Vec<&str> = shape.required.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns the alternative other than `null`, if there is just one.
fn only(schema: &Value) -> &Value {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let some: Vec<&Value> = variants.filter(|one| one["type"] != "null").collect();
    match some[..] {
        [only] => only,
        _ => schema,
    }
}

fn name_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match name_of(schema) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    }
}

fn parameters(operation: &Value) -> BTreeMap<String, &Value> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let key = |one: &Value| {
        let part = |name| one[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", part("in"), part("name"))
    };
    all.map(|one| (key(one), one)).collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn truth(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

/// Returns the promises without descriptions, a line for each path and each schema.
#[must_use]
pub fn promises(document: &Value) -> String {
    let lines = |values: &Value| {
        let lines = entries(values).map(|(name, value)| {
            let value = bare(value);
            format!("{}: {value}", Value::from(name.clone()))
        });
        lines.collect::<Vec<_>>().join(",\n")
    };
    format!(
        "{{\"paths\": {{\n{}\n}}, \"components\": {{\"schemas\": {{\n{}\n}}}}}}\n",
        lines(&document["paths"]),
        lines(&document["components"]["schemas"])
    )
}

/// Returns a value without descriptions. A property may be called `description`, but its value is
/// an object.
fn bare(value: &Value) -> Value {
    const READ: [&str; 8] = [
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
            let left = map.iter().filter(|(name, value)| {
                let answer = name.len() == 3 && !name.starts_with('2');
                let refused = answer && name.bytes().all(|byte| byte.is_ascii_digit());
                !refused && (value.is_object() || !READ.contains(&name.as_str()))
            });
            let left = left.map(|(name, value)| (name.clone(), bare(value)));
            Value::Object(left.collect::<Map<_, _>>())
        }
        Value::Array(all) => Value::Array(all.iter().map(bare).collect()),
        other => other.clone(),
    }
}
