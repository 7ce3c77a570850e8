//! Every scenario of the folder comes out as it says.

use std::{fs, path::Path};

use hayward_rm_scheduler_scenario::{Scenario, Shown};

#[test]
fn every_scenario_comes_out_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut failed = Vec::new();
    let mut seen = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let scenario = Scenario::read(&text).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(scenario.expects() > 0, "{name} expects nothing");
        let outcomes = scenario.run(Shown::default()).unwrap();
        let differences = scenario.check(&outcomes).into_iter();
        failed.extend(differences.map(|difference| format!("{name}: {difference}")));
        seen += 1;
    }
    assert!(seen >= 50, "{seen} scenarios");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
