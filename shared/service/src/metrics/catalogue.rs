//! All metrics, with one file per area. This file has the shared attributes and the list of all
//! metrics.

mod fleet;
mod http_and_process;
mod leadership_and_database;
mod publications_invariants_audit;
mod scheduling;

pub use fleet::*;
pub use http_and_process::*;
pub use leadership_and_database::*;
pub use publications_invariants_audit::*;
pub use scheduling::*;

use super::{Attribute, Metric};

const ALL_SERVICES: &[&str] = &[
    "job-converter",
    "rm-scheduler",
    "container-manager",
    "node-status",
    "blocklist",
];
const ALL_SERVICES_AND_AGENTS: &[&str] = &[
    "job-converter",
    "rm-scheduler",
    "container-manager",
    "node-status",
    "blocklist",
    "node-agent",
];
// Services that report a metric.
const SCHEDULER: &[&str] = &["rm-scheduler"];
const CONTAINERS: &[&str] = &["container-manager"];
const JOBS: &[&str] = &["job-converter"];
const NODES: &[&str] = &["node-status"];
const BLOCKS: &[&str] = &["blocklist"];
const AGENTS: &[&str] = &["node-agent"];

/// Name of the service. A process may run several services.
pub static SERVICE: Attribute = Attribute::listed("hayward.service", ALL_SERVICES_AND_AGENTS);
pub static POOL: Attribute = Attribute::bounded("hayward.pool", "names of pools of the policy");
pub static CLASS: Attribute =
    Attribute::bounded("hayward.class", "names of classes and queues of the policy");
pub static KIND: Attribute =
    Attribute::listed("hayward.work.kind", &["job", "service", "reservation"]);
pub static USER: Attribute = Attribute::bounded(
    "hayward.user",
    "the 50 users with the largest demand, and `other` for the rest; for fairness metrics only",
);

/// Returns all metrics, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let lists = [
        scheduling::ALL,
        fleet::ALL,
        leadership_and_database::ALL,
        publications_invariants_audit::ALL,
        http_and_process::ALL,
    ];
    lists.into_iter().flatten().copied()
}

/// Returns the metric with this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    all().find(|metric| metric.name == name)
}

/// Returns all attributes without duplicates, by key.
pub fn attributes() -> Vec<&'static Attribute> {
    let mut attributes: Vec<_> = all()
        .flat_map(|metric| metric.attributes)
        .copied()
        .collect();
    attributes.sort_by_key(|attribute| attribute.key);
    attributes.dedup_by_key(|attribute| attribute.key);
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Kind, render_docs_page};

    /// A name has no unit and no suffix (T2).
    #[test]
    fn names_and_units_follow_the_conventions() {
        let mut names: Vec<&str> = all().map(|metric| metric.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1], "a name has one meaning");
        }
        for metric in all() {
            let name = metric.name;
            let is_ours = name.starts_with("hayward.");
            let is_standard = ["http.", "db.client."]
                .iter()
                .any(|it| name.starts_with(it));
            assert!(is_ours || is_standard, "{name}");
            let is_name_character = |c: char| c.is_ascii_lowercase() || matches!(c, '.' | '_');
            assert!(name.chars().all(is_name_character), "{name}");
            for banned in ["total", "seconds", "bytes", "count_"] {
                assert!(
                    !name.contains(banned),
                    "{name}: no unit and no total in a name"
                );
            }
            let braced = metric.unit.starts_with('{') && metric.unit.ends_with('}');
            assert!(
                braced || ["s", "By", "1"].contains(&metric.unit),
                "{name}: {}",
                metric.unit
            );
            assert!(!metric.services.is_empty(), "{name}");
            assert!(
                !metric.description.ends_with('.') && metric.description.len() > 10,
                "{name}"
            );
        }
    }

    /// Attributes have few values (T3).
    #[test]
    fn no_attribute_contains_an_id() {
        for attribute in attributes() {
            for banned in ["job", "allocation", "node.name", "container.id", "request"] {
                let allowed = ["hayward.invariant.id", "http.request.method"];
                let has_banned_word = attribute.key.contains(banned);
                assert!(
                    !has_banned_word || allowed.contains(&attribute.key),
                    "{}",
                    attribute.key
                );
            }
        }
    }

    #[test]
    fn prometheus_names_equal_those_of_a_collector() {
        let prometheus_name = |name: &str| find(name).unwrap().prometheus_name();
        assert_eq!(
            prometheus_name("hayward.round.duration"),
            "hayward_round_duration_seconds"
        );
        assert_eq!(
            prometheus_name("hayward.round.placements"),
            "hayward_round_placements_total"
        );
        assert_eq!(
            prometheus_name("hayward.leader.epoch"),
            "hayward_leader_epoch"
        );
        assert_eq!(
            prometheus_name("hayward.leader.leading"),
            "hayward_leader_leading_ratio"
        );
        assert!(all().any(|metric| metric.kind == Kind::Gauge));
    }

    #[test]
    fn the_page_in_the_documentation_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = render_docs_page();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            stored, page,
            "docs/metrics.md is old: run this with BLESS=1"
        );
    }
}
