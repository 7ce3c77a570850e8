//! Dependencies between the modules of a crate.
//!
//! One table per crate lists its modules in rows, from the bottom to the top. A module may use only
//! modules of earlier rows, and not of its own row. Modules below another one
//! (`ledger/enrolments.rs`) count as the outer one (`ledger`).

use std::collections::BTreeMap;

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::module_graph::{ModuleGraph, find_cycles, module_graph};
use hayward_tests_house::packages;

/// The modules of one crate, row by row from the bottom.
struct CrateLayers {
    package: &'static str,
    rows: &'static [&'static str],
}

const LAYERS_OF_CRATES: [CrateLayers; 7] = [
    CrateLayers {
        package: "hayward-blocklist",
        rows: &[
            "error metrics strategy view",
            "config",
            "context model",
            "command store",
            "ledger",
            "scheduler_updates",
            "http",
        ],
    },
    CrateLayers {
        package: "hayward-container-manager",
        rows: &[
            "command config",
            "model",
            "store",
            "metrics placement_state",
            "ledger",
            "agent_reports allocation_updates invariants placements retention",
            "http",
        ],
    },
    CrateLayers {
        package: "hayward-job-converter",
        rows: &[
            "config error invariants store",
            "accounts",
            "shared_state work",
            "manager_gates metrics orchestrators token_issuer",
            "applications",
            "command",
            "ledger",
            "http",
        ],
    },
    CrateLayers {
        package: "hayward-node-agent",
        rows: &[
            "atomic_files backoff checksum credentials fault_points log_segments run_as",
            "cgroups desired_set lease process_identity",
            "journal container_processes node_resources launcher",
            "tasks",
            "supervisor",
            "runtime",
            "config output_tail",
            "agent",
            "node_condition report",
            "heartbeat output_sender",
        ],
    },
    CrateLayers {
        package: "hayward-node-status",
        rows: &[
            "config error heartbeats secret_attempts state_conversions",
            "context",
            "model",
            "command metrics store",
            "ledger",
            "command_handlers invariants",
            "health_judgement scheduler_publications",
            "http",
        ],
    },
    CrateLayers {
        package: "hayward-rm-scheduler",
        rows: &[
            "config error policy_check pool_tree replay tracked_snapshot",
            "model node_space",
            "command round_trace translate",
            "context recorder",
            "store",
            "metrics",
            "working_set",
            "external_planners neighbour_updates worker_pools",
            "round",
            "invariants policy_change queries",
            "dispatch",
            "http",
        ],
    },
    CrateLayers {
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
            "fleet_invariants forecast",
        ],
    },
];

#[test]
fn modules_use_only_modules_of_lower_rows() {
    let packages = packages();
    let mut found = Vec::new();
    for layers in &LAYERS_OF_CRATES {
        let package = packages
            .get(layers.package)
            .unwrap_or_else(|| panic!("no crate {}: correct the table", layers.package));
        found.extend(wrong_dependencies(layers, &module_graph(package)));
    }
    assert_within_debt(
        "module-arrows",
        "a module uses modules of earlier rows of its table \
         (tests/house/tests/module_dependencies.rs): move the shared type down, or correct the \
         table",
        found,
    );
}

fn wrong_dependencies(layers: &CrateLayers, graph: &ModuleGraph) -> Vec<Finding> {
    let mut row_of = BTreeMap::new();
    for (number, row) in layers.rows.iter().enumerate() {
        row_of.extend(row.split_whitespace().map(|module| (module, number)));
    }
    let finding = |text: String| Finding {
        package: layers.package.to_owned(),
        text,
    };
    let mut found = Vec::new();
    let missing = row_of.keys().filter(|module| !graph.contains_key(**module));
    found.extend(
        missing.map(|module| finding(format!("{module} is in the table and not in the crate"))),
    );
    for (from, targets) in graph {
        let Some(row) = row_of.get(&**from) else {
            found.push(finding(format!("{from} is in no row of the table")));
            continue;
        };
        let known = targets
            .iter()
            .filter_map(|to| Some((to, *row_of.get(&**to)?)));
        let wrong = known.filter(|(_, target_row)| target_row >= row);
        found.extend(wrong.map(|(to, _)| finding(format!("{from} uses {to}"))));
    }
    found
}

#[test]
fn modules_do_not_use_each_other_in_cycles() {
    let mut found = Vec::new();
    for package in packages().values() {
        for cycle in find_cycles(&module_graph(package)) {
            // Each module is a finding, so that a smaller cycle has fewer findings.
            let names = cycle.join(", ");
            found.extend(cycle.iter().map(|module| Finding {
                package: package.name.clone(),
                text: format!("{module}, in the cycle {names}"),
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
fn dependencies_on_upper_rows_are_found() {
    let layers = CrateLayers {
        package: "example",
        rows: &["model", "ledger", "http gone"],
    };
    let edges = |from: &str, to: &[&str]| {
        let targets = to.iter().map(|target| (*target).to_owned());
        (from.to_owned(), targets.collect())
    };
    let graph = ModuleGraph::from([
        edges("model", &["ledger"]),
        edges("ledger", &["model"]),
        edges("http", &["ledger", "model"]),
        edges("new", &[]),
    ]);
    let found: Vec<String> = wrong_dependencies(&layers, &graph)
        .into_iter()
        .map(|finding| finding.text)
        .collect();
    let expected = [
        "gone is in the table and not in the crate",
        "model uses ledger",
        "new is in no row of the table",
    ];
    assert_eq!(found, expected);
}
