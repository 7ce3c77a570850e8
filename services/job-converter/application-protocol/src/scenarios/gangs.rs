//! Scenarios of gangs.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;
use serde_json::json;

use super::{apply, asks, confirm, core_with, held, held_placeholder, placeholder};
use crate::admission::{self, Short, Wanted};
use crate::core::{self, State as Core};
use crate::free_capacity::{Cap, Level};
use crate::frontend::State as Front;
use crate::groups;
use crate::messages::{Termination, ToFront};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::test_fleet::{TestFleet, ask, at, group, id, node, size, space};

#[test]
fn an_accepted_gang_creates_its_placeholders() {
    let list = json!([
        {"name": "small", "minMember": 10, "minResource": {"cpu": "500m", "memory": "500Mi"}},
        {"name": "large", "minMember": 20, "minResource": {"cpu": "1000m", "memory": "1000Mi"}},
    ]);
    let groups = groups::parse(&list).unwrap();
    let mut fleet = TestFleet::new(groups, Policy::default());
    fleet.mute = true;
    fleet.tick();
    assert_eq!(fleet.front.head.state, Front::Submitted);
    fleet.speak();
    assert_eq!(fleet.front.head.state, Front::Accepted);
    fleet.tick();
    assert_eq!(fleet.front.head.state, Front::Reserving);
    assert_eq!(
        fleet
            .front
            .tasks
            .values()
            .filter(|it| it.placeholder)
            .count(),
        30
    );
    let whole = fleet.half().placeholder_ask();
    assert_eq!(
        (whole.cpu_milli, whole.memory_bytes),
        (25_000, 25_000 << 20)
    );
    fleet.tick();
    assert_eq!(fleet.half().pending_size(), whole);
}

#[test]
fn an_application_runs_with_its_last_placeholder() {
    let mut core = core_with(vec![group("g", 2, size(2, 0))], Policy::default());
    held_placeholder(&mut core, "p1", size(2, 0), "g");
    assert_eq!(core.head.state, Core::Accepted);
    assert_eq!(core.used_by_placeholders(), size(2, 0));
    held_placeholder(&mut core, "p2", size(2, 0), "g");
    assert_eq!(core.used_by_placeholders(), size(4, 0));
    assert_eq!(core.head.state, Core::Running);
    held(&mut core, "r1", size(2, 0), None);
    held(&mut core, "r2", size(2, 0), None);
    assert_eq!((core.head.state, core.used()), (Core::Running, size(8, 0)));
}

#[test]
fn a_soft_timeout_continues_without_the_gang() {
    let one = Size {
        memory_bytes: 100,
        ..size(10, 0)
    };
    let groups = vec![group("tg1", 1, one.clone()), group("tg2", 2, one.clone())];
    let mut core = core_with(groups, Policy::default());
    asks(&mut core, placeholder("p1", one.clone(), "tg1"));
    held_placeholder(&mut core, "p2", one.clone(), "tg2");
    held_placeholder(&mut core, "p3", one.clone(), "tg2");
    assert_eq!(core.head.state, Core::Accepted);
    let due = core.head.timers.next().unwrap();
    assert_eq!(due, at(10 + 900_000), "from its first placeholder");
    let step = core.step(core::Input::Tick, due);
    let timeout = Termination::Timeout;
    let expected = [
        ToFront::Updated {
            state: Core::Resuming,
            message: None,
        },
        ToFront::Release {
            keys: vec![id("p2"), id("p3")],
            termination: timeout,
        },
        ToFront::ReleaseAsks {
            keys: vec![id("p1")],
            termination: timeout,
        },
    ];
    assert_eq!(step.effects, expected.map(core::Effect::ToFront));
    assert_eq!(core.head.log.states(), [Core::Accepted, Core::Resuming]);
    let timedout =
        |core: &core::Application| ["tg1", "tg2"].map(|name| core.head.groups[name].timedout);
    assert_eq!(core.pending_size(), Size::default());
    assert_eq!(timedout(&core), [1, 0]);
    assert_eq!(core.used_by_placeholders(), groups::times(&one, 2));
    apply(&mut core, confirm("p2", timeout));
    assert_eq!(core.head.state, Core::Resuming);
    apply(&mut core, confirm("p3", timeout));
    assert_eq!((timedout(&core), core.used()), ([1, 2], Size::default()));
    assert_eq!(core.head.state, Core::Accepted);
    held(&mut core, "r", one, Some("tg2"));
    assert_eq!(core.head.state, Core::Running, "scheduled as any other");
}

