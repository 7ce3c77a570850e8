//! Dependencies between crates. The graph is a golden file, so that a new dependency is visible in
//! a review. Each rule of the graph has a test of its own.

use std::collections::BTreeMap;
use std::fmt::Write;

use hayward_tests_house::{DependencyKind, Package, assert_none, compare_with_golden, packages};

#[test]
fn the_graph_is_the_one_checked_in() {
    let mut graph =
        String::from("# Dependencies between the crates of this repository. Rewrite: just bless\n");
    for (name, package) in packages() {
        for (kind, suffix) in [
            (DependencyKind::Normal, ""),
            (DependencyKind::Build, " [build]"),
            (DependencyKind::Dev, " [dev]"),
        ] {
            let mut local: Vec<&str> = package
                .dependencies
                .iter()
                .filter(|dependency| dependency.is_local && dependency.kind == kind)
                .map(|dependency| dependency.name.as_str())
                .collect();
            local.sort_unstable();
            local.dedup();
            if kind == DependencyKind::Normal || !local.is_empty() {
                let line = format!("{name}{suffix} -> {}", local.join(" "));
                writeln!(graph, "{}", line.trim_end()).expect("a string takes text");
            }
        }
    }
    compare_with_golden("tests/house/crate_dependencies.txt", &graph);
}

/// Returns each dependency that `forbidden` selects, among normal, build and test dependencies. A
/// test that uses the internals of another crate couples both crates as much as other code does.
fn forbidden_dependencies(forbidden: impl Fn(&Package, &Package) -> bool) -> Vec<String> {
    let packages_by_name = packages();
    let mut findings = Vec::new();
    for package in packages_by_name.values() {
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.is_local)
        {
            if forbidden(package, &packages_by_name[&dependency.name]) {
                findings.push(format!("{} -> {}", package.name, dependency.name));
            }
        }
    }
    findings
}

#[test]
fn no_service_depends_on_a_service() {
    let found = forbidden_dependencies(|from, to| {
        from.folder.starts_with("services/") && from.name != "hayward" && to.is_service()
    });
    assert_none("only `hayward` links services, for `up`", &found);
}

#[test]
fn a_domain_is_used_by_its_own_service_only() {
    let found = forbidden_dependencies(|from, to| {
        // Users may be the service itself and the tools in its folder.
        let is_own_service = to.folder.strip_suffix("/domain").is_some_and(|service| {
            from.folder == service || from.folder.starts_with(&format!("{service}/"))
        });
        let is_tool_or_test = from.name == "hayward" || from.folder.starts_with("tests/");
        to.is_domain() && !is_own_service && !is_tool_or_test
    });
    assert_none(
        "a neighbour uses the `api` crate, never the `domain`",
        &found,
    );
}

#[test]
fn domains_depend_on_the_vocabulary_only() {
    // `rustc-hash` has no seed, so its results are the same in every run. Hashed maps are never
    // iterated.
    let allowed = [
        "hashbrown",
        "hayward-vocabulary",
        "rustc-hash",
        "serde",
        "thiserror",
    ];
    let packages_by_name = packages();
    let mut found = Vec::new();
    for package in packages_by_name
        .values()
        .filter(|package| package.is_domain())
    {
        for dependency in &package.dependencies {
            if dependency.kind != DependencyKind::Dev
                && !allowed.contains(&dependency.name.as_str())
            {
                found.push(format!("{} -> {}", package.name, dependency.name));
            }
        }
    }
    assert_none(
        "decisions are pure: no i/o, clock, randomness or environment",
        &found,
    );
}

/// Crates that validate documents are as pure as domains. The documents are policy, queues, and the
/// answers of external planners.
#[test]
fn crates_that_validate_documents_are_pure() {
    let allowed = [
        "hayward-rm-scheduler-api",
        "hayward-rm-scheduler-capacity",
        "hayward-rm-scheduler-domain",
        "hayward-rm-scheduler-external-planner",
        "hayward-vocabulary",
        "regex",
        "serde",
        "serde_json",
        "serde_path_to_error",
    ];
    let folders = [
        "services/rm-scheduler/policy",
        "services/rm-scheduler/capacity",
        "services/rm-scheduler/external-planner",
    ];
    let packages_by_name = packages();
    let rules = packages_by_name
        .values()
        .filter(|package| folders.contains(&package.folder.as_str()));
    let dependencies = rules.flat_map(|package| &package.dependencies);
    let found: Vec<String> = dependencies
        .filter(|dependency| dependency.kind != DependencyKind::Dev)
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| dependency.name.clone())
        .collect();
    assert_none(
        "rules of documents are pure: no i/o, clock, randomness or environment",
        &found,
    );
}

#[test]
fn api_crates_depend_on_shared_crates_only() {
    let allowed = [
        "hayward-vocabulary",
        "hayward-publication",
        "hayward-service",
    ];
    let found =
        forbidden_dependencies(|from, to| from.is_api() && !allowed.contains(&to.name.as_str()));
    assert_none("an `api` crate holds types and a thin client", &found);
}

#[test]
fn shared_crates_never_depend_on_services() {
    let found = forbidden_dependencies(|from, to| {
        from.is_shared() && from.name != "hayward-testkit" && to.folder.starts_with("services/")
    });
    assert_none(
        "shared/ is below services/; only the testkit is above both",
        &found,
    );
}

#[test]
fn only_tests_depend_on_the_tests() {
    let is_test_crate = |package: &Package| package.folder.starts_with("tests/");
    // `hayward simulate` is the command of the simulation.
    let is_command =
        |from: &Package, to: &Package| from.name == "hayward" && to.name == "hayward-simulation";
    let found = forbidden_dependencies(|from, to| {
        is_test_crate(to) && !is_test_crate(from) && !is_command(from, to)
    });
    assert_none("tests/ is the top of the graph", &found);
    let testkit = dependents_of("hayward-testkit", DependencyKind::Normal);
    let found: Vec<String> = testkit
        .into_iter()
        .filter(|(_, folder)| !folder.starts_with("tests/"))
        .map(|(name, _)| name)
        .collect();
    assert_none("the testkit is linked by tests only", &found);
}

fn dependents_of(to: &str, kind: DependencyKind) -> BTreeMap<String, String> {
    let packages_by_name = packages().into_iter();
    let dependents = packages_by_name.filter(|(_, package)| {
        package
            .dependencies
            .iter()
            .any(|dependency| dependency.name == to && dependency.kind == kind)
    });
    dependents
        .map(|(name, package)| (name, package.folder))
        .collect()
}

#[test]
fn only_listed_crates_depend_on_sqlx() {
    let allowed = [
        "hayward-postgres",
        "hayward-publication",
        "hayward-testkit",
        // A test checks that a role cannot do more than it may.
        "hayward-tests-fleet",
    ];
    let mut found = Vec::new();
    for package in packages().values() {
        let is_allowed = package.is_service() || allowed.contains(&package.name.as_str());
        let uses_sqlx = package
            .dependencies
            .iter()
            .any(|dependency| dependency.name.starts_with("sqlx"));
        if uses_sqlx && !is_allowed {
            found.push(package.name.clone());
        }
    }
    assert_none(
        "sqlx belongs to services, postgres, publication, the testkit and tests of fleets",
        &found,
    );
}
