//! What becomes of answers, good and bad.

use hayward_rm_scheduler_domain::{
    Reason,
    plan::{VacateReason, outside::Refusal},
    snapshot::{Block, BlockEffect, User, outside::Heard},
};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Apart, Size, WorkKind};

use crate::{
    Trees,
    fixture::{POOL, World, leave, node_name, place, refusals, work},
    of_use,
    recent_moves::QUIET_MS,
};

#[test]
fn what_fits_is_taken_and_what_does_not_is_refused_alone() {
    let mut world = World::new();
    world.ask("job_a", "fair", 9);
    let plan = world.answered(
        vec![place("job_a", "n1", 3), place("job_a", "n2", 5)],
        vec![],
    );
    assert_eq!(world.has("job_a"), 7);
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    let taken = &plan.outside[POOL];
    assert_eq!((taken.granted, taken.vacated, taken.refusals), (7, 0, 1));
    assert_eq!(taken.refused[0].at, "/grants/1");
    assert_eq!(
        taken.refused[0].detail,
        "node n2 has room for 4 of 5 processes"
    );
    let verdict = &plan.verdicts[&work("job_a")];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::OutsidePlanner, false)
    );
    assert!(
        verdict.detail.contains("refused: node n2 has room"),
        "{}",
        verdict.detail
    );
}

#[test]
fn each_bad_grant_has_its_reason() {
    let mut world = World::new();
    world.ask("job_a", "fair", 4);
    world.ask("job_else", "else", 4);
    world.ask("job_done", "fair", 4).remaining_tasks = 0;
    world.ask("job_huge", "fair", 1).size = Size::memory(64 * GIB);
    world.ask("job_cpu", "fair", 1).size.cpu_milli = 1;
    world.ask("job_gpu", "fair", 1).size.gpu_milli = 3_000;
    world.ask("job_listed", "fair", 1).machines = [node_name("n2")].into();
    world.ask("job_avoids", "fair", 1).avoids = [node_name("n1")].into();
    world.ask("svc_fixed", "fixed", 1).kind = WorkKind::Service;
    world.ask("job_not_yours", "fair", 1).user = "ben".parse().unwrap();
    let fair = world.snapshot.classes.get_mut("fair").unwrap();
    fair.users = ["ann".to_owned()].into();
    world.on("n2").takes_work = false;
    let bad = [
        (place("job_none", "n1", 1), Refusal::UnknownWork),
        (place("", "", 0), Refusal::UnknownWork),
        (place("job_else", "n1", 1), Refusal::NotItsOwn),
        (place("job_a", "n9", 1), Refusal::UnknownNode),
        (place("job_a", "no such\nname", 1), Refusal::UnknownNode),
        (place("job_a", "far", 1), Refusal::OutsidePool),
        (place("job_a", "n2", 1), Refusal::NodeClosed),
        (place("job_done", "n1", 1), Refusal::NotWanted),
        (place("job_huge", "n1", 1), Refusal::NoRoom),
        (place("job_cpu", "n1", 1), Refusal::NoRoom),
        (place("job_gpu", "n1", 1), Refusal::NoRoom),
        (place("job_listed", "n1", 1), Refusal::NotListed),
        (place("job_avoids", "n1", 1), Refusal::Avoided),
        // Fixed shares stay at home.
        (place("svc_fixed", "n3", 1), Refusal::OutsidePool),
        (place("job_not_yours", "n1", 1), Refusal::NotAuthorised),
    ];
    for (step, reason) in bad {
        let plan = world.answered(vec![step.clone()], vec![]);
        assert_eq!(refusals(&plan), [reason], "{step:?}");
        assert!(plan.grants.is_empty());
    }
    let more = world.answered(vec![place("job_a", "n3", u64::MAX)], vec![]);
    assert_eq!(refusals(&more), [Refusal::NotWanted]);
    assert_eq!(world.has("job_a"), 4, "fair shares may go below");
}