#[test]
fn a_task_larger_than_its_placeholders_releases_them() {
    let mut core = core_with(vec![group("g", 5, size(2, 2))], Policy::default());
    let names = ["p1", "p2", "p3", "p4", "p5"];
    for name in names {
        held_placeholder(&mut core, name, size(2, 2), "g");
    }
    asks(&mut core, ask("real", size(10, 10), Some("g")));
    let step = core.replace(&mut [space("a", Size::default())], at(20));
    let replaced = |it: &core::Effect| matches!(it, core::Effect::Replacing { .. });
    assert!(!step.effects.iter().any(replaced));
    let mismatch = core::Effect::PlaceholderMismatch {
        ask: id("real"),
        placeholder: id("p1"),
        types: vec!["first".to_owned(), "second".to_owned()],
    };
    assert_eq!(step.effects[0], mismatch);
    let timeout = Termination::Timeout;
    assert!(
        core.allocations
            .values()
            .all(|it| it.released == Some(timeout))
    );
    assert_eq!(core.used(), size(10, 10));
    for name in names {
        apply(&mut core, confirm(name, timeout));
    }
    assert_eq!(core.used(), Size::default());
    let group = &core.head.groups["g"];
    assert_eq!((group.count, group.timedout, group.replaced), (5, 5, 0));
    let keys: Vec<_> = core.placeable().map(|it| it.key.clone()).collect();
    assert_eq!(keys, [id("real")]);
}

#[test]
fn a_smaller_task_replaces_a_placeholder() {
    let mut core = core_with(vec![group("g", 1, size(2, 2))], Policy::default());
    held_placeholder(&mut core, "p", size(2, 2), "g");
    asks(&mut core, ask("real", size(1, 1), Some("g")));
    let hidden = core.step(
        core::Input::Placed {
            key: id("real"),
            node: node("a"),
        },
        at(15),
    );
    assert_eq!(hidden.refused.unwrap().reason, Reason::HasPlaceholder);
    let step = core.replace(&mut [space("a", size(3, 3))], at(20));
    let replacing = core::Effect::Replacing {
        ask: id("real"),
        placeholder: id("p"),
        node: node("a"),
    };
    assert!(step.effects.contains(&replacing));
    assert_eq!(
        (core.used(), core.used_on(&node("a"))),
        (size(2, 2), size(2, 2))
    );
    apply(&mut core, confirm("p", Termination::PlaceholderReplaced));
    assert_eq!((core.used(), core.allocations.len()), (size(1, 1), 1));
    assert!(!core.allocations[&id("real")].ask.placeholder);
    let group = &core.head.groups["g"];
    assert_eq!((group.count, group.replaced, group.timedout), (1, 1, 0));
    assert_eq!(core.head.state, Core::Running);
    let again = core.step(confirm("p", Termination::PlaceholderReplaced), at(30));
    assert_eq!(again.refused.unwrap().reason, Reason::NotAllocated);
    assert_eq!(core.used(), size(1, 1));
}

#[test]
fn a_gang_larger_than_its_queue_is_rejected() {
    let cores = |milli| Size {
        cpu_milli: milli,
        ..Size::default()
    };
    let wanted = [Wanted::from(&group("g", 10, cores(1_000)))];
    let cluster = [space("a", cores(8_000)), space("b", cores(8_000))];
    let queue = |max| {
        vec![Level {
            name: "root.a".to_owned(),
            max,
            used: cores(500),
        }]
    };
    let cpu = |milli| Cap {
        cpu_milli: Some(milli),
        ..Cap::default()
    };
    let refused = admission::feasible(&wanted, &queue(cpu(1_000)), &cluster).unwrap_err();
    let short = Short::Limit {
        name: "root.a".to_owned(),
        types: vec!["cpu".to_owned()],
    };
    assert_eq!(refused.short, short);
    assert_eq!(refused.nearest.values().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(
        admission::feasible(&wanted, &queue(cpu(100_000)), &cluster),
        Ok(())
    );
    let second = Cap {
        extras: BTreeMap::from([("second".to_owned(), 100)]),
        ..Cap::default()
    };
    assert_eq!(
        admission::feasible(&wanted, &queue(second), &cluster),
        Ok(())
    );
}
