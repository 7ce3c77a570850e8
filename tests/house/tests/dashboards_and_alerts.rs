//! Boards and alerts use metrics that exist: every metric, label and listed value is in the
//! catalogue `docs/metrics.md`. `tests/fleet/tests/telemetry.rs` compares the catalogue with a real
//! fleet. Every alert has a page and examples, and the files load in Grafana and Prometheus (T8).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use hayward_tests_house::metrics_catalogue::{self, Catalogue, Labels};
use hayward_tests_house::promql::{Matcher, Usage, parse_usage};
use hayward_tests_house::{assert_none, files, read, root};
use serde_json::Value;

const FOLDER: &str = "docker/observability";
const CATALOGUE: &str = "docs/metrics.md";
const RUNBOOKS: &str = "docs/runbooks";

/// Conditions that need an alert, each with its alert (T8).
const REQUIRED_ALERTS: [(&str, &str); 16] = [
    ("any invariant false", "HaywardInvariantBroken"),
    (
        "no effective commit for 30 s with demand",
        "HaywardNoCommit",
    ),
    ("fenced writes", "HaywardFencedWrites"),
    ("oldest wait over class target", "HaywardLongWait"),
    ("preemption budget spent", "HaywardPreemptionBudgetSpent"),
    ("brake engaged", "HaywardBrakeOn"),
    ("pool under floor", "HaywardPoolUnderFloor"),
    (
        "more than 2 % of launches failing in a pool",
        "HaywardLaunchesFail",
    ),
    ("stream or outbox lag", "HaywardFollowerLags"),
    ("parked records", "HaywardPoisonedCommand"),
    ("latency budget burns fast", "HaywardObjectiveBurnsFast"),
    ("latency budget burns slow", "HaywardObjectiveBurnsSlowly"),
    ("audit chain broken", "HaywardAuditBroken"),
    ("insecure mode on", "HaywardInsecureMode"),
    (
        "certificate under a third of its life",
        "HaywardCertificateEnds",
    ),
    ("jobs preempt in turn (T6)", "HaywardPreemptionInTurn"),
];
/// Boards that are shipped (T7).
const BOARD_NAMES: [&str; 8] = [
    "1-fleet-health",
    "2-waiting",
    "3-fairness",
    "4-preemption-and-churn",
    "5-nodes-quarantine-and-drains",
    "6-scheduler-internals",
    "7-api-and-database",
    "8-invariants-and-recovery",
];
/// Width of a board in Grafana, in columns.
const GRID_COLUMNS: u64 = 24;
/// Metrics that no board shows. The use of old routes is read only once a release.
const NOT_SHOWN: [&str; 1] = ["hayward_api_deprecated_total"];

fn read_text(path: &str) -> String {
    read(Path::new(path)).unwrap_or_else(|| panic!("{path} is not there"))
}

