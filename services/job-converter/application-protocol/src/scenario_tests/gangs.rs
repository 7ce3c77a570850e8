//! Scenarios of the protocol specification about gangs.

use std::collections::BTreeMap;

use hayward_vocabulary::Size;
use serde_json::json;

use super::{add_ask, apply, confirm, core_with, place_placeholder, place_task, placeholder};
use crate::core::{self, State as Core};
use crate::free_capacity::{Level, ResourceLimits};
use crate::frontend::State as Front;
use crate::gang_admission::{self, MemberRequest, Shortfall};
use crate::gang_policy::Policy;
use crate::messages::{Termination, ToFront};
use crate::no_change_reason::Reason;
use crate::task_groups;
use crate::test_application::{TestApplication, ask, group, node, size, space, task_id, time};

#[test]
fn an_accepted_gang_creates_its_placeholders() {
    let list = json!([
        {"name": "small", "minMember": 10, "minResource": {"cpu": "500m", "memory": "500Mi"}},
        {"name": "large", "minMember": 20, "minResource": {"cpu": "1000m", "memory": "1000Mi"}},
    ]);
    let groups = task_groups::parse(&list).unwrap();
    let mut test_app = TestApplication::new(groups, Policy::default());
    test_app.messages_paused = true;
    test_app.tick();
    assert_eq!(test_app.front.head.state, Front::Submitted);
    test_app.resume_messages();
    assert_eq!(test_app.front.head.state, Front::Accepted);
    test_app.tick();
    assert_eq!(test_app.front.head.state, Front::Reserving);
    assert_eq!(
        test_app
            .front
            .tasks
            .values()
            .filter(|it| it.placeholder)
            .count(),
        30
    );
    let total = test_app.core().placeholder_size();
    assert_eq!(
        (total.cpu_milli, total.memory_bytes),
        (25_000, 25_000 << 20)
    );
    test_app.tick();
    assert_eq!(test_app.core().pending_size(), total);
}

#[test]
fn an_application_runs_with_its_last_placeholder() {
    let mut core = core_with(vec![group("g", 2, size(2, 0))], Policy::default());
    place_placeholder(&mut core, "p1", size(2, 0), "g");
    assert_eq!(core.head.state, Core::Accepted);
    assert_eq!(core.used_by_placeholders(), size(2, 0));
    place_placeholder(&mut core, "p2", size(2, 0), "g");
    assert_eq!(core.used_by_placeholders(), size(4, 0));
    assert_eq!(core.head.state, Core::Running);
    place_task(&mut core, "r1", size(2, 0), None);
    place_task(&mut core, "r2", size(2, 0), None);
    assert_eq!((core.head.state, core.used()), (Core::Running, size(8, 0)));
}

#[test]
fn a_soft_timeout_continues_without_the_gang() {
    let member = Size {
        memory_bytes: 100,
        ..size(10, 0)
    };
    let groups = vec![
        group("tg1", 1, member.clone()),
        group("tg2", 2, member.clone()),
    ];
    let mut core = core_with(groups, Policy::default());
    add_ask(&mut core, placeholder("p1", member.clone(), "tg1"));
    place_placeholder(&mut core, "p2", member.clone(), "tg2");
    place_placeholder(&mut core, "p3", member.clone(), "tg2");
    assert_eq!(core.head.state, Core::Accepted);
    let due = core.head.timers.next().unwrap();
    assert_eq!(
        due,
        time(10 + 900_000),
        "the timeout starts with the first placeholder"
    );
    let step = core.step(core::Input::Tick, due);
    let timeout = Termination::Timeout;
    let expected = [
        ToFront::Updated {
            state: Core::Resuming,
            message: None,
        },
        ToFront::Release {
            keys: vec![task_id("p2"), task_id("p3")],
            termination: timeout,
        },
        ToFront::ReleaseAsks {
            keys: vec![task_id("p1")],
            termination: timeout,
        },
    ];
    assert_eq!(step.effects, expected.map(core::Effect::ToFront));
    assert_eq!(core.head.log.states(), [Core::Accepted, Core::Resuming]);
    let timedout =
        |core: &core::Application| ["tg1", "tg2"].map(|name| core.head.groups[name].timedout);
    assert_eq!(core.pending_size(), Size::default());
    assert_eq!(timedout(&core), [1, 0]);
    assert_eq!(
        core.used_by_placeholders(),
        task_groups::multiply(&member, 2)
    );
    apply(&mut core, confirm("p2", timeout));
    assert_eq!(core.head.state, Core::Resuming);
    apply(&mut core, confirm("p3", timeout));
    assert_eq!((timedout(&core), core.used()), ([1, 2], Size::default()));
    assert_eq!(core.head.state, Core::Accepted);
    place_task(&mut core, "r", member, Some("tg2"));
    assert_eq!(
        core.head.state,
        Core::Running,
        "the task is placed normally"
    );
}

