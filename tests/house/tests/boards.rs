//! Boards and alerts use metrics that exist: every metric, label and listed value is in the
//! catalogue. The fleet test of telemetry compares the catalogue with the metrics that a fleet
//! sends. Every alert has a page and examples, and the files load in Grafana and Prometheus (T8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use hayward_tests_house::promql::{Matcher, Used, used};
use hayward_tests_house::{assert_none, files, read, root};
use serde_json::Value;

const HOME: &str = "docker/observability";
const CATALOGUE: &str = "docs/metrics.md";
const PAGES: &str = "docs/runbooks";

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
    ("burn of G8 and G10, fast", "HaywardObjectiveBurnsFast"),
    ("burn of G8 and G10, slow", "HaywardObjectiveBurnsSlowly"),
    ("audit chain broken", "HaywardAuditBroken"),
    ("insecure mode on", "HaywardInsecureMode"),
    (
        "certificate under a third of its life",
        "HaywardCertificateEnds",
    ),
    ("ping-pong must be 0 (T6)", "HaywardPreemptionInTurn"),
];
/// Boards that are shipped (T7).
const BOARDS: [&str; 8] = [
    "1-fleet-health",
    "2-waiting",
    "3-fairness",
    "4-preemption-and-churn",
    "5-nodes-quarantine-and-drains",
    "6-scheduler-internals",
    "7-api-and-database",
    "8-invariants-and-recovery",
];
/// Metrics that no board shows. The use of old routes is read only once a release.
const NOT_SHOWN: [&str; 1] = ["hayward_api_deprecated_total"];
/// Attributes of the resource. The collector adds them to all series.
const RESOURCE: [&str; 6] = [
    "job",
    "instance",
    "service_name",
    "service_version",
    "service_instance_id",
    "deployment_environment_name",
];

/// Labels of a metric, each with its values if these are a closed list.
#[derive(Debug, Clone, Default)]
struct Labels(BTreeMap<String, Option<BTreeSet<String>>>);

/// Labels by the Prometheus name of the metric.
type Known = BTreeMap<String, Labels>;

fn text(path: &str) -> String {
    read(Path::new(path)).unwrap_or_else(|| panic!("{path} is not there"))
}