#[test]
fn what_is_kept_apart_and_allotments_are_minded() {
    let mut world = World::new();
    for at in 0..2 {
        let demand = world.ask(&format!("svc_a.{at}"), "fixed", 1);
        demand.kind = WorkKind::Service;
        demand.apart = Some(Apart {
            group: work("svc_a"),
            by_label: None,
        });
    }
    let both = vec![place("svc_a.0", "n1", 1), place("svc_a.1", "n1", 1)];
    let plan = world.answered(both, vec![]);
    assert_eq!(refusals(&plan), [Refusal::KeptApart]);
    assert_eq!(plan.grants.len(), 1);

    world.ask("job_fixed", "fixed", 4);
    let limit = User {
        max_allotment_bytes: Some(2 * GIB),
        ..User::default()
    };
    world.snapshot.users.insert("ann".parse().unwrap(), limit);
    let plan = world.answered(vec![place("job_fixed", "n2", 2)], vec![]);
    assert_eq!(refusals(&plan), [Refusal::OverAllotment]);
    assert_eq!(world.has("job_fixed"), 1);
    // And fair shares are told what is left of it.
    let seen = Trees::of(&world.snapshot).allotments(&world.snapshot);
    assert_eq!(seen.values().next().unwrap().max_allotment_bytes, Some(0));
}

#[test]
fn a_reservation_gets_a_whole_empty_node() {
    let mut world = World::new();
    world.ask("job_a", "fair", 1);
    world.answered(vec![place("job_a", "n1", 1)], vec![]);
    let demand = world.ask("rsv_a", "whole", 1);
    demand.kind = WorkKind::Reservation;
    demand.size = Size::memory(2 * GIB);
    let plan = world.answered(
        vec![place("rsv_a", "n1", 1), place("rsv_a", "n2", 1)],
        vec![],
    );
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    let grant = &plan.grants[0];
    assert_eq!(
        (grant.node.as_str(), grant.order, grant.fixed),
        ("n2", 4, true)
    );
}

/// `n1` is full of one job, and another one waits.
fn full() -> World {
    let mut world = World::new();
    world.ask("job_a", "fair", 4);
    world.answered(vec![place("job_a", "n1", 4)], vec![]);
    world.ask("job_b", "fair", 1);
    world
}

#[test]
fn room_is_taken_back_for_others_and_is_there_when_it_is_left() {
    let mut world = full();
    let swap = (vec![place("job_b", "n1", 1)], vec![leave("alc_1")]);
    let plan = world.answered(swap.0.clone(), swap.1);
    assert_eq!(plan.vacates[0].reason, VacateReason::Preempted);
    assert!(
        plan.vacates[0]
            .detail
            .ends_with("takes it back: it is in the way")
    );
    assert_eq!(plan.receipts.len(), 1);
    // What leaves occupies its node until it is gone.
    assert_eq!(refusals(&plan), [Refusal::NoRoom]);
    // It is gone; who gave it up wants it back, and the answer decides who gets it.
    let plan = world.answered(vec![], vec![]);
    assert!(plan.is_empty());
    let plan = world.answered(swap.0, vec![]);
    assert_eq!((refusals(&plan), world.has("job_b")), (vec![], 1));
}

