//! Parses a strategy and its parameters into a rule, collecting all faults, and returns the
//! parameters with defaults filled in.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hayward_blocklist_api::{BlockAction, StrategyOrder};
use hayward_blocklist_domain::{Action, Class, Rule};
use hayward_service::http::problem::FieldFault;
use serde_json::{Map, Value, json};

const NAMES: &str =
    "none, failure-count, cause-class, start-failures, flapping, slow-task and chain are known";
/// One day. Longer windows would count facts that operators no longer remember.
const MAX_WINDOW_MS: u64 = 86_400_000;
/// One week.
const MAX_DURATION_MS: u64 = 604_800_000;
const MAX_COUNT: u64 = 10_000;
/// Cause classes that count against the node, with the default duration of their block in
/// milliseconds. None of them evacuates: work that still runs may continue.
const CLASSES: [(&str, u64); 5] = [
    ("device_error", 3_600_000),
    ("disk_full", 1_800_000),
    ("image_pull", 600_000),
    ("read_only_fs", 3_600_000),
    ("runtime_down", 600_000),
];

/// Defaults taken from the settings of the service.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub slow_node_duration_ms: u64,
    pub evacuation_grace_ms: u64,
}

#[derive(Debug, PartialEq)]
pub struct Parsed {
    pub rule: Rule,
    /// All parameters, with their defaults.
    pub parameters: BTreeMap<String, Value>,
}

/// All faults.
pub fn parse(order: &StrategyOrder, defaults: Defaults) -> Result<Parsed, Vec<FieldFault>> {
    let mut faults = Vec::new();
    let parameters = order.parameters.clone().into_iter().collect();
    let rule = rule(&order.name, parameters, "", defaults, &mut faults);
    match rule {
        Some((rule, parameters)) if faults.is_empty() => Ok(Parsed {
            rule,
            parameters: parameters.into_iter().collect(),
        }),
        _ => Err(faults),
    }
}