fn read_yaml(path: &str) -> Value {
    yaml_serde::from_str(&read_text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn read_rules() -> Vec<Value> {
    let file = read_yaml(&format!("{FOLDER}/alerts.yml"));
    let groups = items(&file, "groups").iter();
    groups
        .flat_map(|group| items(group, "rules").to_vec())
        .collect()
}

fn read_alerts() -> Vec<Value> {
    let all = read_rules().into_iter();
    all.filter(|rule| rule["alert"].is_string()).collect()
}

/// Returns the catalogue with the series that rules record, and the series of Prometheus about
/// alerts.
fn full_catalogue() -> Catalogue {
    let mut catalogue = metrics_catalogue::parse(&read_text(CATALOGUE));
    assert!(catalogue.len() > 50, "{CATALOGUE} is read");
    for rule in read_rules() {
        let name = text(&rule, "record");
        if !name.is_empty() {
            let names = rule["labels"].as_object().into_iter().flatten();
            let labels = catalogue.entry(name.to_owned()).or_default();
            labels.0.extend(names.map(|(key, _)| (key.clone(), None)));
        }
    }
    let alert_labels = ["alertname", "alertstate", "severity", "hayward_service"];
    let alert_labels = alert_labels.map(|name| (name.to_owned(), None));
    catalogue.insert("ALERTS".to_owned(), Labels(alert_labels.into()));
    catalogue
}

fn read_boards() -> Vec<(String, Value)> {
    let folder = Path::new(FOLDER).join("boards");
    let paths = files().into_iter().filter(|path| path.starts_with(&folder));
    let boards = paths.map(|path| {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let board = serde_json::from_str(&read_text(&path.display().to_string()));
        (
            name.clone(),
            board.unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    });
    boards.collect()
}

/// Returns every expression of a board, with the title of its panel.
fn expressions_of(board: &Value) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for panel in items(board, "panels") {
        for target in items(panel, "targets") {
            pairs.push((
                text(panel, "title").to_owned(),
                text(target, "expr").to_owned(),
            ));
        }
    }
    for variable in items(&board["templating"], "list") {
        pairs.push((
            text(variable, "name").to_owned(),
            text(&variable["query"], "query").to_owned(),
        ));
    }
    for note in items(&board["annotations"], "list") {
        pairs.push((text(note, "name").to_owned(), text(note, "expr").to_owned()));
    }
    pairs
}

fn every_expression() -> Vec<(String, String)> {
    let rule_expressions = read_rules().into_iter().map(|rule| {
        let name = format!("{}{}", text(&rule, "alert"), text(&rule, "record"));
        (name, text(&rule, "expr").to_owned())
    });
    let board_expressions = read_boards().into_iter().flat_map(|(name, board)| {
        let expressions = expressions_of(&board).into_iter();
        expressions.map(move |(title, expression)| (format!("{name}: {title}"), expression))
    });
    rule_expressions.chain(board_expressions).collect()
}

/// Returns the values of a matcher that no series can have. `allowed` is `None` if the label may
/// have any value.
fn impossible_values(matcher: &Matcher, allowed: Option<&BTreeSet<String>>) -> Vec<String> {
    // Variables of Grafana are skipped, and so are patterns other than lists of words.
    let words = matcher.value.split('|');
    let plain_words = words.filter(|word| {
        word.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            && !word.is_empty()
    });
    let Some(allowed) = allowed else {
        return Vec::new();
    };
    let impossible = plain_words.filter(|word| !allowed.contains(*word));
    impossible.map(str::to_owned).collect()
}

/// Returns the metrics, labels and values of an expression that do not exist.
fn unknown_names(catalogue: &Catalogue, usage: &Usage) -> Vec<String> {
    let mut found = Vec::new();
    let mut labels = BTreeSet::new();
    for selector in &usage.selectors {
        let metric = &selector.metric;
        let Some(known_labels) = catalogue.get(metric) else {
            found.push(format!("no metric {metric}"));
            continue;
        };
        labels.extend(known_labels.0.keys());
        for matcher in &selector.matchers {
            match known_labels.0.get(&matcher.label) {
                None => found.push(format!("no label {} of {metric}", matcher.label)),
                Some(allowed) => {
                    let impossible = impossible_values(matcher, allowed.as_ref()).into_iter();
                    found.extend(impossible.map(|it| format!("{} is never {it}", matcher.label)));
                }
            }
        }
    }
    let missing = usage.labels.iter().filter(|label| !labels.contains(label));
    found.extend(missing.map(|label| format!("no label {label}")));
    found
}

#[test]
fn boards_and_alerts_use_metrics_that_exist() {
    let catalogue = full_catalogue();
    let mut found = Vec::new();
    let mut count = 0;
    for (location, expression) in every_expression() {
        match parse_usage(&expression) {
            Ok(usage) => {
                count += usage.selectors.len();
                let missing = unknown_names(&catalogue, &usage).into_iter();
                found.extend(missing.map(|it| format!("{location}: {it}")));
            }
            Err(error) => found.push(format!("{location}: {error}: {expression}")),
        }
    }
    assert!(count > 100, "only {count} metrics were checked");
    assert_none("boards and alerts use metrics that exist", &found);
}

#[test]
fn every_metric_is_on_a_board() {
    let expressions = every_expression().into_iter();
    let usages = expressions.filter_map(|(_, expression)| parse_usage(&expression).ok());
    let used_metrics: BTreeSet<String> = usages
        .flat_map(|usage| usage.selectors)
        .map(|selector| selector.metric)
        .collect();
    let is_shown = |name: &str| {
        let suffixes = ["", "_bucket", "_sum", "_count"];
        suffixes
            .iter()
            .any(|end| used_metrics.contains(&format!("{name}{end}")))
    };
    let names = metrics_catalogue::parse(&read_text(CATALOGUE));
    let names = names
        .keys()
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"));
    let found: Vec<String> = names
        .map(|name| name.trim_end_matches("_bucket"))
        .filter(|name| !is_shown(name) && !NOT_SHOWN.contains(name))
        .map(str::to_owned)
        .collect();
    assert_none("a metric that is on no board", &found);
}

#[test]
fn every_required_alert_exists_and_has_a_page() {
    let mut found = Vec::new();
    let all = read_alerts();
    let names: BTreeSet<&str> = all.iter().map(|alert| text(alert, "alert")).collect();
    assert_eq!(names.len(), all.len(), "an alert has a name of its own");
    let missing = REQUIRED_ALERTS
        .iter()
        .filter(|(_, alert)| !names.contains(alert));
    found.extend(missing.map(|(condition, _)| format!("no alert for: {condition}")));
    let index = read_text(&format!("{RUNBOOKS}/README.md"));
    let mut pages = BTreeSet::from([Path::new(RUNBOOKS).join("README.md")]);
    for alert in &all {
        let name = text(alert, "alert");
        let path = text(&alert["annotations"], "runbook");
        let page = read(Path::new(path)).unwrap_or_default();
        let mentions_alert = |page: &str| page.contains(&format!("`{name}`"));
        if !mentions_alert(&page) || !page.contains("**Do.**") || !mentions_alert(&index) {
            found.push(format!("{name}: {path} does not say what to do"));
        }
        if !["page", "ticket", "info"].contains(&text(&alert["labels"], "severity")) {
            found.push(format!("{name}: the severity is missing"));
        }
        if text(&alert["annotations"], "summary").is_empty() {
            found.push(format!("{name}: the summary is missing"));
        }
        pages.insert(path.into());
    }
    let written = files().into_iter().filter(|it| it.starts_with(RUNBOOKS));
    let missing = written.filter(|path| !pages.contains(path));
    found.extend(missing.map(|path| format!("{}: no alert leads here", path.display())));
    assert_none("an alert has a page", &found);
}

#[test]
fn every_alert_has_examples_of_firing_and_of_silence() {
    let file = read_yaml(&format!("{FOLDER}/alerts-test.yml"));
    let groups = items(&file, "tests").iter();
    let examples: Vec<&Value> = groups
        .flat_map(|group| items(group, "alert_rule_test"))
        .collect();
    let has_example = |name: &str, fires: bool| {
        examples.iter().any(|example| {
            text(example, "alertname") == name && fires != items(example, "exp_alerts").is_empty()
        })
    };
    let all = read_alerts();
    let names = all.iter().map(|alert| text(alert, "alert"));
    let found: Vec<String> = names
        .filter(|name| !has_example(name, true) || !has_example(name, false))
        .map(str::to_owned)
        .collect();
    assert_none(
        "an alert needs an example that fires and one that does not",
        &found,
    );
}

#[test]
fn boards_load_in_grafana() {
    let sources = read_yaml(&format!("{FOLDER}/grafana/datasources/hayward.yaml"));
    let sources: BTreeSet<&str> = items(&sources, "datasources")
        .iter()
        .map(|source| text(source, "uid"))
        .collect();
    let boards = read_boards();
    let names: Vec<&str> = boards.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BOARD_NAMES);
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for (name, board) in &boards {
        if !ids.insert(text(board, "uid")) || text(board, "title").is_empty() {
            found.push(format!("{name} has no title or uid of its own"));
        }
        found.extend(faults_in(board, &sources).map(|fault| format!("{name}: {fault}")));
    }
    assert_none("a board loads in Grafana", &found);
}

/// The area of a panel on the grid of a board.
struct Rectangle {
    left: u64,
    top: u64,
    width: u64,
    height: u64,
}

impl Rectangle {
    fn from_panel(panel: &Value) -> Self {
        let position = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_default();
        Self {
            left: position("x"),
            top: position("y"),
            width: position("w"),
            height: position("h"),
        }
    }

    fn right(&self) -> u64 {
        self.left + self.width
    }

    fn bottom(&self) -> u64 {
        self.top + self.height
    }

    fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.top < other.bottom()
            && other.top < self.bottom()
    }
}

