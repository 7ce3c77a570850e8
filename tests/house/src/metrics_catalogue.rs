//! The catalogue of metrics `docs/metrics.md`, as Prometheus names the metrics and their labels.

use std::collections::{BTreeMap, BTreeSet};

/// Attributes of the resource. The collector adds them to all series.
const RESOURCE_LABELS: [&str; 6] = [
    "job",
    "instance",
    "service_name",
    "service_version",
    "service_instance_id",
    "deployment_environment_name",
];

/// Labels of a metric, each with its values if these are a closed list.
#[derive(Debug, Clone, Default)]
pub struct Labels(pub BTreeMap<String, Option<BTreeSet<String>>>);

/// Labels by the Prometheus name of the metric.
pub type Catalogue = BTreeMap<String, Labels>;

/// Reads the catalogue from its page. A row of seven cells describes a metric, and a row of two
/// cells the values of an attribute.
#[must_use]
pub fn parse(page: &str) -> Catalogue {
    let rows: Vec<Vec<String>> = page.lines().filter_map(parse_row).collect();
    let values_by_attribute: BTreeMap<String, Option<BTreeSet<String>>> = rows
        .iter()
        .filter_map(|cells| match &cells[..] {
            [attribute, values] => Some((first_code_span(attribute)?, closed_list(values))),
            _ => None,
        })
        .collect();
    let mut catalogue = Catalogue::new();
    for cells in &rows {
        let [_, name, kind, _, attributes, _, _] = &cells[..] else {
            continue;
        };
        let Some(name) = first_code_span(name) else {
            continue;
        };
        let mut labels = Labels::default();
        for attribute in code_spans(attributes) {
            let closed_values = values_by_attribute.get(&attribute).cloned().flatten();
            labels.0.insert(label_name(&attribute), closed_values);
        }
        let resource_labels = RESOURCE_LABELS.map(|name| (name.to_owned(), None));
        labels.0.extend(resource_labels);
        if kind == "histogram" {
            // Prometheus has three series for a histogram. The label `le` is the bound of a bucket.
            catalogue.insert(format!("{name}_sum"), labels.clone());
            catalogue.insert(format!("{name}_count"), labels.clone());
            labels.0.insert("le".to_owned(), None);
            catalogue.insert(format!("{name}_bucket"), labels);
        } else {
            catalogue.insert(name, labels);
        }
    }
    catalogue
}

/// Returns the cells of a row that begins with a text in backticks.
fn parse_row(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
    Some(format!("`{row}").split(" | ").map(str::to_owned).collect())
}

/// Returns the values in a cell. Returns `None` if the cell is not a closed list, which consists
/// only of words in backticks and commas.
fn closed_list(cell: &str) -> Option<BTreeSet<String>> {
    let outside_spans: String = cell.split('`').step_by(2).collect();
    let is_closed = outside_spans.chars().all(|c| matches!(c, ',' | ' '));
    is_closed.then(|| code_spans(cell).into_iter().collect())
}

/// Returns the texts between backticks.
fn code_spans(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn first_code_span(text: &str) -> Option<String> {
    code_spans(text).into_iter().next()
}

fn label_name(attribute: &str) -> String {
    attribute.replace('.', "_")
}
