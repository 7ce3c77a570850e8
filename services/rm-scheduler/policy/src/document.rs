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

/// A parsed JSON or YAML document, with the fields that appear twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    value: Value,
    twice: Vec<String>,
}

impl Document {
    /// Removes the envelope of a `GET /v1/policy` response and returns its generation.
    #[must_use]
    pub fn unwrapped(mut self) -> (Self, Option<u64>) {
        let Some(inner) = self.value.get_mut("policy").map(Value::take) else {
            return (self, None);
        };
        let generation = self.value.get("generation").and_then(Value::as_u64);
        let inside = |at: String| at.strip_prefix("/policy").map(str::to_owned);
        let document = Self {
            value: inner,
            twice: self.twice.into_iter().filter_map(inside).collect(),
        };
        (document, generation)
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        let twice = Vec::new();
        Self { value, twice }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut twice = Vec::new();
        let at = String::new();
        let reader = Reader {
            at,
            twice: &mut twice,
        };
        let value = reader.deserialize(deserializer)?;
        Ok(Self { value, twice })
    }
}

struct Reader<'a> {
    at: String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Reader<'_> {
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
        let mut all = Vec::new();
        loop {
            let at = format!("{}/{}", self.at, all.len());
            let twice = &mut *self.twice;
            match items.next_element_seed(Reader { at, twice })? {
                Some(item) => all.push(item),
                None => return Ok(Value::Array(all)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let at = format!("{}{}", self.at, pointer(&[&key]));
            let twice = &mut *self.twice;
            let value = fields.next_value_seed(Reader {
                at: at.clone(),
                twice,
            })?;
            if all.insert(key, value).is_some() {
                self.twice.push(at);
            }
            if self.twice.len() > 1_000 {
                return Err(A::Error::custom("more than 1000 fields appear twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

const SECTIONS: [&str; 7] = [
    "quantum", "pools", "classes", "users", "tunables", "profile", "settings",
];

/// The readable part of a document, and the faults of the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub policy: Policy,
    unreadable: Vec<Fault>,
}

impl Reading {
    /// Returns the policy if it is readable and has no faults.
    ///
    /// # Errors
    /// Returns all faults, sorted by place.
    pub fn without(self, mut faults: Vec<Fault>) -> Result<Policy, Vec<Fault>> {
        if !self.unreadable.is_empty() {
            faults.retain(|fault| !follows(fault, &self.unreadable));
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
/// Returns all faults, sorted by place.
pub fn read(document: Document) -> Result<Policy, Vec<Fault>> {
    let reading = reading(document);
    let faults = validate::faults(&reading.policy);
    reading.without(faults)
}

/// Reads a document for callers that check it further.
pub fn reading(document: Document) -> Reading {
    let mut faults = Faults::default();
    for pointer in document.twice {
        let detail = "appears twice: keep one of the two".to_owned();
        faults.0.push(Fault { pointer, detail });
    }
    let mut sections = if let Value::Object(sections) = document.value {
        sections
    } else {
        let detail = "a policy has fields, as in {\"pools\": {…}, \"classes\": {…}}";
        faults.say(&[], detail);
        Map::new()
    };
    for needed in ["pools", "classes"] {
        if !sections.contains_key(needed) {
            faults.say(
                &[needed],
                "is missing: a policy names its pools and classes",
            );
        }
    }
    let policy = Policy {
        quantum: whole(&mut sections, "quantum", &mut faults),
        pools: named(&mut sections, "pools", &mut faults),
        classes: named(&mut sections, "classes", &mut faults),
        users: named(&mut sections, "users", &mut faults),
        tunables: whole(&mut sections, "tunables", &mut faults),
        profile: whole(&mut sections, "profile", &mut faults),
        preset: whole(&mut sections, "preset", &mut faults),
        settings: whole(&mut sections, "settings", &mut faults),
    };
    for unknown in sections.keys() {
        let known = SECTIONS.join(", ");
        faults.say(&[unknown], format!("is not known here; known are {known}"));
    }
    Reading {
        policy,
        unreadable: faults.0,
    }
}

/// Returns whether a fault may be a consequence of an unreadable field: the same field, a check
/// over all entries, or a field that classes are compared by.
fn follows(fault: &Fault, unreadable: &[Fault]) -> bool {
    const COMPARED: [&str; 4] = ["/policy", "/priority", "/parent", "/default"];
    let compared = |fault: &Fault| {
        let pointer = &fault.pointer;
        pointer.starts_with("/classes/") && COMPARED.iter().any(|end| pointer.ends_with(end))
    };
    let general = fault.pointer.matches('/').count() < 2;
    let same = |other: &Fault| fault.pointer.starts_with(&other.pointer);
    general
        || unreadable
            .iter()
            .any(|other| same(other) || (compared(fault) && compared(other)))
}

fn whole<T: DeserializeOwned + Default>(
    sections: &mut Map<String, Value>,
    name: &str,
    faults: &mut Faults,
) -> T {
    let section = sections.remove(name).filter(|value| !value.is_null());
    section
        .and_then(|value| typed(value, &[name], faults))
        .unwrap_or_default()
}

fn named<T: DeserializeOwned>(
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
                Some((key.clone(), typed(value, &[name, &key], faults)?))
            })
            .collect(),
        None | Some(Value::Null) => BTreeMap::new(),
        Some(_) => {
            faults.say(&[name], "is not a map: write `NAME: {…}` for each");
            BTreeMap::new()
        }
    }
}

/// Reads an entry. An unreadable field is reported and skipped.
fn typed<T: DeserializeOwned>(value: Value, at: &[&str], faults: &mut Faults) -> Option<T> {
    let mut left = value;
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(left.clone()) {
            Ok(read) => return Some(read),
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
        let mut whole: Vec<&str> = at.to_vec();
        whole.extend(steps.iter().map(String::as_str));
        faults.say(&whole, detail);
        let first = steps.first();
        let removed = first.and_then(|name| left.as_object_mut()?.remove(name));
        removed.as_ref()?;
    }
}