#[test]
fn each_bad_order_to_leave_has_its_reason() {
    let mut world = full();
    world.ask("svc_a", "fixed", 1).kind = WorkKind::Service;
    world.answered(vec![place("svc_a", "n2", 1)], vec![]);
    let (_, foreign) = world.snapshot.allocations.last_key_value().unwrap();
    let foreign = hayward_rm_scheduler_domain::snapshot::Allocation {
        work: work("job_else"),
        class: "else".into(),
        node: node_name("far"),
        fixed: false,
        ..foreign.clone()
    };
    world
        .snapshot
        .allocations
        .insert("alc_far".parse().unwrap(), foreign);
    world.ask("job_else", "else", 1);
    let orders = vec![
        leave("alc_none"),
        leave("no id \u{0}"),
        leave("alc_far"),
        leave("alc_5"),
        leave("alc_2"),
        leave("alc_2"),
    ];
    let plan = world.answered(vec![], orders);
    let expected = [
        Refusal::UnknownAllocation,
        Refusal::UnknownAllocation,
        Refusal::NotItsOwn,
        Refusal::NotPreemptable,
        Refusal::LeavingAlready,
    ];
    assert_eq!(refusals(&plan), expected);
    assert_eq!(plan.outside[POOL].refused[2].at, "/vacates/2");
    // Nobody waits any more: what is there stays.
    world.snapshot.demand.remove(&work("job_b"));
    world.demand("job_a").max_processes = 3;
    let plan = world.answered(vec![], vec![leave("alc_1")]);
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn b5_no_more_is_taken_back_in_an_hour_than_may_be() {
    let mut world = full();
    world.demand("job_b").max_processes = 4;
    let settings = &mut world.snapshot.tunables.settings;
    // Of the eight quanta of its own nodes.
    settings.preemption_pool_percent_per_hour = Some(25);
    settings.preemption_user_percent_per_hour = None;
    let orders = || (1..=4).map(|at| leave(&format!("alc_{at}"))).collect();
    let plan = world.plan_of(orders());
    assert_eq!(plan.vacates.len(), 2);
    assert_eq!(refusals(&plan), [Refusal::OverBudget; 2]);
    let settings = &mut world.snapshot.tunables.settings;
    settings.preemption_pool_percent_per_hour = None;
    settings.preemption_user_percent_per_hour = Some(25);
    let spent = [("ann".parse().unwrap(), 2)].into();
    world.snapshot.taken_back.insert("below".into(), spent);
    let plan = world.plan_of(orders());
    // Three of the twelve of the tree, and two are spent.
    assert_eq!((plan.vacates.len(), plan.outside[POOL].refusals), (1, 3));
    // Where nothing is said, there is a budget all the same: twice the twelve for one user.
    let settings = &mut world.snapshot.tunables.settings;
    settings.preemption_user_percent_per_hour = None;
    let spent = [("ann".parse().unwrap(), 22)].into();
    world.snapshot.taken_back.insert("below".into(), spent);
    let plan = world.plan_of(orders());
    assert_eq!((plan.vacates.len(), plan.outside[POOL].refusals), (2, 2));
}

/// I14, with what is told of who gave up what for whom.
#[test]
fn nothing_is_taken_back_for_who_could_not_stand_there() {
    let mut world = full();
    let all = || {
        (1..=4)
            .map(|at| leave(&format!("alc_{at}")))
            .collect::<Vec<_>>()
    };
    let plan = world.plan_of(all());
    assert_eq!(plan.vacates.len(), 1, "one process is lacking");
    assert_eq!(refusals(&plan), [Refusal::ServesNobody; 3]);
    let receipt = &plan.receipts[0];
    assert_eq!(receipt.beneficiary, Some(work("job_b")));
    assert_eq!(receipt.for_user, Some("ann".parse().unwrap()));
    let change: [fn(&mut World); 6] = [
        |it| it.demand("job_b").size = Size::memory(1 << 50),
        |it| it.demand("job_b").machines = [node_name("n2")].into(),
        |it| it.demand("job_b").avoids = [node_name("n1")].into(),
        |it| it.on("n1").takes_work = false,
        |it| it.demand("job_b").size.gpu_milli = 2_500,
        // Part of the node is another planner's, and stays.
        |it| it.demand("job_b").size = Size::memory(5 * GIB),
    ];
    for change in change {
        let mut world = full();
        change(&mut world);
        let plan = world.plan_of(all());
        assert_eq!(refusals(&plan), [Refusal::ServesNobody; 4]);
    }
    // What needs the whole node gets the whole node or nothing.
    world.demand("job_b").size = Size::memory(3 * GIB);
    let plan = world.plan_of(all());
    assert_eq!((plan.vacates.len(), refusals(&plan).len()), (3, 1));
    assert!(world.plan_of(all()[..2].to_vec()).vacates.is_empty());
}

#[test]
fn who_stands_apart_from_what_stays_is_served_by_none_of_its_neighbours() {
    let mut world = full();
    world.demand("job_b").max_processes = 0;
    world.demand("job_a").max_processes = 3;
    world.answered(vec![], vec![]);
    world.answered(vec![], vec![]);
    for at in 0..2 {
        let demand = world.ask(&format!("svc_a.{at}"), "fixed", 1);
        demand.kind = WorkKind::Service;
        demand.machines = [node_name("n1")].into();
        demand.apart = Some(Apart {
            group: work("svc_a"),
            by_label: None,
        });
    }
    world.answered(vec![place("svc_a.0", "n1", 1)], vec![]);
    assert_eq!(world.has("svc_a.0"), 1);
    let plan = world.plan_of(vec![leave("alc_1")]);
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn who_is_granted_what_it_lacks_is_no_reason_to_take_anything_back() {
    let mut world = full();
    let plan = world.answered(vec![place("job_b", "n2", 1)], vec![leave("alc_1")]);
    assert_eq!((plan.grants.len(), plan.vacates.len()), (1, 0));
    assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
}

#[test]
fn room_is_made_once_for_each_process_that_is_lacking() {
    let mut world = full();
    assert_eq!(
        world.answered(vec![], vec![leave("alc_1")]).vacates.len(),
        1
    );
    // It still lacks, and is not granted what was freed; nor is anything taken back elsewhere.
    for at in [2, 3, 4, 2] {
        let plan = world.answered(vec![], vec![leave(&format!("alc_{at}"))]);
        assert_eq!(refusals(&plan), [Refusal::ServesNobody]);
    }
    // Once that is granted, the next process is another reason.
    world.demand("job_b").max_processes = 2;
    let grant = vec![place("job_b", "n1", 1)];
    assert_eq!(world.answered(grant, vec![leave("alc_2")]).vacates.len(), 1);
    assert_eq!(world.snapshot.carried.moved[POOL].served.len(), 1);
    // And what was made long ago counts no more.
    world.snapshot.now = world.snapshot.now.plus_ms(QUIET_MS);
    assert_eq!(
        world.answered(vec![], vec![leave("alc_3")]).vacates.len(),
        0
    );
    world.answered(vec![place("job_a", "n1", 1)], vec![]);
    assert_eq!(
        world.answered(vec![], vec![leave("alc_3")]).vacates.len(),
        1
    );
}

/// One place, and two who want it: whoever gave it up and has it again keeps it for a while.
#[test]
fn a_place_does_not_go_to_and_fro() {
    let mut world = World::new();
    for node in ["n2", "n3"] {
        world.on(node).takes_work = false;
    }
    world.ask("job_a", "fair", 1).size = Size::memory(4 * GIB);
    world.ask("job_b", "fair", 1).size = Size::memory(4 * GIB);
    world.answered(vec![place("job_a", "n1", 1)], vec![]);
    let mut moved = 0;
    for _ in 0..40 {
        let held = world.snapshot.allocations.first_key_value();
        let Some((id, held)) = held.map(|(id, held)| (id.to_string(), held.clone())) else {
            unreachable!("somebody has it");
        };
        let safe = world.question().unwrap().allocations[0].preemptable;
        let next = if held.work == work("job_a") {
            "job_b"
        } else {
            "job_a"
        };
        let plan = world.answered(vec![], vec![leave(&id)]);
        assert_eq!(
            plan.vacates.len(),
            usize::from(safe),
            "the question says so"
        );
        if plan.vacates.is_empty() {
            assert_eq!(refusals(&plan), [Refusal::NotPreemptable]);
            continue;
        }
        moved += 1;
        world.answered(vec![], vec![]);
        assert_eq!(
            world
                .answered(vec![place(next, "n1", 1)], vec![])
                .grants
                .len(),
            1
        );
    }
    assert_eq!(moved, 2, "there and back");
    world.snapshot.now = world.snapshot.now.plus_ms(QUIET_MS);
    assert!(world.question().unwrap().allocations[0].preemptable);
    assert!(world.plan().carried.moved.is_empty(), "and is forgotten");
}

impl World {
    /// Of an answer that is not carried out.
    fn plan_of(
        &self,
        vacates: Vec<hayward_rm_scheduler_domain::snapshot::outside::Leave>,
    ) -> hayward_rm_scheduler_domain::Plan {
        let mut world = Self::new();
        world.snapshot = self.snapshot.clone();
        world.answered(vec![], vacates)
    }
}

#[test]
fn an_answer_is_used_once() {
    let mut world = World::new();
    world.ask("job_a", "fair", 8);
    world.answered(vec![place("job_a", "n1", 2)], vec![]);
    assert_eq!(world.has("job_a"), 2);
    for _ in 0..3 {
        // It is still there.
        let plan = world.plan();
        assert!(plan.is_empty() && plan.outside.is_empty());
        world.carry_out(&plan);
    }
    world.known().answer.as_mut().unwrap().number = 1;
    assert!(world.plan().is_empty(), "older ones neither");
    assert_eq!(world.has("job_a"), 2);
}

#[test]
fn while_it_is_silent_nothing_is_granted_and_what_runs_goes_on() {
    let mut world = full();
    world.known().silence = Some("no answer within 10 ms".into());
    let plan = world.plan();
    assert!(plan.is_empty());
    let verdict = &plan.verdicts[&work("job_b")];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::OutsidePlanner, true)
    );
    assert_eq!(
        verdict.detail,
        "outside planner of pool out did not answer: no answer within 10 ms"
    );
    let fine = &plan.verdicts[&work("job_a")];
    assert_eq!((fine.reason, fine.waits), (Reason::Satisfied, false));
    assert!(!plan.verdicts.contains_key(&work("job_else")));
}

