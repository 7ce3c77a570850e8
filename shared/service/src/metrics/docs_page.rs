//! The page `docs/metrics.md`, generated from the catalogue. A test keeps it up to date.

use std::fmt::Write as _;

use super::{Group, Metric, Values, catalogue};

const HEADER: &str = "# Metrics

Metrics that Hayward sends to an OpenTelemetry collector, or serves to Prometheus (T1, T2, T3, T6).
`BLESS=1 cargo test --locked -p hayward-service --lib catalogue` makes this page from
`shared/service/src/metrics/catalogue*`, and a test keeps it so. The fleet test `telemetry` compares
it with the metrics of a fleet.

Names and units are those of OpenTelemetry. The second column has the name in Prometheus. A
histogram there has the endings `_bucket`, `_sum` and `_count`, and dots in attributes become
underscores (`hayward.service` is the label `hayward_service`). No attribute has the id of a job, an
allocation or a node. A metric marked *rare* exists only after something unusual has happened. The
resource has `service.name` (`hayward-rm-scheduler`; `hayward-up` for a process with several
services), `service.version`, `service.instance.id` and `deployment.environment.name`.
";

/// Returns the title of a group on the page.
fn group_title(group: Group) -> &'static str {
    match group {
        Group::Waiting => "Waiting",
        Group::Rounds => "Rounds",
        Group::Fairness => "Fairness",
        Group::Preemption => "Preemption",
        Group::Gangs => "Gangs",
        Group::Nodes => "Nodes, pools and quarantine",
        Group::Agents => "Agents",
        Group::Leadership => "Leadership",
        Group::Database => "Database",
        Group::Stream => "Stream (publications and their followers)",
        Group::Invariants => "Invariants",
        Group::Audit => "Audit records",
        Group::Work => "Work and containers",
        Group::Placements => "Placements (moves of processes)",
        Group::Http => "HTTP",
        Group::Process => "The process and its telemetry",
    }
}

fn write_row(page: &mut String, metric: &Metric) {
    let keys: Vec<String> = metric
        .attributes
        .iter()
        .map(|attribute| format!("`{}`", attribute.key))
        .collect();
    let suffix = if metric.always_reported {
        ""
    } else {
        " (rare)"
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "| `{}` | `{}` | {} | `{}` | {} | {} | {}{suffix} |",
        metric.name,
        metric.prometheus_name(),
        metric.kind.as_str(),
        metric.unit,
        keys.join(", "),
        metric.services.join(", "),
        metric.description,
    );
}

/// Returns the complete page.
pub fn render_docs_page() -> String {
    let mut page = HEADER.to_owned();
    let mut groups: Vec<Group> = catalogue::all().map(|metric| metric.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let _ = write!(
            page,
            "\n## {}\n\n| Name | In Prometheus | Kind | Unit | Attributes | Reported by | \
             Meaning |\n\
             |---|---|---|---|---|---|---|\n",
            group_title(group)
        );
        for metric in catalogue::all().filter(|metric| metric.group == group) {
            write_row(&mut page, metric);
        }
    }
    page.push_str("\n## Attributes\n\n| Key | Values |\n|---|---|\n");
    for attribute in catalogue::attributes() {
        let values = match attribute.values {
            Values::Listed(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
            Values::Bounded(description) => description.to_owned(),
        };
        let _ = writeln!(page, "| `{}` | {values} |", attribute.key);
    }
    page.push_str(FOOTER);
    page
}

const FOOTER: &str = "
## Metrics that do not exist

* An outbox and its lag: there is none. Committed data is in memory and visible when its commit
  returns (decision 0004). `hayward.committer.waiting` counts the commands that wait before it.
* Parked records: there are none. A command that panics fails its batch, which is counted in
  `hayward.database.retries` with the cause `panic`.
";