fn rule(
    name: &str,
    given: Map<String, Value>,
    at: &str,
    defaults: Defaults,
    faults: &mut Vec<FieldFault>,
) -> Option<(Rule, Map<String, Value>)> {
    let name_at = format!("{at}/name");
    let mut it = ParameterReader {
        at: format!("{at}/parameters"),
        given,
        parsed: Map::new(),
        faults,
    };
    let rule = match name {
        "none" => Rule::None,
        "failure-count" => Rule::FailureCount {
            failures: it.number("n", 3, 1..=MAX_COUNT),
            window_ms: it.number("window_ms", 600_000, 1..=MAX_WINDOW_MS),
            jobs: it.number("m", 1, 1..=MAX_COUNT),
            duration_ms: it.number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "start-failures" => Rule::StartFailures {
            failures: it.number("n", 3, 1..=MAX_COUNT),
            window_ms: it.number("window_ms", 300_000, 1..=MAX_WINDOW_MS),
            duration_ms: it.number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "flapping" => Rule::Flapping {
            flaps: it.number("n", 4, 1..=MAX_COUNT),
            window_ms: it.number("window_ms", 900_000, 1..=MAX_WINDOW_MS),
            duration_ms: it.number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "slow-task" => {
            let usual = defaults.slow_node_duration_ms;
            Rule::SlowTask {
                duration_ms: it.number("duration_ms", usual, 0..=MAX_DURATION_MS),
            }
        }
        "cause-class" => Rule::CauseClass {
            classes: it.classes(defaults),
        },
        "chain" if at.is_empty() => Rule::Chain(it.chain(defaults)),
        "chain" => {
            it.fault_at(name_at, "a chain must not contain a chain".to_owned());
            return None;
        }
        unknown => {
            it.fault_at(name_at, format!("{unknown:?} is not a strategy; {NAMES}"));
            return None;
        }
    };
    let parsed = it.finish();
    Some((rule, parsed))
}

/// Takes known parameters one by one; the remaining ones are unknown.
struct ParameterReader<'a> {
    at: String,
    given: Map<String, Value>,
    parsed: Map<String, Value>,
    faults: &'a mut Vec<FieldFault>,
}

impl ParameterReader<'_> {
    fn fault_at(&mut self, pointer: String, detail: String) {
        self.faults.push(FieldFault { pointer, detail });
    }

    fn fault(&mut self, field: &str, detail: String) {
        self.fault_at(format!("{}/{field}", self.at), detail);
    }

    fn number(&mut self, field: &str, usual: u64, range: RangeInclusive<u64>) -> u64 {
        let number = match self.given.remove(field) {
            None => usual,
            Some(value) => {
                let number = value.as_u64().filter(|number| range.contains(number));
                number.unwrap_or_else(|| {
                    let (least, most) = (range.start(), range.end());
                    let detail = format!("takes a whole number from {least} to {most}");
                    self.fault(field, detail);
                    usual
                })
            }
        };
        self.parsed.insert(field.to_owned(), number.into());
        number
    }

    fn classes(&mut self, defaults: Defaults) -> BTreeMap<String, Class> {
        let usual = || {
            let class = |(name, ms): (&str, u64)| {
                let action = "MARK_BLOCKLISTED";
                (
                    name.to_owned(),
                    json!({ "action": action, "duration_ms": ms }),
                )
            };
            Value::Object(CLASSES.into_iter().map(class).collect())
        };
        let given = self.given.remove("classes").unwrap_or_else(usual);
        let Value::Object(given) = given else {
            let detail = "takes an object from cause class to its action and duration";
            self.fault("classes", detail.to_owned());
            return BTreeMap::new();
        };
        if given.is_empty() {
            self.fault(
                "classes",
                "names no class; `none` is the strategy for that".to_owned(),
            );
        }
        let mut classes = BTreeMap::new();
        let mut parsed = Map::new();
        for (name, value) in given {
            let at = format!("{}/classes/{name}", self.at);
            let Value::Object(given) = value else {
                self.fault_at(at, "takes an object with action and duration_ms".to_owned());
                continue;
            };
            let mut it = ParameterReader {
                at,
                given,
                parsed: Map::new(),
                faults: self.faults,
            };
            let class = it.class(defaults);
            parsed.insert(name.clone(), Value::Object(it.finish()));
            classes.insert(name, class);
        }
        self.parsed
            .insert("classes".to_owned(), Value::Object(parsed));
        classes
    }

    fn class(&mut self, defaults: Defaults) -> Class {
        let given = self.given.remove("action");
        let action = given.unwrap_or_else(|| json!("MARK_BLOCKLISTED"));
        let read = serde_json::from_value::<BlockAction>(action.clone());
        let duration_ms = self.number("duration_ms", 600_000, 1..=MAX_DURATION_MS);
        let action = match read {
            Ok(BlockAction::Mark) => Action::Mark,
            Ok(BlockAction::Evacuate) => {
                let grace = defaults.evacuation_grace_ms;
                Action::evacuate(self.number("grace_ms", grace, 0..=MAX_DURATION_MS))
            }
            Err(_) => {
                self.fault("action", format!("{action} is not an action"));
                Action::Mark
            }
        };
        let name = match action {
            Action::Mark => BlockAction::Mark,
            Action::Evacuate(_) => BlockAction::Evacuate,
        };
        self.parsed.insert("action".to_owned(), json!(name));
        Class {
            action,
            duration_ms,
        }
    }

    fn chain(&mut self, defaults: Defaults) -> Vec<Rule> {
        let given = match self.given.remove("strategies") {
            Some(Value::Array(given)) if !given.is_empty() && given.len() <= 16 => given,
            _ => {
                let detail = "takes a list of 1 to 16 strategies, each with name and parameters";
                self.fault("strategies", detail.to_owned());
                return Vec::new();
            }
        };
        let (mut rules, mut parsed) = (Vec::new(), Vec::new());
        for (number, value) in given.into_iter().enumerate() {
            let at = format!("{}/strategies/{number}", self.at);
            let order = match serde_json::from_value::<StrategyOrder>(value) {
                Ok(order) => order,
                Err(error) => {
                    self.fault_at(at, error.to_string());
                    continue;
                }
            };
            let given = order.parameters.into_iter().collect();
            if let Some((rule, parameters)) = rule(&order.name, given, &at, defaults, self.faults) {
                rules.push(rule);
                parsed.push(json!({ "name": order.name, "parameters": parameters }));
            }
        }
        self.parsed
            .insert("strategies".to_owned(), Value::Array(parsed));
        rules
    }

    fn finish(self) -> Map<String, Value> {
        for field in self.given.keys() {
            let known: Vec<&str> = self.parsed.keys().map(String::as_str).collect();
            self.faults.push(FieldFault {
                pointer: format!("{}/{field}", self.at),
                detail: match known.as_slice() {
                    [] => "takes no parameters".to_owned(),
                    _ => format!("unknown parameter; known are {}", known.join(", ")),
                },
            });
        }
        self.parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults {
        slow_node_duration_ms: 60_000,
        evacuation_grace_ms: 120_000,
    };

    fn parse_json(value: Value) -> Result<Parsed, Vec<String>> {
        let order = serde_json::from_value(value).unwrap();
        let pointers =
            |faults: Vec<FieldFault>| faults.into_iter().map(|fault| fault.pointer).collect();
        parse(&order, DEFAULTS).map_err(pointers)
    }

    #[test]
    fn missing_parameters_take_their_defaults() {
        let parsed = parse_json(json!({ "name": "failure-count" })).unwrap();
        let expected = Rule::FailureCount {
            failures: 3,
            window_ms: 600_000,
            jobs: 1,
            duration_ms: 600_000,
        };
        assert_eq!(parsed.rule, expected);
        assert_eq!(
            serde_json::to_value(parsed.parameters).unwrap(),
            json!({ "n": 3, "window_ms": 600_000, "m": 1, "duration_ms": 600_000 })
        );
        let parsed = parse_json(json!({ "name": "cause-class" })).unwrap();
        let Rule::CauseClass { classes } = parsed.rule else {
            panic!("another rule");
        };
        assert_eq!(classes.len(), 5);
        assert!(classes.values().all(|class| class.action == Action::Mark));
        assert_eq!(
            parse_json(json!({ "name": "slow-task" }))
                .unwrap()
                .rule
                .longest_window_ms(),
            600_000
        );
    }

    #[test]
    fn returned_parameters_parse_to_the_same_rule() {
        let chain = json!({ "name": "chain", "parameters": { "strategies": [
            { "name": "start-failures", "parameters": { "n": 5 } },
            { "name": "cause-class", "parameters": { "classes": {
                "disk_full": { "action": "MARK_BLOCKED_AND_EVACUATE_TASKS", "duration_ms": 7 },
            } } },
            { "name": "flapping" }, { "name": "slow-task" }, { "name": "none" },
        ] } });
        let parsed = parse_json(chain).unwrap();
        let again = json!({ "name": "chain", "parameters": parsed.parameters });
        assert_eq!(parse_json(again).unwrap(), parsed);
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let table = [
            (json!({ "name": "magic" }), vec!["/name"]),
            (
                json!({ "name": "failure-count", "parameters": { "n": 0, "m": -1, "x": 1 } }),
                vec!["/parameters/n", "/parameters/m", "/parameters/x"],
            ),
            (
                json!({ "name": "none", "parameters": { "n": 1 } }),
                vec!["/parameters/n"],
            ),
            (
                json!({ "name": "cause-class", "parameters": { "classes": {
                    "a": { "action": "destroy", "duration_ms": 0 }, "b": 3,
                } } }),
                vec![
                    "/parameters/classes/a/duration_ms",
                    "/parameters/classes/a/action",
                    "/parameters/classes/b",
                ],
            ),
            (
                json!({ "name": "chain", "parameters": { "strategies": [
                    { "name": "chain" }, { "name": "magic" }, 4,
                    { "name": "flapping", "parameters": { "n": "x" } },
                ] } }),
                vec![
                    "/parameters/strategies/0/name",
                    "/parameters/strategies/1/name",
                    "/parameters/strategies/2",
                    "/parameters/strategies/3/parameters/n",
                ],
            ),
            (json!({ "name": "chain" }), vec!["/parameters/strategies"]),
        ];
        for (value, pointers) in table {
            let found = parse_json(value.clone()).unwrap_err();
            assert_eq!(found, pointers, "{value}");
        }
    }
}
