//! Parsing and validation of task groups.
//!
//! All faults are reported at once with their position. A list with a fault is refused or dropped
//! as a whole, because a part of it would be a different gang.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::Size;
use hayward_vocabulary::quantity::{self, BadQuantity};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::GroupName;

pub const MAX_GROUPS: usize = 64;
/// Maximum number of members over all groups of one application.
pub const MAX_MEMBERS: u64 = 100_000;

/// Equal tasks. `min_member` of them start together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskGroup {
    pub name: GroupName,
    pub min_member: u32,
    pub min_resource: Size,
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// Other fields, copied verbatim to each placeholder.
    #[serde(default)]
    pub copied: BTreeMap<String, Value>,
}

/// Returns the sum of `min_member` × `min_resource` over all groups.
pub fn placeholder_size(groups: &[TaskGroup]) -> Size {
    let mut sum = Size::default();
    for group in groups {
        sum.add(&multiply(&group.min_resource, group.min_member));
    }
    sum
}

/// Multiplies a size by `count`. Saturates.
pub(crate) fn multiply(size: &Size, count: u32) -> Size {
    let count = u64::from(count);
    let extras = size.extras.iter();
    Size {
        memory_bytes: size.memory_bytes.saturating_mul(count),
        cpu_milli: size.cpu_milli.saturating_mul(count),
        gpu_milli: size.gpu_milli.saturating_mul(count),
        extras: extras
            .map(|(name, it)| (name.clone(), it.saturating_mul(count)))
            .collect(),
    }
}

/// A fault of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct Fault {
    /// JSON pointer into the list. Empty for the list itself.
    pub pointer: String,
    /// Text that describes the fault and what is allowed.
    pub message: String,
}

/// Fields that are copied verbatim to each placeholder.
const COPIED_FIELDS: [&str; 5] = [
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "labels",
    "annotations",
];

/// Parses a list of task groups.
///
/// # Errors
/// Returns all faults of the list.
pub fn parse(list: &Value) -> Result<Vec<TaskGroup>, Vec<Fault>> {
    let mut parser = Parser::default();
    let Some(entries) = list.as_array() else {
        parser.add_fault("", "a list of task groups is expected");
        return Err(parser.faults);
    };
    if entries.len() > MAX_GROUPS {
        let message = format!(
            "at most {MAX_GROUPS} groups, and here are {}",
            entries.len()
        );
        parser.add_fault("", message);
        return Err(parser.faults);
    }
    let parse_entry = |(index, entry)| parser.parse_group(&format!("/{index}"), entry);
    let groups: Vec<TaskGroup> = entries.iter().enumerate().filter_map(parse_entry).collect();
    let members: u64 = groups.iter().map(|it| u64::from(it.min_member)).sum();
    if members > MAX_MEMBERS {
        let message = format!("at most {MAX_MEMBERS} members together, and here are {members}");
        parser.add_fault("", message);
    }
    if parser.faults.is_empty() {
        Ok(groups)
    } else {
        Err(parser.faults)
    }
}

/// Parses the JSON text of an annotation.
///
/// # Errors
/// Returns all faults of the list, or one fault for invalid JSON.
pub fn parse_text(text: &str) -> Result<Vec<TaskGroup>, Vec<Fault>> {
    match serde_json::from_str(text) {
        Ok(list) => parse(&list),
        Err(cause) => Err(vec![Fault {
            pointer: String::new(),
            message: format!("a JSON list of task groups is expected: {cause}"),
        }]),
    }
}

/// Parses amounts by name.
///
/// # Errors
/// Returns all faults.
pub fn parse_amounts(value: &Value) -> Result<Size, Vec<Fault>> {
    let mut parser = Parser::default();
    let size = parser.parse_resource("", Some(value));
    size.ok_or(parser.faults)
}

/// An accepted list, and the faults of a dropped one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedGroups {
    pub groups: Vec<TaskGroup>,
    /// Faults of a dropped list, published as the warning `TaskGroupsError`.
    pub warnings: Vec<Fault>,
}

