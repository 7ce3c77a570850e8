//! Parses a strategy of automatic blocks and its parameters into a rule. The parser collects all
//! faults, and adds the defaults of absent parameters.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hayward_blocklist_api::{BlockAction, StrategyOrder};
use hayward_blocklist_domain::{Action, ClassPolicy, Rule};
use hayward_service::http::problem::FieldFault;
use serde_json::{Map, Value, json};

const STRATEGY_NAMES: &str =
    "none, failure-count, cause-class, start-failures, flapping, slow-task or chain";
/// Maximum window: one day. Longer windows would count facts that operators no longer remember.
const MAX_WINDOW_MS: u64 = 86_400_000;
/// Maximum duration of a block: one week.
const MAX_DURATION_MS: u64 = 604_800_000;
/// Maximum number of failures, jobs or flaps that a rule may require.
const MAX_COUNT: u64 = 10_000;
/// Cause classes that count against the node, with the default duration of their block in
/// milliseconds. Their default action is a mark, so that running work continues.
const DEFAULT_CLASSES: [(&str, u64); 5] = [
    ("device_error", 3_600_000),
    ("disk_full", 1_800_000),
    ("image_pull", 600_000),
    ("read_only_fs", 3_600_000),
    ("runtime_down", 600_000),
];

/// Defaults of parameters that come from the settings of the service.
#[derive(Debug, Clone, Copy)]
pub struct StrategyDefaults {
    pub slow_node_duration_ms: u64,
    pub evacuation_grace_ms: u64,
}

/// A rule and all its parameters.
#[derive(Debug, PartialEq)]
pub struct ParsedStrategy {
    pub rule: Rule,
    pub parameters: BTreeMap<String, Value>,
}

/// Parses a strategy.
///
/// # Errors
/// Returns all faults.
pub fn parse(
    request: &StrategyOrder,
    defaults: StrategyDefaults,
) -> Result<ParsedStrategy, Vec<FieldFault>> {
    let mut faults = Vec::new();
    let parameters = request.parameters.clone().into_iter().collect();
    let rule = parse_rule(&request.name, parameters, "", defaults, &mut faults);
    match rule {
        Some((rule, parameters)) if faults.is_empty() => Ok(ParsedStrategy {
            rule,
            parameters: parameters.into_iter().collect(),
        }),
        _ => Err(faults),
    }
}

