//! Rounds of real fleets are planned again, with the same plan. `hayward replay ROUND --save` saved
//! them in `tests/rounds/`. `BLESS=1` rewrites the plans.

use hayward_rm_scheduler::replay::{Inputs, Replay};

#[test]
fn saved_rounds_are_planned_again_to_the_byte() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rounds");
    let mut replayed = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let replay = Replay::read(&text).unwrap();
        if std::env::var_os("BLESS").is_some() {
            let inputs: Inputs = serde_json::from_str(&text).unwrap();
            let blessed = Inputs::new(inputs.snapshot, replay.plan());
            std::fs::write(&path, serde_json::to_string(&blessed).unwrap()).unwrap();
        } else {
            let comparison = replay.compare(replay.plan()).unwrap();
            assert!(
                comparison.equal,
                "{}: {:#?}",
                path.display(),
                comparison.differences
            );
        }
        replayed += 1;
    }
    assert!(replayed > 0);
}
