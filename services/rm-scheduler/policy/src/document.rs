//! A document as it is written, and the policy it says.
//!
//! Reading does not stop at the first thing it does not understand: what cannot be read is told and
//! left out, and the rest is read and checked all the same. A field that stands twice is a fault,
//! because one of the two would be lost in silence (3.4.1, 3.4.2).

use std::collections::BTreeMap;
use std::fmt;

use hayward_rm_scheduler_api::policy::Policy;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess};
use serde::{Deserialize, de};
use serde_json::{Map, Value};

use crate::fault::{Fault, Faults, pointer};
use crate::validate;

/// JSON or YAML that has been parsed, with the fields that stand twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    value: Value,
    twice: Vec<String>,
}

impl Document {
    /// The policy inside what `GET /v1/policy` answers, and the generation it had there.
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
                return Err(A::Error::custom("a thousand fields stand twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

const SECTIONS: [&str; 7] = [
    "quantum", "pools", "classes", "users", "tunables", "preset", "settings",
];

/// What could be read of a document, and what could not.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub policy: Policy,
    unreadable: Vec<Fault>,
}

impl Reading {
    /// The policy, if it could be read and has none of these faults.
    ///
    /// # Errors
    /// All that is wrong at once, sorted by place.
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

/// The policy a document says, or all that is wrong with it.
///
/// # Errors
/// All faults at once, sorted by place.
pub fn read(document: Document) -> Result<Policy, Vec<Fault>> {
    let reading = reading(document);
    let faults = validate::faults(&reading.policy);
    reading.without(faults)
}

/// The same for those who have faults of their own to find in it.
pub fn reading(document: Document) -> Reading {
    let mut faults = Faults::default();
    for pointer in document.twice {
        let detail = "stands twice: keep one of the two".to_owned();
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

/// What may be wrong only because something else could not be read: the same field, what is
/// reckoned over all entries, and what classes are compared by.
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
    let said = sections.remove(name).filter(|value| !value.is_null());
    said.and_then(|value| typed(value, &[name], faults))
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
            faults.say(&[name], "is no map: write `NAME: {…}` for each");
            BTreeMap::new()
        }
    }
}

/// What can be read of an entry. Every field that cannot is told, and left out.
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
        // The path of a field that is not known ends above it.
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
