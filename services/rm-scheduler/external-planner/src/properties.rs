//! Whatever an answer says: the plan passes `check`, the same answer twice grants nothing more, and
//! an honest planner fills what there is.

use hayward_rm_scheduler_domain::{
    Plan, check, prune,
    snapshot::outside::{Answer, Leave, Place},
};
use hayward_vocabulary::{Size, WorkKind, resources::GIB};
use proptest::prelude::*;

use crate::{
    fixture::{POOL, World},
    plan, read,
};

const NAMES: [&str; 9] = [
    "job_0", "job_1", "job_2", "job_3", "svc_0", "rsv_0", "job_else", "job_none", "",
];
const NODES: [&str; 6] = ["n1", "n2", "n3", "far", "n9", "\u{0}"];

fn place() -> impl Strategy<Value = Place> {
    let count = prop_oneof![0..6_u64, Just(u64::MAX)];
    let names = (
        prop::sample::select(NAMES.to_vec()),
        prop::sample::select(NODES.to_vec()),
    );
    (names, count).prop_map(|((work, node), processes)| Place {
        work: work.into(),
        node: node.into(),
        processes,
    })
}

fn leave() -> impl Strategy<Value = Leave> {
    (0..30_u64).prop_map(|at| Leave {
        allocation: format!("alc_{at}"),
        detail: String::new(),
    })
}

type Steps = (Vec<Place>, Vec<Leave>);

fn answers() -> impl Strategy<Value = Vec<Steps>> {
    let one = (
        prop::collection::vec(place(), 0..12),
        prop::collection::vec(leave(), 0..6),
    );
    prop::collection::vec(one, 1..8)
}

/// What happens to the fleet between two answers.
fn happens(world: &mut World, what: u8) {
    match what {
        0 => world.on("n1").takes_work ^= true,
        1 => world.on("n2").lost ^= true,
        2 => world.on("n3").offline ^= true,
        3 => drop(world.snapshot.demand.pop_first()),
        4 => world.on("n2").pool = "other".into(),
        5 => world.on("n2").pool = POOL.into(),
        6 => world.on("n1").capacity = Size::memory(2 * GIB),
        7 => world
            .snapshot
            .demand
            .values_mut()
            .for_each(|it| it.max_processes = 1),
        _ => {}
    }
}

fn fleet(sizes: &[u64]) -> World {
    let mut world = World::new();
    for (at, size) in sizes.iter().enumerate() {
        let demand = world.ask(&format!("job_{at}"), "fair", 1 + size * 2);
        demand.size = Size {
            gpu_milli: size % 3 * 700,
            ..Size::memory(size * GIB)
        };
    }
    world.ask("svc_0", "fixed", 1).kind = WorkKind::Service;
    world.ask("rsv_0", "whole", 1).kind = WorkKind::Reservation;
    world.ask("job_else", "else", 3);
    world
}

proptest! {
    #[test]
    fn no_answer_makes_a_plan_that_is_refused(
        sizes in prop::collection::vec(1..4_u64, 4),
        answers in answers(),
        between in prop::collection::vec(0..12_u8, 8),
    ) {
        let mut world = fleet(&sizes);
        for ((grants, vacates), what) in answers.into_iter().zip(between) {
            // `World` checks each plan it makes.
            let made = world.answered(grants, vacates);
            let taken = &made.outside[POOL];
            prop_assert_eq!(taken.granted, made.grants.len() as u64);
            let again = world.plan();
            prop_assert!(again.grants.is_empty() && again.outside.is_empty());
            happens(&mut world, what);
        }
    }

    #[test]
    fn what_others_planned_stands_whatever_is_answered(
        sizes in prop::collection::vec(1..4_u64, 4),
        (grants, vacates) in answers().prop_map(|mut all| all.remove(0)),
    ) {
        let mut world = fleet(&sizes);
        // Somebody has planned for these before: for one of them on a node of the pool.
        let before = world.answered(vec![crate::fixture::place("job_0", "n1", 2)], vec![]);
        let mut world = fleet(&sizes);
        let others = Plan { grants: before.grants, ..Plan::default() };
        world.known().answer = Some(Answer { number: 1, grants, vacates, ..Answer::default() });
        let mut made = others.clone();
        plan(&world.snapshot, &mut made);
        prop_assert_eq!(check(&world.snapshot, &made), Ok(()));
        prop_assert_eq!(&made.grants[..others.grants.len()], &others.grants[..]);
        let (kept, refused) = prune(&world.snapshot, made.clone());
        prop_assert!(refused.is_empty());
        prop_assert_eq!(kept.grants, made.grants);
    }

    #[test]
    fn no_bytes_make_reading_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&body, 1);
    }

    #[test]
    fn who_places_by_the_question_is_never_refused(sizes in prop::collection::vec(1..4_u64, 4)) {
        let mut world = fleet(&sizes);
        for _ in 0..40 {
            let Some(ask) = world.question() else { return Ok(()) };
            let found = ask.work.iter().filter(|work| work.missing > 0).find_map(|work| {
                let fits = |node: &&crate::AskedNode| {
                    let whole = work.class == "whole";
                    let empty = node.used == Size::default();
                    let home = work.class == "fair" || node.pool == POOL;
                    let gpus = work.size.gpu_milli == 0;
                    node.schedulable && work.size.fits(&node.free) && home && gpus
                        && (!whole || empty)
                };
                let node = ask.nodes.iter().find(fits)?;
                Some(crate::fixture::place(work.work.as_str(), node.node.as_str(), 1))
            });
            let Some(step) = found else { return Ok(()) };
            let made = world.answered(vec![step], vec![]);
            prop_assert_eq!(made.outside[POOL].refusals, 0, "{:?}", made.outside[POOL]);
            prop_assert_eq!(made.grants.len(), 1);
        }
        prop_assert!(false, "never comes to an end");
    }
}