#[test]
fn words_of_the_planner_are_passed_on_until_it_says_others() {
    let mut world = full();
    let told = |world: &World| world.plan().verdicts[&work("job_b")].detail.to_string();
    world.known().heard = None;
    assert!(told(&world).ends_with("has not answered yet"));
    world.answered(vec![], vec![]);
    assert!(told(&world).ends_with("does not say why"));
    world.known().answer = Some(hayward_rm_scheduler_domain::snapshot::outside::Answer {
        number: 99,
        notes: [
            ("job_b".into(), "tomorrow".into()),
            ("job_x".into(), "?".into()),
        ]
        .into(),
        ..Default::default()
    });
    let plan = world.plan();
    assert_eq!(
        plan.outside[POOL].heard.notes.len(),
        1,
        "others are nothing to it"
    );
    world.carry_out(&plan);
    for _ in 0..2 {
        assert_eq!(
            told(&world),
            "outside planner of pool out did not place it: tomorrow"
        );
    }
    let heard = world.known().heard.clone().unwrap();
    let kept = |world: &World| of_use(&world.snapshot, &Trees::of(&world.snapshot), POOL, &heard);
    assert_eq!(kept(&world), heard);
    world.demand("job_b").max_processes = 0;
    assert_eq!(kept(&world), Heard::default(), "it lacks nothing now");
}