/// Parses a list and refuses it if it has faults. With `lenient`, drops such a list and continues
/// without a gang.
///
/// # Errors
/// Returns all faults of the list.
pub fn parse_or_drop(list: &Value, lenient: bool) -> Result<AcceptedGroups, Vec<Fault>> {
    match parse(list) {
        Ok(groups) => Ok(AcceptedGroups {
            groups,
            warnings: Vec::new(),
        }),
        Err(warnings) if lenient => Ok(AcceptedGroups {
            groups: Vec::new(),
            warnings,
        }),
        Err(faults) => Err(faults),
    }
}

/// Parses one list and collects its faults.
#[derive(Default)]
struct Parser {
    faults: Vec<Fault>,
    names: BTreeSet<GroupName>,
}

impl Parser {
    fn add_fault(&mut self, pointer: &str, message: impl Into<String>) {
        self.faults.push(Fault {
            pointer: pointer.to_owned(),
            message: message.into(),
        });
    }

    fn parse_group(&mut self, pointer: &str, entry: &Value) -> Option<TaskGroup> {
        let Some(entry) = entry.as_object() else {
            self.add_fault(
                pointer,
                "an object with name, minMember and minResource is expected",
            );
            return None;
        };
        self.check_unknown_fields(pointer, entry);
        let name = self.parse_name(&format!("{pointer}/name"), entry.get("name"));
        let min_member =
            self.parse_members(&format!("{pointer}/minMember"), entry.get("minMember"));
        let resource = entry.get("minResource");
        let min_resource = self.parse_resource(&format!("{pointer}/minResource"), resource);
        let selector = entry.get("nodeSelector");
        let node_selector = self.parse_selector(&format!("{pointer}/nodeSelector"), selector);
        let copied = COPIED_FIELDS.iter().filter_map(|field| {
            let value = entry.get(*field)?;
            Some(((*field).to_owned(), value.clone()))
        });
        Some(TaskGroup {
            name: name?,
            min_member: min_member?,
            min_resource: min_resource?,
            node_selector: node_selector?,
            copied: copied.collect(),
        })
    }

    fn check_unknown_fields(&mut self, pointer: &str, entry: &Map<String, Value>) {
        let known = ["name", "minMember", "minResource", "nodeSelector"];
        for field in entry.keys() {
            if !known.contains(&field.as_str()) && !COPIED_FIELDS.contains(&field.as_str()) {
                let known = [&known[..], &COPIED_FIELDS[..]].concat().join(", ");
                let message = format!("unknown field; there are {known}");
                self.add_fault(&format!("{pointer}/{}", escape(field)), message);
            }
        }
    }

    fn parse_name(&mut self, pointer: &str, value: Option<&Value>) -> Option<GroupName> {
        let Some(text) = value.and_then(Value::as_str) else {
            self.add_fault(pointer, "a name is expected");
            return None;
        };
        match GroupName::new(text) {
            Ok(name) if self.names.insert(name.clone()) => Some(name),
            Ok(_) => {
                self.add_fault(pointer, format!("another group is called {text:?} too"));
                None
            }
            Err(error) => {
                self.add_fault(pointer, error.to_string());
                None
            }
        }
    }

    fn parse_members(&mut self, pointer: &str, value: Option<&Value>) -> Option<u32> {
        let number = value.and_then(Value::as_u64);
        let number = number.and_then(|it| u32::try_from(it).ok());
        let count = number.filter(|it| *it > 0);
        if count.is_none() {
            self.add_fault(pointer, "a whole number above 0 is expected");
        }
        count
    }