/// Returns the faults of a board that prevent Grafana from showing it as intended. `sources` are
/// the ids of the data sources.
fn faults_in<'a>(board: &'a Value, sources: &BTreeSet<&str>) -> impl Iterator<Item = String> + 'a {
    let mut found = Vec::new();
    let mut occupied: Vec<Rectangle> = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in items(board, "panels") {
        let title = text(panel, "title");
        let area = Rectangle::from_panel(panel);
        let is_overlapping = occupied.iter().any(|other| area.overlaps(other));
        if area.is_empty() || area.right() > GRID_COLUMNS || is_overlapping {
            found.push(format!("{title} overlaps or is too wide"));
        }
        occupied.push(area);
        if title.is_empty() || !ids.insert(panel["id"].as_u64()) {
            found.push(format!(
                "{title}: a panel has a title and a number of its own"
            ));
        }
        if !sources.contains(text(&panel["datasource"], "uid")) {
            found.push(format!("{title} has no data source"));
        }
        if items(panel, "targets").is_empty() {
            found.push(format!("{title} has no expression"));
        }
    }
    let variables: BTreeSet<&str> = items(&board["templating"], "list")
        .iter()
        .map(|variable| text(variable, "name"))
        .collect();
    for (title, expression) in expressions_of(board) {
        for part in expression.split('$').skip(1) {
            let name_end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &part[..name_end.unwrap_or(part.len())];
            if name != "__rate_interval" && !variables.contains(name) {
                found.push(format!("{title}: ${name} is not a variable of the board"));
            }
        }
    }
    found.into_iter()
}

