//! Tests: every scenario in the folder `scenarios` has the outcome that it expects.

use std::{fs, path::Path};

use hayward_rm_scheduler_scenario::{OutcomeOptions, Scenario};

/// All optional parts, so that a scenario can expect any field.
const ALL_PARTS: OutcomeOptions = OutcomeOptions {
    places: true,
    explain: true,
};

#[test]
fn every_scenario_has_the_expected_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut failures = Vec::new();
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let scenario = Scenario::read(&text).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(scenario.expectation_count() > 0, "{name} expects nothing");
        let outcomes = scenario.run(ALL_PARTS).unwrap();
        let differences = scenario.check(&outcomes).into_iter();
        failures.extend(differences.map(|difference| format!("{name}: {difference}")));
        count += 1;
    }
    assert!(count >= 120, "{count} scenarios");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns names and texts of the scenarios whose names start with the prefix.
fn scenarios_with_prefix(prefix: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = fs::read_dir(folder).expect("the folder of scenarios");
    let files = files.map(|file| file.expect("a file").path());
    let read = |path: &Path| fs::read_to_string(path).expect("a readable file");
    let name = |path: &Path| path.file_stem().map(|it| it.to_string_lossy().into_owned());
    files
        .filter_map(|path| Some((name(&path)?, read(&path))))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect()
}

/// The scenarios `x01` to `x15` begin with an empty fleet. Their expectations are those of the
/// reference profile.
#[test]
fn the_default_profile_gives_the_reference_entitlements_on_an_empty_fleet() {
    let mut count = 0;
    for (name, text) in scenarios_with_prefix("x0")
        .into_iter()
        .chain(scenarios_with_prefix("x1"))
    {
        if name.as_str() > "x15" {
            continue;
        }
        let text = text.replace("\"profile\": \"reference\"", "\"profile\": \"default\"");
        let scenario = Scenario::read(&text).unwrap();
        let outcomes = scenario.run(OutcomeOptions::default()).unwrap();
        assert_eq!(scenario.check(&outcomes), Vec::<String>::new(), "{name}");
        count += 1;
    }
    assert_eq!(count, 15);
}

/// Every scenario can be planned with the default profile, with places and reasons.
#[test]
fn every_scenario_runs_under_the_default_profile() {
    for (name, text) in scenarios_with_prefix("x")
        .into_iter()
        .chain(scenarios_with_prefix("r-"))
    {
        let text = text.replace("\"profile\": \"reference\"", "\"profile\": \"default\"");
        let outcomes = Scenario::read(&text).unwrap().run(ALL_PARTS).unwrap();
        for (work, job) in outcomes.iter().flat_map(|outcome| &outcome.jobs) {
            let places = job.places.as_ref().map_or(0, Vec::len) as u64;
            assert_eq!(places, job.processes, "{name} {work}");
            assert_eq!(job.held, job.processes + job.evicting, "{name} {work}");
        }
    }
}

#[test]
fn unknown_fields_are_rejected_with_their_path() {
    let text = r#"{"format":"hayward-scenario/1","cycles":[{"cycle":1,"events":[
        {"type":"node_report","node":"n1","memory_gb":4,"colour":"red"}]}]}"#;
    let error = Scenario::read(text).unwrap_err().to_string();
    assert!(error.contains("cycles[0].events[0]"), "{error}");
    let text = text.replace("\"colour\"", "\"expect_colour\"");
    assert!(Scenario::read(&text).is_ok());
    let unknown_format = text.replace("scenario/1", "scenario/9");
    assert!(Scenario::read(&unknown_format).is_err());
}

#[test]
fn a_difference_names_its_cycle_and_field() {
    let text = r#"{"cycles":[{"cycle":1,"expect":{"pools":{"p":["9:9"]}},"events":[]}],
        "nodepools":[{"name":"p"}]}"#;
    let scenario = Scenario::read(text).unwrap();
    let differences = scenario.check(&scenario.run(OutcomeOptions::default()).unwrap());
    assert_eq!(differences, ["cycle 1.pools.p: expected [\"9:9\"], got []"]);
}
