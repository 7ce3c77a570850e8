//! The fate of an action when one of its nodes is lost, forgotten or back: from each of its
//! phases it comes to an end, and the process is up.

use super::*;
use crate::test_fleet::RULES;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
    Back,
}

/// How far a move of `1` from `c` to `d` is when the node is lost.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Queued,
    Asked,
    Granted,
    Stopping,
    Stopped,
    Starting,
    StopFailed,
    Over,
}

const STAGES: [Stage; 8] = [
    Stage::Queued,
    Stage::Asked,
    Stage::Granted,
    Stage::Stopping,
    Stage::Stopped,
    Stage::Starting,
    Stage::StopFailed,
    Stage::Over,
];

fn at(stage: Stage) -> Trial {
    let mut trial = Trial::usual();
    let old = trial.standing("1");
    match stage {
        Stage::Queued => {
            trial.order("u", "1", "d");
            trial.order("v", "1", "b");
            assert_eq!(trial.status("v").0, Created);
            return trial;
        }
        _ => trial.order("u", "1", "d"),
    }
    if matches!(stage, Stage::Asked) {
        return trial;
    }
    trial.serve();
    if matches!(stage, Stage::Granted) {
        return trial;
    }
    trial.tick();
    assert_eq!(trial.phase("u"), Some(Phase::StopInProgress));
    match stage {
        Stage::Stopped => {
            trial.ends(&old);
        }
        Stage::Starting => {
            trial.ends(&old);
            trial.tick();
        }
        Stage::StopFailed => {
            let late = i64::try_from(RULES.stop_timeout_ms).unwrap() + 1;
            trial.pass(late);
            assert_eq!(trial.status("u"), (Failed, Some(Reason::StopFailed)));
        }
        Stage::Over => trial.settle(),
        _ => {}
    }
    trial
}

/// The caller gives up the containers there, and nothing new fits there for as long.
fn lose(trial: &mut Trial, name: &str, fate: Fate) {
    let places = trial.fleet.places.iter();
    let there = places.filter(|(_, it)| it.host == host(name) && !it.ended);
    let there: Vec<_> = there.map(|(id, _)| id.clone()).collect();
    for id in there {
        trial.ends(&id);
    }
    let room = trial.fleet.room.insert(host(name), 0);
    if fate == Fate::Forgotten {
        trial.fleet.room.remove(&host(name));
    }
    trial.settle();
    if fate == Fate::Back {
        trial.fleet.room.insert(host(name), room.unwrap());
    }
}

#[test]
fn every_action_comes_to_an_end_whatever_becomes_of_its_nodes() {
    for stage in STAGES {
        for name in ["c", "d"] {
            for fate in [Fate::Lost, Fate::Forgotten, Fate::Back] {
                let mut trial = at(stage);
                lose(&mut trial, name, fate);
                for _ in 0..4 {
                    trial.settle();
                    trial.pass(60_001);
                }
                trial.settle();
                let open: Vec<_> = trial.machine.open().collect();
                assert!(open.is_empty(), "{stage:?} {name} {fate:?}: {open:?}");
                assert!(trial.requests().is_empty() && trial.asking().is_empty());
                assert!(trial.is_on("1").is_some(), "{stage:?} {name} {fate:?}");
            }
        }
    }
}
