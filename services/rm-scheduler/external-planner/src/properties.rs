//! For any response, the plan passes `check`, a repeated response grants nothing more, and a
//! correct planner fills the pool.

use hayward_rm_scheduler_domain::{
    Plan, check, prune,
    snapshot::outside::{Answer, RequestedGrant, RequestedVacate},
};
use hayward_vocabulary::{Size, WorkKind, resources::GIB};
use proptest::prelude::*;

use crate::{
    fixture::{Fixture, POOL},
    parse_response, plan,
};

const NAMES: [&str; 9] = [
    "job_0", "job_1", "job_2", "job_3", "svc_0", "rsv_0", "job_else", "job_none", "",
];
const NODES: [&str; 6] = ["n1", "n2", "n3", "far", "n9", "\u{0}"];

fn place() -> impl Strategy<Value = RequestedGrant> {
    let count = prop_oneof![0..6_u64, Just(u64::MAX)];
    let names = (
        prop::sample::select(NAMES.to_vec()),
        prop::sample::select(NODES.to_vec()),
    );
    (names, count).prop_map(|((work, node), processes)| RequestedGrant {
        work: work.into(),
        node: node.into(),
        processes,
    })
}

fn leave() -> impl Strategy<Value = RequestedVacate> {
    (0..30_u64).prop_map(|at| RequestedVacate {
        allocation: format!("alc_{at}"),
        detail: String::new(),
    })
}

type Steps = (Vec<RequestedGrant>, Vec<RequestedVacate>);

fn responses() -> impl Strategy<Value = Vec<Steps>> {
    let one = (
        prop::collection::vec(place(), 0..12),
        prop::collection::vec(leave(), 0..6),
    );
    prop::collection::vec(one, 1..8)
}

/// Applies an event between two responses.
fn happens(fixture: &mut Fixture, what: u8) {
    match what {
        0 => fixture.on("n1").takes_work ^= true,
        1 => fixture.on("n2").lost ^= true,
        2 => fixture.on("n3").offline ^= true,
        3 => drop(fixture.snapshot.demand.pop_first()),
        4 => fixture.on("n2").pool = "other".into(),
        5 => fixture.on("n2").pool = POOL.into(),
        6 => fixture.on("n1").capacity = Size::memory(2 * GIB),
        7 => fixture
            .snapshot
            .demand
            .values_mut()
            .for_each(|it| it.max_processes = 1),
        _ => {}
    }
}

fn fleet(sizes: &[u64]) -> Fixture {
    let mut fixture = Fixture::new();
    for (at, size) in sizes.iter().enumerate() {
        let demand = fixture.add_job(&format!("job_{at}"), "fair", 1 + size * 2);
        demand.size = Size {
            gpu_milli: size % 3 * 700,
            ..Size::memory(size * GIB)
        };
    }
    fixture.add_job("svc_0", "fixed", 1).kind = WorkKind::Service;
    fixture.add_job("rsv_0", "whole", 1).kind = WorkKind::Reservation;
    fixture.add_job("job_else", "else", 3);
    fixture
}

proptest! {
    #[test]
    fn no_response_leads_to_an_invalid_plan(
        sizes in prop::collection::vec(1..4_u64, 4),
        responses in responses(),
        between in prop::collection::vec(0..12_u8, 8),
    ) {
        let mut fixture = fleet(&sizes);
        for ((grants, vacates), what) in responses.into_iter().zip(between) {
            // `Fixture` checks each plan.
            let made = fixture.respond(grants, vacates);
            let taken = &made.outside[POOL];
            prop_assert_eq!(taken.granted, made.grants.len() as u64);
            let again = fixture.plan();
            prop_assert!(again.grants.is_empty() && again.outside.is_empty());
            happens(&mut fixture, what);
        }
    }

    #[test]
    fn no_response_changes_the_plans_of_others(
        sizes in prop::collection::vec(1..4_u64, 4),
        (grants, vacates) in responses().prop_map(|mut all| all.remove(0)),
    ) {
        let mut fixture = fleet(&sizes);
        // The other planner has already planned, so one grant is on a node of the pool.
        let before = fixture.respond(vec![crate::fixture::place("job_0", "n1", 2)], vec![]);
        let mut fixture = fleet(&sizes);
        let others = Plan { grants: before.grants, ..Plan::default() };
        fixture.known().answer = Some(Answer { number: 1, grants, vacates, ..Answer::default() });
        let mut made = others.clone();
        plan(&fixture.snapshot, &mut made);
        prop_assert_eq!(check(&fixture.snapshot, &made), Ok(()));
        prop_assert_eq!(&made.grants[..others.grants.len()], &others.grants[..]);
        let (accepted, refused) = prune(&fixture.snapshot, made.clone());
        prop_assert!(refused.is_empty());
        prop_assert_eq!(accepted.grants, made.grants);
    }

    #[test]
    fn no_response_body_makes_the_parser_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_response(&body, 1);
    }

    #[test]
    fn grants_that_follow_the_request_are_accepted(sizes in prop::collection::vec(1..4_u64, 4)) {
        let mut fixture = fleet(&sizes);
        for _ in 0..40 {
            let Some(request) = fixture.question() else { return Ok(()) };
            let found = request.work.iter().filter(|work| work.missing > 0).find_map(|work| {
                let fits = |node: &&crate::RequestNode| {
                    let whole = work.class == "whole";
                    let empty = node.used == Size::default();
                    let home = work.class == "fair" || node.pool == POOL;
                    let gpus = work.size.gpu_milli == 0;
                    node.schedulable && work.size.fits(&node.free) && home && gpus
                        && (!whole || empty)
                };
                let node = request.nodes.iter().find(fits)?;
                Some(crate::fixture::place(work.work.as_str(), node.node.as_str(), 1))
            });
            let Some(step) = found else { return Ok(()) };
            let made = fixture.respond(vec![step], vec![]);
            prop_assert_eq!(made.outside[POOL].refusals, 0, "{:?}", made.outside[POOL]);
            prop_assert_eq!(made.grants.len(), 1);
        }
        prop_assert!(false, "never comes to an end");
    }
}