    fn parse_resource(&mut self, pointer: &str, value: Option<&Value>) -> Option<Size> {
        let Some(map) = value.and_then(Value::as_object) else {
            let message = "amounts by name are expected, like {\"cpu\": \"500m\", \
                           \"memory\": \"1Gi\"}";
            self.add_fault(pointer, message);
            return None;
        };
        let mut size = Size::default();
        let faults_before = self.faults.len();
        for (name, amount) in map {
            let text = match amount {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            };
            if set_amount(&mut size, name, &text).is_err() {
                let message =
                    format!("{amount} is not a valid amount; use 10, \"500m\" or \"2Gi\"");
                self.add_fault(&format!("{pointer}/{}", escape(name)), message);
            }
        }
        (self.faults.len() == faults_before).then_some(size)
    }

    fn parse_selector(
        &mut self,
        pointer: &str,
        value: Option<&Value>,
    ) -> Option<BTreeMap<String, String>> {
        let Some(value) = value else {
            return Some(BTreeMap::new());
        };
        let pairs = value.as_object().and_then(|map| {
            let pair = |(name, value): (&String, &Value)| {
                let value = value.as_str()?;
                Some((name.clone(), value.to_owned()))
            };
            map.iter().map(pair).collect()
        });
        if pairs.is_none() {
            self.add_fault(pointer, "texts by name are expected");
        }
        pairs
    }
}

/// Sets one type of a size. `cpu` and `vcore` mean the same type, and any other name is an extra.
fn set_amount(size: &mut Size, name: &str, text: &str) -> Result<(), BadQuantity> {
    match name {
        "memory" => size.memory_bytes = quantity::parse_whole(text)?,
        "cpu" | "vcore" => size.cpu_milli = quantity::parse_thousandths(text)?,
        "gpu" => size.gpu_milli = quantity::parse_thousandths(text)?,
        _ => {
            let amount = quantity::parse_whole(text)?;
            size.extras.insert(name.to_owned(), amount);
        }
    }
    Ok(())
}

/// Escapes a token of a JSON pointer (RFC 6901).
fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_is_named_at_once() {
        let list = json!([
            {"name": "", "minMember": 0, "minResource": {"cpu": "five"}},
            {"name": "b", "minMember": 1, "minResource": {"a/b": []}, "nodeselector": {}},
            {"name": "b", "minMember": 1.5, "minResource": null},
            {"name": "b", "minMember": 4_294_967_296_u64, "minResource": {}, "nodeSelector": 3},
            7,
        ]);
        let faults = parse(&list).unwrap_err();
        let pointers: Vec<&str> = faults.iter().map(|it| it.pointer.as_str()).collect();
        let expected = [
            "/0/name",
            "/0/minMember",
            "/0/minResource/cpu",
            "/1/nodeselector",
            "/1/minResource/a~1b",
            "/2/name",
            "/2/minMember",
            "/2/minResource",
            "/3/name",
            "/3/minMember",
            "/3/nodeSelector",
            "/4",
        ];
        assert_eq!(pointers, expected);
    }

    #[test]
    fn an_invalid_list_is_one_fault() {
        for text in ["", "[{", "{}", "null"] {
            assert_eq!(parse_text(text).unwrap_err().len(), 1, "{text:?}");
        }
        let many = Value::Array(vec![json!({}); MAX_GROUPS + 1]);
        assert_eq!(parse(&many).unwrap_err().len(), 1);
        let huge = json!([{"name": "a", "minMember": 100_001, "minResource": {}}]);
        assert_eq!(parse(&huge).unwrap_err()[0].pointer, "");
    }

    #[test]
    fn copied_fields_stay_verbatim() {
        let text = r#"[{"name": "g", "minMember": 2, "minResource": {"memory": "1Gi", "pods": 1},
            "nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k"}]}]"#;
        let groups = parse_text(text).unwrap();
        let group = &groups[0];
        assert_eq!(group.copied["tolerations"], json!([{"key": "k"}]));
        assert_eq!(group.node_selector["zone"], "a");
        assert_eq!(group.min_resource.extras["pods"], 1);
        let json = serde_json::to_string(&groups).unwrap();
        assert_eq!(
            serde_json::from_str::<Vec<TaskGroup>>(&json).unwrap(),
            groups
        );
    }
}
