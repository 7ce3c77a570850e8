//! Reads a policy from a JSON or YAML document.
//!
//! Reading does not stop at the first fault: an unreadable field is reported and skipped, and the
//! rest is read and checked. A field that appears twice is a fault, because one of its values would
//! be lost.

use std::collections::BTreeMap;
use std::fmt;

use hayward_rm_scheduler_api::policy::Policy;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess};
use serde::{Deserialize, de};
use serde_json::{Map, Value};

use crate::fault::{Fault, Faults, pointer};
use crate::validate;

/// Maximum number of fields that appear twice. Reading stops above it.
const MAX_DUPLICATES: usize = 1_000;

/// A parsed JSON or YAML document, with the fields that appear twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    value: Value,
    duplicates: Vec<String>,
}

impl Document {
    /// Unwraps the response of `GET /v1/policy`. Returns the policy and its generation, if present.
    #[must_use]
    pub fn without_envelope(mut self) -> (Self, Option<u64>) {
        let Some(inner) = self.value.get_mut("policy").map(Value::take) else {
            return (self, None);
        };
        let generation = self.value.get("generation").and_then(Value::as_u64);
        let relative = |path: String| path.strip_prefix("/policy").map(str::to_owned);
        let document = Self {
            value: inner,
            duplicates: self.duplicates.into_iter().filter_map(relative).collect(),
        };
        (document, generation)
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        let duplicates = Vec::new();
        Self { value, duplicates }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut duplicates = Vec::new();
        let path = String::new();
        let reader = ValueReader {
            path,
            duplicates: &mut duplicates,
        };
        let value = reader.deserialize(deserializer)?;
        Ok(Self { value, duplicates })
    }
}

/// Reads one value and its children, and collects the pointers of fields that appear twice.
struct ValueReader<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for ValueReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy document")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        self.deserialize(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = format!("{}/{}", self.path, values.len());
            let duplicates = &mut *self.duplicates;
            match items.next_element_seed(ValueReader { path, duplicates })? {
                Some(item) => values.push(item),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = format!("{}{}", self.path, pointer(&[&key]));
            let duplicates = &mut *self.duplicates;
            let value = fields.next_value_seed(ValueReader {
                path: path.clone(),
                duplicates,
            })?;
            if values.insert(key, value).is_some() {
                self.duplicates.push(path);
            }
            if self.duplicates.len() > MAX_DUPLICATES {
                return Err(A::Error::custom(format!(
                    "more than {MAX_DUPLICATES} fields appear twice"
                )));
            }
        }
        Ok(Value::Object(values))
    }
}

/// Known fields of the document. `preset` is the old name of `profile`, so it is not listed.
const SECTIONS: [&str; 7] = [
    "quantum", "pools", "classes", "users", "tunables", "profile", "settings",
];

/// The readable part of a document, and the faults of the unreadable part.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedPolicy {
    pub policy: Policy,
    unreadable: Vec<Fault>,
}

impl ParsedPolicy {
    /// Returns the policy if it is readable and `faults` is empty.
    ///
    /// # Errors
    /// Returns all faults, sorted by JSON pointer.
    pub fn into_policy(self, mut faults: Vec<Fault>) -> Result<Policy, Vec<Fault>> {
        if !self.unreadable.is_empty() {
            faults.retain(|fault| !is_consequence(fault, &self.unreadable));
            faults.extend(self.unreadable);
        }
        if faults.is_empty() {
            return Ok(self.policy);
        }
        faults.sort();
        faults.dedup();
        Err(faults)
    }
}

/// Reads and checks a document.
///
/// # Errors
/// Returns all faults, sorted by JSON pointer.
pub fn read(document: Document) -> Result<Policy, Vec<Fault>> {
    let parsed = parse(document);
    let faults = validate::faults(&parsed.policy);
    parsed.into_policy(faults)
}