fn yaml(path: &str) -> Value {
    yaml_serde::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the texts between backticks.
fn ticked(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn label(attribute: &str) -> String {
    attribute.replace('.', "_")
}

fn catalogue(page: &str) -> Known {
    let cells = |line: &str| -> Option<Vec<String>> {
        let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
        Some(format!("`{row}").split(" | ").map(str::to_owned).collect())
    };
    let rows: Vec<Vec<String>> = page.lines().filter_map(cells).collect();
    // A closed list consists only of words in backticks and commas.
    let listed = |cell: &str| {
        let outside: String = cell.split('`').step_by(2).collect();
        let closed = outside.chars().all(|c| matches!(c, ',' | ' '));
        closed.then(|| ticked(cell).into_iter().collect::<BTreeSet<_>>())
    };
    let pairs = rows.iter().filter(|cells| cells.len() == 2);
    let values: BTreeMap<String, Option<BTreeSet<String>>> = pairs
        .map(|cells| (ticked(&cells[0])[0].clone(), listed(&cells[1])))
        .collect();
    let mut known = Known::new();
    for cells in rows.iter().filter(|cells| cells.len() == 7) {
        let attributes = ticked(&cells[4]);
        let mut labels = Labels::default();
        for attribute in &attributes {
            let closed = values.get(attribute).cloned().flatten();
            labels.0.insert(label(attribute), closed);
        }
        labels
            .0
            .extend(RESOURCE.map(|name| (name.to_owned(), None)));
        let name = ticked(&cells[1])[0].clone();
        if cells[2] == "histogram" {
            known.insert(format!("{name}_sum"), labels.clone());
            known.insert(format!("{name}_count"), labels.clone());
            labels.0.insert("le".to_owned(), None);
            known.insert(format!("{name}_bucket"), labels);
        } else {
            known.insert(name, labels);
        }
    }
    known
}

fn rules() -> Vec<Value> {
    let file = yaml(&format!("{HOME}/alerts.yml"));
    let groups = list(&file, "groups").iter();
    groups
        .flat_map(|group| list(group, "rules").to_vec())
        .collect()
}

fn alerts() -> Vec<Value> {
    let all = rules().into_iter();
    all.filter(|rule| rule["alert"].is_string()).collect()
}

/// Returns the catalogue with the series that rules record, and the series of Prometheus about
/// alerts.
fn known() -> Known {
    let mut known = catalogue(&text(CATALOGUE));
    assert!(known.len() > 50, "{CATALOGUE} is read");
    for rule in rules() {
        let name = word(&rule, "record");
        if !name.is_empty() {
            let more = rule["labels"].as_object().into_iter().flatten();
            let labels = known.entry(name.to_owned()).or_default();
            labels.0.extend(more.map(|(key, _)| (key.clone(), None)));
        }
    }
    let of_alerts = ["alertname", "alertstate", "severity", "hayward_service"];
    let of_alerts = of_alerts.map(|name| (name.to_owned(), None));
    known.insert("ALERTS".to_owned(), Labels(of_alerts.into()));
    known
}

fn boards() -> Vec<(String, Value)> {
    let here = Path::new(HOME).join("boards");
    let all = files().into_iter().filter(|path| path.starts_with(&here));
    let read = all.map(|path| {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let board = serde_json::from_str(&text(&path.display().to_string()));
        (
            name.clone(),
            board.unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    });
    read.collect()
}

/// Returns every expression of a board, with the title of its panel.
fn expressions_of(board: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for panel in list(board, "panels") {
        for target in list(panel, "targets") {
            all.push((
                word(panel, "title").to_owned(),
                word(target, "expr").to_owned(),
            ));
        }
    }
    for variable in list(&board["templating"], "list") {
        all.push((
            word(variable, "name").to_owned(),
            word(&variable["query"], "query").to_owned(),
        ));
    }
    for note in list(&board["annotations"], "list") {
        all.push((word(note, "name").to_owned(), word(note, "expr").to_owned()));
    }
    all
}

fn every_expression() -> Vec<(String, String)> {
    let of_rules = rules().into_iter().map(|rule| {
        let name = format!("{}{}", word(&rule, "alert"), word(&rule, "record"));
        (name, word(&rule, "expr").to_owned())
    });
    let of_boards = boards().into_iter().flat_map(|(name, board)| {
        let all = expressions_of(&board).into_iter();
        all.map(move |(place, expression)| (format!("{name}: {place}"), expression))
    });
    of_rules.chain(of_boards).collect()
}

/// Returns the values of a matcher that no series can have.
fn never(matcher: &Matcher, closed: Option<&BTreeSet<String>>) -> Vec<String> {
    // Variables of Grafana are skipped, and so are patterns other than lists of words.
    let words = matcher.value.split('|');
    let plain = words.filter(|word| {
        word.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            && !word.is_empty()
    });
    let Some(closed) = closed else {
        return Vec::new();
    };
    let lost = plain.filter(|word| !closed.contains(*word));
    lost.map(str::to_owned).collect()
}

/// Returns the metrics, labels and values of an expression that do not exist.
fn unknown(known: &Known, read: &Used) -> Vec<String> {
    let mut found = Vec::new();
    let mut labels = BTreeSet::new();
    for selector in &read.selectors {
        let metric = &selector.metric;
        let Some(of_it) = known.get(metric) else {
            found.push(format!("no metric {metric}"));
            continue;
        };
        labels.extend(of_it.0.keys());
        for matcher in &selector.matchers {
            match of_it.0.get(&matcher.label) {
                None => found.push(format!("no label {} of {metric}", matcher.label)),
                Some(closed) => {
                    let lost = never(matcher, closed.as_ref()).into_iter();
                    found.extend(lost.map(|it| format!("{} is never {it}", matcher.label)));
                }
            }
        }
    }
    let lost = read.labels.iter().filter(|label| !labels.contains(label));
    found.extend(lost.map(|label| format!("no label {label}")));
    found
}

#[test]
fn boards_and_alerts_use_metrics_that_exist() {
    let known = known();
    let mut found = Vec::new();
    let mut count = 0;
    for (place, expression) in every_expression() {
        match used(&expression) {
            Ok(read) => {
                count += read.selectors.len();
                let lost = unknown(&known, &read).into_iter();
                found.extend(lost.map(|it| format!("{place}: {it}")));
            }
            Err(error) => found.push(format!("{place}: {error}: {expression}")),
        }
    }
    assert!(count > 100, "only {count} metrics were checked");
    assert_none("boards and alerts use metrics that exist", &found);
}

#[test]
fn every_metric_is_on_a_board() {
    let expressions = every_expression().into_iter();
    let read = expressions.filter_map(|(_, expression)| used(&expression).ok());
    let used: BTreeSet<String> = read
        .flat_map(|read| read.selectors)
        .map(|selector| selector.metric)
        .collect();
    let shown = |name: &str| {
        let ends = ["", "_bucket", "_sum", "_count"];
        ends.iter()
            .any(|end| used.contains(&format!("{name}{end}")))
    };
    let names = catalogue(&text(CATALOGUE));
    let names = names
        .keys()
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"));
    let found: Vec<String> = names
        .map(|name| name.trim_end_matches("_bucket"))
        .filter(|name| !shown(name) && !NOT_SHOWN.contains(name))
        .map(str::to_owned)
        .collect();
    assert_none("a metric that is on no board", &found);
}

#[test]
fn every_required_alert_exists_and_has_a_page() {
    let mut found = Vec::new();
    let all = alerts();
    let names: BTreeSet<&str> = all.iter().map(|alert| word(alert, "alert")).collect();
    assert_eq!(names.len(), all.len(), "an alert has a name of its own");
    let lost = REQUIRED_ALERTS
        .iter()
        .filter(|(_, alert)| !names.contains(alert));
    found.extend(lost.map(|(what, _)| format!("no alert for: {what}")));
    let index = text(&format!("{PAGES}/README.md"));
    let mut pages = BTreeSet::from([Path::new(PAGES).join("README.md")]);
    for alert in &all {
        let name = word(alert, "alert");
        let path = word(&alert["annotations"], "runbook");
        let page = read(Path::new(path)).unwrap_or_default();
        let names_it = |page: &str| page.contains(&format!("`{name}`"));
        if !names_it(&page) || !page.contains("**Do.**") || !names_it(&index) {
            found.push(format!("{name}: {path} does not say what to do"));
        }
        if !["page", "ticket", "info"].contains(&word(&alert["labels"], "severity")) {
            found.push(format!("{name}: the severity is missing"));
        }
        if word(&alert["annotations"], "summary").is_empty() {
            found.push(format!("{name}: the summary is missing"));
        }
        pages.insert(path.into());
    }
    let written = files().into_iter().filter(|path| path.starts_with(PAGES));
    let lost = written.filter(|path| !pages.contains(path));
    found.extend(lost.map(|path| format!("{}: no alert leads here", path.display())));
    assert_none("an alert has a page", &found);
}

#[test]
fn every_alert_has_examples_of_firing_and_of_silence() {
    let file = yaml(&format!("{HOME}/alerts-test.yml"));
    let groups = list(&file, "tests").iter();
    let tries: Vec<&Value> = groups
        .flat_map(|group| list(group, "alert_rule_test"))
        .collect();
    let tried = |name: &str, fires: bool| {
        tries.iter().any(|one| {
            word(one, "alertname") == name && fires != list(one, "exp_alerts").is_empty()
        })
    };
    let all = alerts();
    let names = all.iter().map(|alert| word(alert, "alert"));
    let found: Vec<String> = names
        .filter(|name| !tried(name, true) || !tried(name, false))
        .map(str::to_owned)
        .collect();
    assert_none(
        "an alert needs an example that fires and one that does not",
        &found,
    );
}

#[test]
fn boards_load_in_grafana() {
    let sources = yaml(&format!("{HOME}/grafana/datasources/hayward.yaml"));
    let sources: BTreeSet<&str> = list(&sources, "datasources")
        .iter()
        .map(|source| word(source, "uid"))
        .collect();
    let boards = boards();
    let names: Vec<&str> = boards.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BOARDS);
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for (name, board) in &boards {
        if !ids.insert(word(board, "uid")) || word(board, "title").is_empty() {
            found.push(format!("{name} has no title or uid of its own"));
        }
        found.extend(faults(board, &sources).map(|fault| format!("{name}: {fault}")));
    }
    assert_none("a board loads in Grafana", &found);
}

fn faults<'a>(board: &'a Value, sources: &BTreeSet<&str>) -> impl Iterator<Item = String> + 'a {
    let mut found = Vec::new();
    let mut places: Vec<(u64, u64, u64, u64)> = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in list(board, "panels") {
        let title = word(panel, "title");
        let grid = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_default();
        let (x, y, w, h) = (grid("x"), grid("y"), grid("w"), grid("h"));
        let apart = |&(left, top, wide, high): &(u64, u64, u64, u64)| {
            left + wide <= x || x + w <= left || top + high <= y || y + h <= top
        };
        if w == 0 || h == 0 || x + w > 24 || !places.iter().all(apart) {
            found.push(format!("{title} overlaps or is too wide"));
        }
        places.push((x, y, w, h));
        if title.is_empty() || !ids.insert(panel["id"].as_u64()) {
            found.push(format!(
                "{title}: a panel has a title and a number of its own"
            ));
        }
        if !sources.contains(word(&panel["datasource"], "uid")) {
            found.push(format!("{title} has no data source"));
        }
        if list(panel, "targets").is_empty() {
            found.push(format!("{title} has no expression"));
        }
    }
    let variables: BTreeSet<&str> = list(&board["templating"], "list")
        .iter()
        .map(|variable| word(variable, "name"))
        .collect();
    for (place, expression) in expressions_of(board) {
        for part in expression.split('$').skip(1) {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &part[..end.unwrap_or(part.len())];
            if name != "__rate_interval" && !variables.contains(name) {
                found.push(format!("{place}: ${name} is not a variable of the board"));
            }
        }
    }
    found.into_iter()
}