#[test]
fn a_task_larger_than_its_placeholders_releases_them() {
    let mut core = core_with(vec![group("g", 5, size(2, 2))], Policy::default());
    let names = ["p1", "p2", "p3", "p4", "p5"];
    for name in names {
        place_placeholder(&mut core, name, size(2, 2), "g");
    }
    add_ask(&mut core, ask("real", size(10, 10), Some("g")));
    let step = core.replace(&mut [space("a", Size::default())], time(20));
    let is_replacement = |it: &core::Effect| matches!(it, core::Effect::Replacing { .. });
    assert!(!step.effects.iter().any(is_replacement));
    let mismatch = core::Effect::PlaceholderMismatch {
        ask: task_id("real"),
        placeholder: task_id("p1"),
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
    assert_eq!(keys, [task_id("real")]);
}

#[test]
fn a_smaller_task_replaces_a_placeholder() {
    let mut core = core_with(vec![group("g", 1, size(2, 2))], Policy::default());
    place_placeholder(&mut core, "p", size(2, 2), "g");
    add_ask(&mut core, ask("real", size(1, 1), Some("g")));
    let step = core.step(
        core::Input::Placed {
            key: task_id("real"),
            node: node("a"),
        },
        time(15),
    );
    assert_eq!(step.refusal.unwrap().reason, Reason::HasPlaceholder);
    let step = core.replace(&mut [space("a", size(3, 3))], time(20));
    let replacing = core::Effect::Replacing {
        ask: task_id("real"),
        placeholder: task_id("p"),
        node: node("a"),
    };
    assert!(step.effects.contains(&replacing));
    assert_eq!(
        (core.used(), core.used_on(&node("a"))),
        (size(2, 2), size(2, 2))
    );
    apply(&mut core, confirm("p", Termination::PlaceholderReplaced));
    assert_eq!((core.used(), core.allocations.len()), (size(1, 1), 1));
    assert!(!core.allocations[&task_id("real")].ask.placeholder);
    let group = &core.head.groups["g"];
    assert_eq!((group.count, group.replaced, group.timedout), (1, 1, 0));
    assert_eq!(core.head.state, Core::Running);
    let repeated = core.step(confirm("p", Termination::PlaceholderReplaced), time(30));
    assert_eq!(repeated.refusal.unwrap().reason, Reason::NotAllocated);
    assert_eq!(core.used(), size(1, 1));
}

#[test]
fn a_gang_larger_than_its_queue_is_rejected() {
    let cores = |milli| Size {
        cpu_milli: milli,
        ..Size::default()
    };
    let wanted = [MemberRequest::from(&group("g", 10, cores(1_000)))];
    let nodes = [space("a", cores(8_000)), space("b", cores(8_000))];
    let queue = |max| {
        vec![Level {
            name: "root.a".to_owned(),
            max,
            used: cores(500),
        }]
    };
    let cpu = |milli| ResourceLimits {
        cpu_milli: Some(milli),
        ..ResourceLimits::default()
    };
    let refused = gang_admission::check_feasible(&wanted, &queue(cpu(1_000)), &nodes).unwrap_err();
    let short = Shortfall::Limit {
        name: "root.a".to_owned(),
        types: vec!["cpu".to_owned()],
    };
    assert_eq!(refused.shortfall, short);
    assert_eq!(refused.nearest.values().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(
        gang_admission::check_feasible(&wanted, &queue(cpu(100_000)), &nodes),
        Ok(())
    );
    let second = ResourceLimits {
        extras: BTreeMap::from([("second".to_owned(), 100)]),
        ..ResourceLimits::default()
    };
    assert_eq!(
        gang_admission::check_feasible(&wanted, &queue(second), &nodes),
        Ok(())
    );
}