/// Parses a document without checking it, for callers that add checks of their own.
pub fn parse(document: Document) -> ParsedPolicy {
    let mut faults = Faults::default();
    for pointer in document.duplicates {
        let detail = "appears twice: keep one of the two".to_owned();
        faults.0.push(Fault { pointer, detail });
    }
    let mut sections = if let Value::Object(sections) = document.value {
        sections
    } else {
        let detail = "a policy has fields, as in {\"pools\": {…}, \"classes\": {…}}";
        faults.add(&[], detail);
        Map::new()
    };
    for required in ["pools", "classes"] {
        if !sections.contains_key(required) {
            faults.add(
                &[required],
                "is missing: a policy names its pools and classes",
            );
        }
    }
    let policy = Policy {
        quantum: parse_section(&mut sections, "quantum", &mut faults),
        pools: parse_entries(&mut sections, "pools", &mut faults),
        classes: parse_entries(&mut sections, "classes", &mut faults),
        users: parse_entries(&mut sections, "users", &mut faults),
        tunables: parse_section(&mut sections, "tunables", &mut faults),
        profile: parse_section(&mut sections, "profile", &mut faults),
        preset: parse_section(&mut sections, "preset", &mut faults),
        settings: parse_section(&mut sections, "settings", &mut faults),
    };
    for unknown in sections.keys() {
        let known = SECTIONS.join(", ");
        faults.add(&[unknown], format!("is not known here; known are {known}"));
    }
    ParsedPolicy {
        policy,
        unreadable: faults.0,
    }
}

/// Returns true if a fault may be a consequence of an unreadable field. That holds for a fault of
/// the same field, for a fault of a whole section, and for a comparison of two classes by such a
/// field.
fn is_consequence(fault: &Fault, unreadable: &[Fault]) -> bool {
    const COMPARED_FIELDS: [&str; 4] = ["/policy", "/priority", "/parent", "/default"];
    let is_compared = |fault: &Fault| {
        let pointer = &fault.pointer;
        pointer.starts_with("/classes/") && COMPARED_FIELDS.iter().any(|end| pointer.ends_with(end))
    };
    let is_about_section = fault.pointer.matches('/').count() < 2;
    let is_same_field = |other: &Fault| fault.pointer.starts_with(&other.pointer);
    is_about_section
        || unreadable
            .iter()
            .any(|other| is_same_field(other) || (is_compared(fault) && is_compared(other)))
}

fn parse_section<T: DeserializeOwned + Default>(
    sections: &mut Map<String, Value>,
    name: &str,
    faults: &mut Faults,
) -> T {
    let section = sections.remove(name).filter(|value| !value.is_null());
    section
        .and_then(|value| parse_entry(value, &[name], faults))
        .unwrap_or_default()
}

fn parse_entries<T: DeserializeOwned>(
    sections: &mut Map<String, Value>,
    name: &str,
    faults: &mut Faults,
) -> BTreeMap<String, T> {
    match sections.remove(name) {
        Some(Value::Object(entries)) => entries
            .into_iter()
            .filter_map(|(key, value)| {
                // In YAML an entry without fields is null.
                let value = if value.is_null() {
                    Value::Object(Map::new())
                } else {
                    value
                };
                Some((key.clone(), parse_entry(value, &[name, &key], faults)?))
            })
            .collect(),
        None | Some(Value::Null) => BTreeMap::new(),
        Some(_) => {
            faults.add(&[name], "is not a map: write `NAME: {…}` for each");
            BTreeMap::new()
        }
    }
}

/// Reads an entry. An unreadable field is reported and skipped.
fn parse_entry<T: DeserializeOwned>(value: Value, path: &[&str], faults: &mut Faults) -> Option<T> {
    let mut remaining = value;
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(remaining.clone()) {
            Ok(entry) => return Some(entry),
            Err(error) => error,
        };
        let mut steps: Vec<String> = error
            .path()
            .iter()
            .map(|step| match step {
                serde_path_to_error::Segment::Seq { index } => index.to_string(),
                serde_path_to_error::Segment::Map { key } => key.clone(),
                other => other.to_string(),
            })
            .collect();
        let detail = error.into_inner().to_string();
        // The pointer for an unknown field ends at its parent.
        let unknown = detail.strip_prefix("unknown field `");
        if let Some((name, _)) = unknown.and_then(|rest| rest.split_once('`'))
            && steps.last().is_none_or(|last| last != name)
        {
            steps.push(name.to_owned());
        }
        let mut full_path: Vec<&str> = path.to_vec();
        full_path.extend(steps.iter().map(String::as_str));
        faults.add(&full_path, detail);
        let first = steps.first();
        let removed = first.and_then(|name| remaining.as_object_mut()?.remove(name));
        removed.as_ref()?;
    }
}
