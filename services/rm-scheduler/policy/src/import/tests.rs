//! Tests: import of the sample site in `samples`, and the faults of changed copies of its file
//! `village.classes`. Expected line numbers are those of this file.

use hayward_rm_scheduler_api::policy::SharePolicy;
use hayward_rm_scheduler_domain::snapshot;

use super::*;
use crate::{Document, Identity, Rules, read};

const CLASSES: &str = include_str!("../../samples/village.classes");

/// Returns a node file: one of the samples, or a small file with one fault.
fn node_file(name: &str) -> Option<String> {
    let text = match name {
        "all.nodes" => include_str!("../../samples/all.nodes"),
        "far.nodes" => include_str!("../../samples/far.nodes"),
        "barn.nodes" => include_str!("../../samples/barn.nodes"),
        "mill.regex" => include_str!("../../samples/mill.regex"),
        "same.nodes" => "field-1.village.example\n",
        "void.regex" => "# nothing\n",
        "odd.nodes" => "field-9\nfield 8\n",
        "ring.nodes" => "import wheel.nodes\n",
        "round.nodes" | "wheel.nodes" => "import ring.nodes\n",
        "lost.nodes" => "import nowhere.nodes\n",
        _ => return None,
    };
    Some(text.to_owned())
}

fn source<'a>(name: &'a str, text: &'a str) -> Source<'a> {
    Source { name, text }
}

