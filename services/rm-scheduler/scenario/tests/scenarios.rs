//! Every scenario of the folder has the expected outcome.

use std::{fs, path::Path};

use hayward_rm_scheduler_scenario::{Scenario, Shown};

/// Lets a scenario expect any field.
const EVERYTHING: Shown = Shown {
    places: true,
    explain: true,
};

#[test]
fn every_scenario_has_the_expected_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut failed = Vec::new();
    let mut seen = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let scenario = Scenario::read(&text).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(scenario.expects() > 0, "{name} expects nothing");
        let outcomes = scenario.run(EVERYTHING).unwrap();
        let differences = scenario.check(&outcomes).into_iter();
        failed.extend(differences.map(|difference| format!("{name}: {difference}")));
        seen += 1;
    }
    assert!(seen >= 120, "{seen} scenarios");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn named(start: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = fs::read_dir(folder).expect("the folder of scenarios");
    let files = files.map(|file| file.expect("a file").path());
    let read = |path: &Path| fs::read_to_string(path).expect("a readable file");
    let name = |path: &Path| path.file_stem().map(|it| it.to_string_lossy().into_owned());
    files
        .filter_map(|path| Some((name(&path)?, read(&path))))
        .filter(|(name, _)| name.starts_with(start))
        .collect()
}

/// On an empty cluster the default profile counts as the rules do.
#[test]
fn the_default_profile_agrees_on_the_counting_examples() {
    let mut seen = 0;
    for (name, text) in named("x0").into_iter().chain(named("x1")) {
        if name.as_str() > "x15" {
            continue;
        }
        let text = text.replace("\"profile\": \"reference\"", "\"profile\": \"default\"");
        let scenario = Scenario::read(&text).unwrap();
        let outcomes = scenario.run(Shown::default()).unwrap();
        assert_eq!(scenario.check(&outcomes), Vec::<String>::new(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 15);
}

/// Every scenario can be planned with the default profile, with places and reasons.
#[test]
fn every_scenario_runs_under_the_default_profile() {
    for (name, text) in named("x").into_iter().chain(named("r-")) {
        let text = text.replace("\"profile\": \"reference\"", "\"profile\": \"default\"");
        let outcomes = Scenario::read(&text).unwrap().run(EVERYTHING).unwrap();
        for (work, job) in outcomes.iter().flat_map(|outcome| &outcome.jobs) {
            let places = job.places.as_ref().map_or(0, Vec::len) as u64;
            assert_eq!(places, job.processes, "{name} {work}");
            assert_eq!(job.held, job.processes + job.evicting, "{name} {work}");
        }
    }
}

#[test]
fn unknown_fields_are_rejected_with_their_place() {
    let text = r#"{"format":"hayward-scenario/1","cycles":[{"cycle":1,"events":[
        {"type":"node_report","node":"n1","memory_gb":4,"colour":"red"}]}]}"#;
    let error = Scenario::read(text).unwrap_err().to_string();
    assert!(error.contains("cycles[0].events[0]"), "{error}");
    let text = text.replace("\"colour\"", "\"expect_colour\"");
    assert!(Scenario::read(&text).is_ok());
    let other = text.replace("scenario/1", "scenario/9");
    assert!(Scenario::read(&other).is_err());
}

#[test]
fn a_difference_names_its_cycle_and_field() {
    let text = r#"{"cycles":[{"cycle":1,"expect":{"pools":{"p":["9:9"]}},"events":[]}],
        "nodepools":[{"name":"p"}]}"#;
    let scenario = Scenario::read(text).unwrap();
    let differences = scenario.check(&scenario.run(Shown::default()).unwrap());
    assert_eq!(differences, ["cycle 1.pools.p: expected [\"9:9\"], got []"]);
}