#[test]
fn what_has_to_leave_leaves_without_any_planner() {
    let mut world = full();
    world.answered(vec![place("job_b", "n2", 1)], vec![]);
    let lost = world.ask("job_c", "fair", 2);
    lost.max_processes = 2;
    world.answered(vec![place("job_c", "n3", 2)], vec![]);
    world.known().silence = Some("away".into());
    world.snapshot.demand.remove(&work("job_b"));
    world.demand("job_a").max_processes = 3;
    world.on("n3").lost = true;
    let plan = world.plan();
    let reasons: Vec<_> = plan
        .vacates
        .iter()
        .map(|it| (it.reason, it.purge))
        .collect();
    let expected = [
        (VacateReason::OwnLimit, false),
        (VacateReason::WorkGone, false),
        (VacateReason::NodeLost, true),
        (VacateReason::NodeLost, true),
    ];
    assert_eq!(reasons, expected);
    assert!(plan.verdicts[&work("job_c")].waits);
    world.on("n3").lost = false;
    world.on("n3").offline = true;
    world.on("n1").block = Some(Block {
        effect: BlockEffect::Evacuate,
        reason: "smoke".into(),
    });
    let plan = world.plan();
    let count = |reason| plan.vacates.iter().filter(|it| it.reason == reason).count();
    assert_eq!(count(VacateReason::Blocked), 4);
    assert_eq!(count(VacateReason::NodeOffline), 2);
    assert_eq!(count(VacateReason::WorkGone), 1);
    world.on("n3").offline = false;
    world.on("n3").pool = "other".into();
    let plan = world.plan();
    let count = |reason| plan.vacates.iter().filter(|it| it.reason == reason).count();
    assert_eq!(count(VacateReason::Misplaced), 2);
}

#[test]
fn the_question_says_what_is_lacking_and_what_there_is() {
    let mut world = World::new();
    assert_eq!(world.question(), None, "nothing is lacking");
    world.ask("job_a", "fair", 4);
    world.ask("job_else", "else", 4);
    world.answered(vec![place("job_a", "n1", 3)], vec![]);
    world.on("n2").offline = true;
    let ask = world.question().unwrap();
    assert_eq!(ask.work.len(), 1);
    let job = &ask.work[0];
    assert_eq!((job.wanted, job.has, job.missing), (4, 3, 1));
    let names: Vec<&str> = ask.nodes.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    assert_eq!(
        (ask.nodes[0].free_quanta, ask.nodes[0].free.memory_bytes),
        (1, GIB)
    );
    assert_eq!(ask.nodes[1].reason.as_deref(), Some("varied off"));
    assert_eq!(
        (ask.allocations.len(), ask.allocations[0].preemptable),
        (3, true)
    );
    assert_eq!(ask.pools["below"].as_deref(), Some("out"));
    assert!(ask.classes.contains_key("fixed") && !ask.classes.contains_key("else"));
    let mut later = ask.clone();
    later.revision += 1;
    later.now = later.now.plus_ms(1);
    assert!(later.is_like(&ask));
    later.work[0].missing = 0;
    assert!(!later.is_like(&ask));
    world.answered(vec![place("job_a", "n1", 1)], vec![]);
    assert_eq!(world.question(), None);
}