fn import_sample() -> Imported {
    import(Input {
        classes: source("village.classes", CLASSES),
        users: Some(source(
            "village.users",
            include_str!("../../samples/village.users"),
        )),
        properties: Some(source(
            "village.properties",
            include_str!("../../samples/village.properties"),
        )),
        node_file: &node_file,
    })
    .unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// Returns the faults of a file `c` with these classes.
fn import_faults(classes: &str) -> Vec<String> {
    let input = Input {
        classes: source("c", classes),
        users: None,
        properties: None,
        node_file: &node_file,
    };
    import(input)
        .err()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Returns the faults of the sample after replacing a text.
fn faults_after_replacing(from: &str, to: &str) -> Vec<String> {
    assert!(CLASSES.contains(from), "{from}");
    import_faults(&CLASSES.replace(from, to))
}

/// Asserts that a fault of file `c` names this line and contains this text.
fn assert_fault(faults: &[String], line: usize, text: &str) {
    let prefix = format!("c:{line}: ");
    let is_reported = faults
        .iter()
        .any(|it| it.starts_with(&prefix) && it.contains(text));
    assert!(is_reported, "{prefix}…{text}: {faults:#?}");
}

#[test]
fn the_stanzas_of_a_site_become_a_document() {
    let policy = import_sample().policy;
    assert_eq!(policy.quantum.0.memory_bytes, 2 << 30);
    assert_eq!(policy.tunables.global_allotment_gb, Some(360));
    assert_eq!(policy.tunables.fragmentation_threshold, 4);
    assert_eq!(policy.tunables.reserve_overage_gb, Some(8));
    let all = &policy.pools["--all--"];
    assert_eq!(
        all.nodes,
        [
            "far-1.town.example",
            "10.1.2.3",
            "field-1",
            "field-2.village.example"
        ],
        "the nodes of another pool's file stay with that pool"
    );
    assert_eq!(policy.pools["barn"].parent.as_deref(), Some("--all--"));
    assert_eq!(policy.pools["mill"].pattern.as_deref(), Some("mill-[0-9]+"));
    assert_eq!(
        policy.users["ben"].max_allotment_gb_by_class["workshop"],
        64
    );
    let harvest = &policy.classes["harvest"];
    assert_eq!(
        harvest.users.as_deref(),
        Some(&["ada".to_owned(), "ben".to_owned()][..])
    );

    let rules = Rules::new(&policy);
    let harvest = &rules.classes["harvest"];
    assert_eq!((harvest.weight, harvest.priority), (300, 10));
    assert_eq!(harvest.growth.initialization_cap, Some(4));
    assert_eq!(rules.classes["barn-work"].pool, "barn");
    assert_eq!(
        rules.classes["workshop"].policy,
        snapshot::Policy::FixedShare
    );
    assert!(
        !rules.classes.contains_key("fair-base"),
        "an abstract class serves no work"
    );
    let pool = |name, address| {
        let node = Identity {
            name,
            address,
            declared: Some("default"),
        };
        rules.pool_of(node).unwrap()
    };
    assert_eq!(pool("barn-1.village.example", None), "barn");
    assert_eq!(pool("mill-3", None), "mill");
    assert_eq!(pool("cart", Some("10.1.2.3")), "--all--");
}

#[test]
fn an_imported_policy_can_be_written_and_read_again() {
    let policy = import_sample().policy;
    let yaml = yaml_serde::to_string(&policy).unwrap();
    let document: Document = yaml_serde::from_str(&yaml).unwrap();
    assert_eq!(read(document).unwrap(), policy);
}

#[test]
fn settings_without_effect_are_noted() {
    let notes = import_sample().notes;
    for (setting, effect) in [
        ("village.properties:6: ducc.rm.node.stability", "lost_ms"),
        ("village.properties:7: ducc.rm.eviction.policy", "cheapest"),
        ("/classes/workshop/max_processes", "no effect"),
        ("/classes/whole/enforce", "no effect"),
    ] {
        let found = notes
            .iter()
            .any(|note| note.contains(setting) && note.contains(effect));
        assert!(found, "{setting}: {notes:#?}");
    }
    assert!(
        !notes.iter().any(|note| note.contains("broker")),
        "properties of other DUCC services are ignored"
    );
}

#[test]
fn stanzas_have_names_brackets_and_values() {
    assert_fault(
        &import_faults("Class {\n policy RESERVE\n}\n"),
        1,
        "has no name",
    );
    assert_fault(
        &import_faults("\nClass a\n policy RESERVE\n}\n"),
        2,
        "has no {",
    );
    assert_fault(
        &import_faults("Class a {\n policy RESERVE\nClass b {\n}\n"),
        1,
        "has no }",
    );
    assert_fault(
        &faults_after_replacing("weight = 300", "weight ="),
        22,
        "weight has no value",
    );
    assert_fault(
        &faults_after_replacing("weight = 300", "weight = 300; weight = 3"),
        22,
        "weight appears twice",
    );
    assert_fault(
        &faults_after_replacing("weight = 300", "wieght = 300"),
        22,
        "wieght is not known",
    );
    assert_fault(&import_faults("Klasse a { }\n"), 1, "starts no stanza");
    assert_fault(
        &import_faults("Class a { policy = RESERVE = b }\n"),
        1,
        "a second =",
    );
}

#[test]
fn names_are_used_once() {
    let faults = faults_after_replacing("Nodepool mill", "Nodepool barn");
    assert_fault(&faults, 9, "barn is defined already, in c:4");
    assert_fault(
        &faults_after_replacing("Class grind", "Class normal"),
        27,
        "normal is defined already",
    );
}

#[test]
fn parents_of_pools_exist_and_form_no_cycle() {
    assert_fault(
        &faults_after_replacing("parent = --all--", "parent = none"),
        5,
        "there is no pool \"none\"",
    );
    assert_fault(
        &faults_after_replacing("Nodepool barn {", "Nodepool barn --all-- {"),
        4,
        "names it there",
    );
    let cycle = faults_after_replacing("nodefile all.nodes", "nodefile all.nodes; parent barn");
    assert_fault(&cycle, 3, "form a cycle");
    assert_fault(&cycle, 5, "form a cycle");
}

#[test]
fn the_quantum_is_a_number_of_a_root_pool() {
    assert_fault(
        &faults_after_replacing("search-order = 10", "share-quantum = 10"),
        7,
        "only a pool without parent",
    );
    assert_fault(
        &faults_after_replacing("share-quantum 4", "share-quantum much"),
        10,
        "\"much\"",
    );
    assert_fault(
        &faults_after_replacing("share-quantum 4", "share-quantum 0"),
        10,
        "at least",
    );
}

#[test]
fn at_most_one_pool_has_no_nodes() {
    let classes = CLASSES
        .replace("nodefile = barn.nodes", "")
        .replace("; nodefile all.nodes", "");
    assert_fault(
        &import_faults(&classes),
        4,
        "only one pool may have no nodes",
    );
}

#[test]
fn a_node_is_in_one_pool() {
    assert_fault(
        &faults_after_replacing("barn.nodes", "all.nodes"),
        6,
        "has the node file all.nodes already",
    );
    let faults = faults_after_replacing("barn.nodes", "same.nodes");
    let found = faults
        .iter()
        .any(|it| it.starts_with("same.nodes:1: ") && it.contains("\"field-1\""));
    assert!(found, "{faults:#?}");
}

#[test]
fn node_files_exist_and_are_not_empty() {
    assert_fault(
        &faults_after_replacing("barn.nodes", "nowhere.nodes"),
        6,
        "there is no node file nowhere.nodes",
    );
    for (file, line, text) in [
        ("void.regex", "", "holds one expression"),
        ("odd.nodes", ":2", "neither one name"),
        ("wheel.nodes", ":1", "import one another"),
        ("lost.nodes", ":1", "there is no such file"),
    ] {
        let pool_file = if file == "wheel.nodes" {
            "round.nodes"
        } else {
            file
        };
        let faults = faults_after_replacing("barn.nodes", pool_file);
        let prefix = format!("{file}{line}: ");
        let found = faults
            .iter()
            .any(|it| it.starts_with(&prefix) && it.contains(text));
        assert!(found, "{prefix}{text}: {faults:#?}");
    }
}

#[test]
fn faults_of_classes_name_their_lines() {
    assert_fault(
        &faults_after_replacing("Class normal fair-base", "Class normal base"),
        21,
        "there is no class \"base\"",
    );
    assert_fault(
        &faults_after_replacing("nodepool mill }", "nodepool lake }"),
        27,
        "there is no pool \"lake\"",
    );
    assert_fault(
        &faults_after_replacing("policy FAIR_SHARE; priority 20", "priority 20"),
        27,
        "no policy",
    );
    assert_fault(
        &faults_after_replacing("policy FAIR_SHARE", "policy SHARED"),
        27,
        "\"SHARED\"",
    );
    assert_fault(
        &faults_after_replacing("enforce = true", "weight = 3"),
        29,
        "is for FAIR_SHARE classes",
    );
    assert_fault(
        &faults_after_replacing("abstract     = true", "abstract = true; default = true"),
        18,
        "a template",
    );
    let no_default = faults_after_replacing("{ default = true }", "{ weight = 100 }");
    assert!(
        no_default
            .iter()
            .any(|it| it.contains("no class is the default of FAIR_SHARE"))
    );
    assert_fault(
        &faults_after_replacing("priority 20", "priority 1"),
        29,
        "different priorities",
    );
}

#[test]
fn faults_of_users_name_their_lines() {
    let input = |users| Input {
        classes: source("c", CLASSES),
        users: Some(source("u", users)),
        properties: None,
        node_file: &node_file,
    };
    for (users, text) in [
        (
            "User ada { max-allotment = lots }",
            "u:1: ada: max-allotment is \"lots\"",
        ),
        (
            "\nUser ada { max-allotment.lake = 3 }",
            "u:2: /users/ada/max_allotment_gb_by_class/lake",
        ),
        ("Class a { }", "u:1: only users"),
    ] {
        let faults = import(input(users)).unwrap_err();
        assert!(
            faults.iter().any(|it| it.to_string().starts_with(text)),
            "{faults:?}"
        );
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let broken = CLASSES
        .replace("weight = 300", "weight = much")
        .replace("share-quantum 4", "x 4");
    assert_eq!(import_faults(&broken).len(), 2);
}

#[test]
fn policies_have_the_names_of_ducc() {
    let policies = [
        SharePolicy::FairShare,
        SharePolicy::FixedShare,
        SharePolicy::Reserve,
    ];
    assert_eq!(
        policies.map(SharePolicy::as_str),
        ["FAIR_SHARE", "FIXED_SHARE", "RESERVE"]
    );
}

#[test]
fn properties_that_are_not_numbers_are_reported() {
    let input = Input {
        classes: source("c", CLASSES),
        users: None,
        properties: Some(source(
            "p",
            "\nducc.rm.prediction = perhaps\nducc.rm.share.quantum = 0\n",
        )),
        node_file: &node_file,
    };
    let faults = import(input).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "p:2: ducc.rm.prediction is \"perhaps\", which is not true or false"
    );
}
