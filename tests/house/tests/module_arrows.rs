//! Arrows between the modules of a crate.
//!
//! One table per crate lists its modules in rows, from the bottom to the top. A module may use only
//! modules of earlier rows, and not of its own row. Modules below another one (`ledger/keep.rs`)
//! count as the outer one (`ledger`).

use std::collections::BTreeMap;

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::modules::{Arrows, arrows, circles};
use hayward_tests_house::packages;

/// The modules of one crate, row by row from the bottom.
struct Layers {
    package: &'static str,
    rows: &'static [&'static str],
}

const CRATES: [Layers; 7] = [
    Layers {
        package: "hayward-blocklist",
        rows: &[
            "error metrics strategy view",
            "config",
            "context model",
            "command store",
            "ledger",
            "absorb",
            "http",
        ],
    },
    Layers {
        package: "hayward-container-manager",
        rows: &[
            "command config",
            "model",
            "store",
            "metrics placement_state",
            "ledger",
            "absorb invariants placements reports trim",
            "http",
        ],
    },
    Layers {
        package: "hayward-job-converter",
        rows: &[
            "config error invariants store",
            "model",
            "shared_view work",
            "managers metrics orchestrators runner_tokens",
            "applications",
            "command",
            "ledger",
            "http",
        ],
    },
    Layers {
        package: "hayward-node-agent",
        rows: &[
            "backoff credentials fault_points files log_segments run_as",
            "cgroups follow lease machine",
            "journal orphan_processes tasks",
            "supervisor",
            "runtime",
            "config output_tail",
            "agent",
            "node_condition report",
            "heartbeat output",
        ],
    },
    Layers {
        package: "hayward-node-status",
        rows: &[
            "config error format heartbeats secret_attempts",
            "context",
            "model",
            "command metrics store",
            "ledger",
            "commands invariants",
            "absorb round",
            "http",
        ],
    },
    Layers {
        package: "hayward-rm-scheduler",
        rows: &[
            "config error node_space policy replay tracked_snapshot",
            "model",
            "command round_trace translate",
            "context recorder",
            "store",
            "metrics",
            "working_set",
            "absorb external_planners worker_pools",
            "round",
            "commands invariants queries",
            "dispatch",
            "http",
        ],
    },
    Layers {
        package: "hayward-rm-scheduler-domain",
        rows: &[
            "ids input",
            "output",
            "collections",
            "incremental",
            "index",
            "state",
            "defragmentation departures entitlement placement preemption",
            "lending",
            "explanation",
            "report",
            "planner",
            "check",
            "forecast monitor",
        ],
    },
];

#[test]
fn modules_use_what_lies_below_them() {
    let packages = packages();
    let mut found = Vec::new();
    for layers in &CRATES {
        let package = packages
            .get(layers.package)
            .unwrap_or_else(|| panic!("no crate {}: correct the table", layers.package));
        found.extend(wrong_arrows(layers, &arrows(package)));
    }
    assert_within_debt(
        "module-arrows",
        "a module uses modules of earlier rows of its table (tests/house/tests/module_arrows.rs): \
         move the shared type down, or correct the table",
        found,
    );
}

fn wrong_arrows(layers: &Layers, arrows: &Arrows) -> Vec<Finding> {
    let mut row_of = BTreeMap::new();
    for (number, row) in layers.rows.iter().enumerate() {
        row_of.extend(row.split_whitespace().map(|module| (module, number)));
    }
    let finding = |text: String| Finding {
        package: layers.package.to_owned(),
        text,
    };
    let mut found = Vec::new();
    let gone = row_of
        .keys()
        .filter(|module| !arrows.contains_key(**module));
    found.extend(
        gone.map(|module| finding(format!("{module} is in the table and not in the crate"))),
    );
    for (from, ends) in arrows {
        let Some(row) = row_of.get(&**from) else {
            found.push(finding(format!("{from} is in no row of the table")));
            continue;
        };
        let known = ends.iter().filter_map(|to| Some((to, *row_of.get(&**to)?)));
        let wrong = known.filter(|(_, below)| below >= row);
        found.extend(wrong.map(|(to, _)| finding(format!("{from} uses {to}"))));
    }
    found
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut found = Vec::new();
    for package in packages().values() {
        for circle in circles(&arrows(package)) {
            // Each module counts, so that a smaller circle has fewer findings.
            let names = circle.join(", ");
            found.extend(circle.iter().map(|module| Finding {
                package: package.name.clone(),
                text: format!("{module}, in the circle {names}"),
            }));
        }
    }
    assert_within_debt(
        "module-circles",
        "modules use each other in one direction: move what they share into a module below both",
        found,
    );
}

#[test]
fn arrows_upwards_are_found() {
    let layers = Layers {
        package: "example",
        rows: &["model", "ledger", "http gone"],
    };
    let arrow = |from: &str, to: &[&str]| {
        let ends = to.iter().map(|end| (*end).to_owned());
        (from.to_owned(), ends.collect())
    };
    let arrows = Arrows::from([
        arrow("model", &["ledger"]),
        arrow("ledger", &["model"]),
        arrow("http", &["ledger", "model"]),
        arrow("new", &[]),
    ]);
    let found: Vec<String> = wrong_arrows(&layers, &arrows)
        .into_iter()
        .map(|finding| finding.text)
        .collect();
    let wanted = [
        "gone is in the table and not in the crate",
        "model uses ledger",
        "new is in no row of the table",
    ];
    assert_eq!(found, wanted);
}