/// The test is skipped if promtool is not installed. The gate has it.
#[test]
fn promtool_accepts_rules_examples_and_boards() {
    let home = root().join(HOME);
    let Ok(version) = Command::new("promtool").arg("--version").output() else {
        return;
    };
    assert!(version.status.success());
    let run = |arguments: &[&str]| {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(&home)
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
    let of_metrics = expressions.filter(|(_, expression)| !expression.starts_with("label_values("));
    let rules: Vec<Value> = of_metrics
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
    let known = catalogue(page);
    let lost = |expression: &str| unknown(&known, &used(expression).unwrap()).join("; ");
    assert_eq!(
        lost("sum by (le, e) (a_b_seconds_bucket{c_d=\"one\", e=\"any\"})"),
        ""
    );
    assert_eq!(lost("f_total{job=\"x\"}"), "");
    assert_eq!(lost("a_b_seconds"), "no metric a_b_seconds");
    assert_eq!(lost("f_total{c_d=\"one\"}"), "no label c_d of f_total");
    assert_eq!(lost("sum by (le) (a_b_seconds_sum)"), "no label le");
    assert_eq!(
        lost("a_b_seconds_sum{c_d=~\"two|three\"}"),
        "c_d is never three"
    );
    assert_eq!(lost("a_b_seconds_sum{c_d=~\"$variable\"}"), "");
}