/// Parses a rule at `pointer`. Returns the rule and all its parameters.
fn parse_rule(
    name: &str,
    parameters: Map<String, Value>,
    pointer: &str,
    defaults: StrategyDefaults,
    faults: &mut Vec<FieldFault>,
) -> Option<(Rule, Map<String, Value>)> {
    let name_pointer = format!("{pointer}/name");
    let mut reader = ParameterReader {
        pointer: format!("{pointer}/parameters"),
        remaining: parameters,
        parsed: Map::new(),
        faults,
    };
    let rule = match name {
        "none" => Rule::None,
        "failure-count" => Rule::FailureCount {
            failures: reader.take_number("n", 3, 1..=MAX_COUNT),
            window_ms: reader.take_number("window_ms", 600_000, 1..=MAX_WINDOW_MS),
            jobs: reader.take_number("m", 1, 1..=MAX_COUNT),
            duration_ms: reader.take_number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "start-failures" => Rule::StartFailures {
            failures: reader.take_number("n", 3, 1..=MAX_COUNT),
            window_ms: reader.take_number("window_ms", 300_000, 1..=MAX_WINDOW_MS),
            duration_ms: reader.take_number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "flapping" => Rule::Flapping {
            flaps: reader.take_number("n", 4, 1..=MAX_COUNT),
            window_ms: reader.take_number("window_ms", 900_000, 1..=MAX_WINDOW_MS),
            duration_ms: reader.take_number("duration_ms", 600_000, 1..=MAX_DURATION_MS),
        },
        "slow-task" => {
            let default_ms = defaults.slow_node_duration_ms;
            Rule::SlowTask {
                duration_ms: reader.take_number("duration_ms", default_ms, 0..=MAX_DURATION_MS),
            }
        }
        "cause-class" => Rule::CauseClass {
            classes: reader.take_classes(defaults),
        },
        "chain" if pointer.is_empty() => Rule::Chain(reader.take_chain(defaults)),
        "chain" => {
            reader.add_fault_at(name_pointer, "a chain must not contain a chain".to_owned());
            return None;
        }
        unknown => {
            reader.add_fault_at(
                name_pointer,
                format!("{unknown:?} must be {STRATEGY_NAMES}"),
            );
            return None;
        }
    };
    let parsed = reader.finish();
    Some((rule, parsed))
}

/// Takes known parameters one by one. The parameters that remain at the end are unknown.
struct ParameterReader<'a> {
    /// Pointer of the parameters.
    pointer: String,
    /// Parameters that were not taken yet.
    remaining: Map<String, Value>,
    /// Parameters that were taken, including defaults.
    parsed: Map<String, Value>,
    faults: &'a mut Vec<FieldFault>,
}

impl ParameterReader<'_> {
    fn add_fault_at(&mut self, pointer: String, detail: String) {
        self.faults.push(FieldFault { pointer, detail });
    }

    fn add_fault(&mut self, field: &str, detail: String) {
        self.add_fault_at(format!("{}/{field}", self.pointer), detail);
    }

    fn take_number(&mut self, field: &str, default: u64, range: RangeInclusive<u64>) -> u64 {
        let number = match self.remaining.remove(field) {
            None => default,
            Some(value) => {
                let number = value.as_u64().filter(|number| range.contains(number));
                number.unwrap_or_else(|| {
                    let (min, max) = (range.start(), range.end());
                    let detail = format!("must be a whole number from {min} to {max}");
                    self.add_fault(field, detail);
                    default
                })
            }
        };
        self.parsed.insert(field.to_owned(), number.into());
        number
    }

    fn take_classes(&mut self, defaults: StrategyDefaults) -> BTreeMap<String, ClassPolicy> {
        let default_classes = || {
            let class = |(name, ms): (&str, u64)| {
                let action = "MARK_BLOCKLISTED";
                (
                    name.to_owned(),
                    json!({ "action": action, "duration_ms": ms }),
                )
            };
            Value::Object(DEFAULT_CLASSES.into_iter().map(class).collect())
        };
        let value = self
            .remaining
            .remove("classes")
            .unwrap_or_else(default_classes);
        let Value::Object(values) = value else {
            let detail = "must be an object from cause class to its action and duration";
            self.add_fault("classes", detail.to_owned());
            return BTreeMap::new();
        };
        if values.is_empty() {
            let detail = "must have at least one class; use the strategy `none` for no class";
            self.add_fault("classes", detail.to_owned());
        }
        let mut classes = BTreeMap::new();
        let mut parsed = Map::new();
        for (name, value) in values {
            let pointer = format!("{}/classes/{name}", self.pointer);
            let Value::Object(parameters) = value else {
                let detail = "must be an object with action and duration_ms";
                self.add_fault_at(pointer, detail.to_owned());
                continue;
            };
            let mut reader = ParameterReader {
                pointer,
                remaining: parameters,
                parsed: Map::new(),
                faults: self.faults,
            };
            let class = reader.take_class_policy(defaults);
            parsed.insert(name.clone(), Value::Object(reader.finish()));
            classes.insert(name, class);
        }
        self.parsed
            .insert("classes".to_owned(), Value::Object(parsed));
        classes
    }

    fn take_class_policy(&mut self, defaults: StrategyDefaults) -> ClassPolicy {
        let action = self.remaining.remove("action");
        let action = action.unwrap_or_else(|| json!("MARK_BLOCKLISTED"));
        let parsed = serde_json::from_value::<BlockAction>(action.clone());
        let duration_ms = self.take_number("duration_ms", 600_000, 1..=MAX_DURATION_MS);
        let action = match parsed {
            Ok(BlockAction::Mark) => Action::Mark,
            Ok(BlockAction::Evacuate) => {
                let default_ms = defaults.evacuation_grace_ms;
                Action::evacuate(self.take_number("grace_ms", default_ms, 0..=MAX_DURATION_MS))
            }
            Err(_) => {
                self.add_fault("action", format!("unknown action {action}"));
                Action::Mark
            }
        };
        let name = match action {
            Action::Mark => BlockAction::Mark,
            Action::Evacuate(_) => BlockAction::Evacuate,
        };
        self.parsed.insert("action".to_owned(), json!(name));
        ClassPolicy {
            action,
            duration_ms,
        }
    }

    fn take_chain(&mut self, defaults: StrategyDefaults) -> Vec<Rule> {
        let values = match self.remaining.remove("strategies") {
            Some(Value::Array(values)) if (1..=16).contains(&values.len()) => values,
            _ => {
                let detail = "must be a list of 1 to 16 strategies, each with name and parameters";
                self.add_fault("strategies", detail.to_owned());
                return Vec::new();
            }
        };
        let (mut rules, mut parsed) = (Vec::new(), Vec::new());
        for (index, value) in values.into_iter().enumerate() {
            let pointer = format!("{}/strategies/{index}", self.pointer);
            let request = match serde_json::from_value::<StrategyOrder>(value) {
                Ok(request) => request,
                Err(error) => {
                    self.add_fault_at(pointer, error.to_string());
                    continue;
                }
            };
            let parameters = request.parameters.into_iter().collect();
            let rule = parse_rule(&request.name, parameters, &pointer, defaults, self.faults);
            if let Some((rule, parameters)) = rule {
                rules.push(rule);
                parsed.push(json!({ "name": request.name, "parameters": parameters }));
            }
        }
        self.parsed
            .insert("strategies".to_owned(), Value::Array(parsed));
        rules
    }

    /// Reports the remaining parameters as unknown. Returns all parameters that were taken.
    fn finish(self) -> Map<String, Value> {
        for field in self.remaining.keys() {
            let known: Vec<&str> = self.parsed.keys().map(String::as_str).collect();
            self.faults.push(FieldFault {
                pointer: format!("{}/{field}", self.pointer),
                detail: match known.as_slice() {
                    [] => "unknown parameter; the strategy has none".to_owned(),
                    _ => format!("unknown parameter; must be one of {}", known.join(", ")),
                },
            });
        }
        self.parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: StrategyDefaults = StrategyDefaults {
        slow_node_duration_ms: 60_000,
        evacuation_grace_ms: 120_000,
    };

    fn parse_json(value: Value) -> Result<ParsedStrategy, Vec<String>> {
        let request = serde_json::from_value(value).unwrap();
        let pointers =
            |faults: Vec<FieldFault>| faults.into_iter().map(|fault| fault.pointer).collect();
        parse(&request, DEFAULTS).map_err(pointers)
    }

    #[test]
    fn missing_parameters_take_their_defaults() {
        let strategy = parse_json(json!({ "name": "failure-count" })).unwrap();
        let expected = Rule::FailureCount {
            failures: 3,
            window_ms: 600_000,
            jobs: 1,
            duration_ms: 600_000,
        };
        assert_eq!(strategy.rule, expected);
        assert_eq!(
            serde_json::to_value(strategy.parameters).unwrap(),
            json!({ "n": 3, "window_ms": 600_000, "m": 1, "duration_ms": 600_000 })
        );
        let strategy = parse_json(json!({ "name": "cause-class" })).unwrap();
        let Rule::CauseClass { classes } = strategy.rule else {
            panic!("must be the rule of the strategy");
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
        let strategy = parse_json(chain).unwrap();
        let parameters = &strategy.parameters;
        let reparsed = parse_json(json!({ "name": "chain", "parameters": parameters })).unwrap();
        assert_eq!(reparsed, strategy);
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let cases = [
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
        for (value, pointers) in cases {
            let faults = parse_json(value.clone()).unwrap_err();
            assert_eq!(faults, pointers, "{value}");
        }
    }
}