/// Without promtool on this machine, the test passes without a check.
#[test]
fn promtool_accepts_rules_examples_and_boards() {
    let folder = root().join(FOLDER);
    let Ok(version) = Command::new("promtool").arg("--version").output() else {
        return;
    };
    assert!(version.status.success());
    let run = |arguments: &[&str]| {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(&folder)
            .output()
            .expect("promtool runs, for it did before");
        assert!(
            output.status.success(),
            "promtool {arguments:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(&["check", "config", "prometheus.yml"]);
    run(&["test", "rules", "alerts-test.yml"]);
    // Expressions of boards are checked as rules.
    let expressions = every_expression().into_iter();
    let checkable = expressions.filter(|(_, expression)| !expression.starts_with("label_values("));
    let rules: Vec<Value> = checkable
        .enumerate()
        .map(|(number, (_, expression))| {
            let expression = expression.replace("$__rate_interval", "5m");
            serde_json::json!({"record": format!("board:{number}"), "expr": expression})
        })
        .collect();
    let file = serde_json::json!({"groups": [{"name": "boards", "rules": rules}]});
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boards.json");
    std::fs::write(&path, file.to_string()).expect("the test folder can be written");
    run(&["check", "rules", &path.display().to_string()]);
}

#[test]
fn unknown_metrics_labels_and_values_are_found() {
    let page = "| `a.b` | `a_b_seconds` | histogram | `s` | `c.d`, `e` | x | what |\n\
                | `f` | `f_total` | counter | `{g}` |  | x | what |\n\
                | `c.d` | `one`, `two` |\n| `e` | what the policy names |\n";
    let catalogue = metrics_catalogue::parse(page);
    let problems = |query: &str| unknown_names(&catalogue, &parse_usage(query).unwrap()).join("; ");
    assert_eq!(
        problems("sum by (le, e) (a_b_seconds_bucket{c_d=\"one\", e=\"any\"})"),
        ""
    );
    assert_eq!(problems("f_total{job=\"x\"}"), "");
    assert_eq!(problems("a_b_seconds"), "no metric a_b_seconds");
    assert_eq!(problems("f_total{c_d=\"one\"}"), "no label c_d of f_total");
    assert_eq!(problems("sum by (le) (a_b_seconds_sum)"), "no label le");
    assert_eq!(
        problems("a_b_seconds_sum{c_d=~\"two|three\"}"),
        "c_d is never three"
    );
    assert_eq!(problems("a_b_seconds_sum{c_d=~\"$variable\"}"), "");
}
