//! All metrics, with one file per area. This file has the shared attributes and the list of all
//! metrics.

mod fleet;
mod frame;
mod keeping;
mod scheduling;

pub use fleet::*;
pub use frame::*;
pub use keeping::*;
pub use scheduling::*;

use super::{Attribute, Metric};

const ALL_SERVICES: &[&str] = &[
    "job-converter",
    "rm-scheduler",
    "container-manager",
    "node-status",
    "blocklist",
];
const EVERYBODY: &[&str] = &[
    "job-converter",
    "rm-scheduler",
    "container-manager",
    "node-status",
    "blocklist",
    "node-agent",
];
const SCHEDULER: &[&str] = &["rm-scheduler"];
const CONTAINERS: &[&str] = &["container-manager"];
const JOBS: &[&str] = &["job-converter"];
const NODES: &[&str] = &["node-status"];
const BLOCKS: &[&str] = &["blocklist"];
const AGENT: &[&str] = &["node-agent"];

/// Name of the service. A process may run several services.
pub static SERVICE: Attribute = Attribute::listed("hayward.service", EVERYBODY);
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
    let lists = [scheduling::ALL, fleet::ALL, keeping::ALL, frame::ALL];
    lists.into_iter().flatten().copied()
}

/// Returns the metric with this name.
pub fn named(name: &str) -> Option<&'static Metric> {
    all().find(|metric| metric.name == name)
}

/// Returns all attributes without duplicates, by key.
pub fn attributes() -> Vec<&'static Attribute> {
    let mut keys: Vec<_> = all()
        .flat_map(|metric| metric.attributes)
        .copied()
        .collect();
    keys.sort_by_key(|attribute| attribute.key);
    keys.dedup_by_key(|attribute| attribute.key);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Kind, document};

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
            let own = name.starts_with("hayward.");
            let common = ["http.", "db.client."]
                .iter()
                .any(|it| name.starts_with(it));
            assert!(own || common, "{name}");
            let plain = |c: char| c.is_ascii_lowercase() || matches!(c, '.' | '_');
            assert!(name.chars().all(plain), "{name}");
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
                !metric.what.ends_with('.') && metric.what.len() > 10,
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
                let named = attribute.key.contains(banned);
                assert!(
                    !named || allowed.contains(&attribute.key),
                    "{}",
                    attribute.key
                );
            }
        }
    }

    #[test]
    fn prometheus_names_equal_those_of_a_collector() {
        let prometheus = |name: &str| named(name).unwrap().prometheus();
        assert_eq!(
            prometheus("hayward.round.duration"),
            "hayward_round_duration_seconds"
        );
        assert_eq!(
            prometheus("hayward.round.placements"),
            "hayward_round_placements_total"
        );
        assert_eq!(prometheus("hayward.leader.epoch"), "hayward_leader_epoch");
        assert_eq!(
            prometheus("hayward.leader.leading"),
            "hayward_leader_leading_ratio"
        );
        assert!(all().any(|metric| metric.kind == Kind::Gauge));
    }

    #[test]
    fn the_page_in_the_documentation_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = document();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(there, page, "docs/metrics.md is old: run this with BLESS=1");
    }
}
