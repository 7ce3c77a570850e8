//! Property tests. For any response the plan passes `check`, and a repeated response grants nothing
//! more. A correct planner fills the pool.

use hayward_rm_scheduler_domain::{
    Plan, check, prune,
    snapshot::external_planners::{PlannerResponse, RequestedGrant, RequestedVacate},
};
use hayward_vocabulary::{Size, WorkKind, resources::GIB};
use proptest::prelude::*;

use crate::{
    fixture::{Fixture, POOL},
    parse_response, plan,
};

/// Ids of work in requested grants. The last three belong to another planner or do not exist.
const WORK_NAMES: [&str; 9] = [
    "job_0", "job_1", "job_2", "job_3", "svc_0", "rsv_0", "job_else", "job_none", "",
];
/// Names of nodes in requested grants. `far` is in another pool, and the last two do not exist.
const NODES: [&str; 6] = ["n1", "n2", "n3", "far", "n9", "\u{0}"];

fn requested_grant() -> impl Strategy<Value = RequestedGrant> {
    let count = prop_oneof![0..6_u64, Just(u64::MAX)];
    let names = (
        prop::sample::select(WORK_NAMES.to_vec()),
        prop::sample::select(NODES.to_vec()),
    );
    (names, count).prop_map(|((work, node), processes)| RequestedGrant {
        work: work.into(),
        node: node.into(),
        processes,
    })
}

fn requested_vacate() -> impl Strategy<Value = RequestedVacate> {
    (0..30_u64).prop_map(|number| RequestedVacate {
        allocation: format!("alc_{number}"),
        detail: String::new(),
    })
}

/// Grants and vacates of one response.
type Response = (Vec<RequestedGrant>, Vec<RequestedVacate>);

fn responses() -> impl Strategy<Value = Vec<Response>> {
    let response = (
        prop::collection::vec(requested_grant(), 0..12),
        prop::collection::vec(requested_vacate(), 0..6),
    );
    prop::collection::vec(response, 1..8)
}

/// Applies an event between two responses. The numbers above 7 change nothing.
fn apply_event(fixture: &mut Fixture, event: u8) {
    match event {
        0 => fixture.node_mut("n1").takes_work ^= true,
        1 => fixture.node_mut("n2").lost ^= true,
        2 => fixture.node_mut("n3").offline ^= true,
        3 => drop(fixture.snapshot.demand.pop_first()),
        4 => fixture.node_mut("n2").pool = "other".into(),
        5 => fixture.node_mut("n2").pool = POOL.into(),
        6 => fixture.node_mut("n1").capacity = Size::memory(2 * GIB),
        7 => fixture
            .snapshot
            .demand
            .values_mut()
            .for_each(|it| it.max_processes = 1),
        _ => {}
    }
}

/// Creates one job of each size, a service, a reservation, and a job that another planner plans.
fn fixture_with_jobs(sizes: &[u64]) -> Fixture {
    let mut fixture = Fixture::new();
    for (index, size) in sizes.iter().enumerate() {
        let demand = fixture.add_job(&format!("job_{index}"), "fair", 1 + size * 2);
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
    fn any_response_leads_to_a_valid_plan(
        sizes in prop::collection::vec(1..4_u64, 4),
        responses in responses(),
        events in prop::collection::vec(0..12_u8, 8),
    ) {
        let mut fixture = fixture_with_jobs(&sizes);
        for ((grants, vacates), event) in responses.into_iter().zip(events) {
            // `Fixture::plan` asserts that each plan passes `check`.
            let result = fixture.respond(grants, vacates);
            let outcome = &result.external_planners[POOL];
            prop_assert_eq!(outcome.granted, result.grants.len() as u64);
            let repeated = fixture.plan();
            prop_assert!(repeated.grants.is_empty() && repeated.external_planners.is_empty());
            apply_event(&mut fixture, event);
        }
    }

    #[test]
    fn any_response_preserves_grants_of_another_planner(
        sizes in prop::collection::vec(1..4_u64, 4),
        (grants, vacates) in responses().prop_map(|mut all| all.remove(0)),
    ) {
        let mut fixture = fixture_with_jobs(&sizes);
        // The plan already has grants of another planner on a node of the pool.
        let grant = crate::fixture::requested_grant("job_0", "n1", 2);
        let before = fixture.respond(vec![grant], vec![]);
        let mut fixture = fixture_with_jobs(&sizes);
        let others = Plan { grants: before.grants, ..Plan::default() };
        let response = PlannerResponse { number: 1, grants, vacates, ..PlannerResponse::default() };
        fixture.planner_mut().response = Some(response);
        let mut result = others.clone();
        plan(&fixture.snapshot, &mut result);
        prop_assert_eq!(check(&fixture.snapshot, &result), Ok(()));
        prop_assert_eq!(&result.grants[..others.grants.len()], &others.grants[..]);
        let (accepted, refused) = prune(&fixture.snapshot, result.clone());
        prop_assert!(refused.is_empty());
        prop_assert_eq!(accepted.grants, result.grants);
    }

    #[test]
    fn the_parser_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_response(&body, 1);
    }

    #[test]
    fn grants_that_follow_the_request_are_accepted(sizes in prop::collection::vec(1..4_u64, 4)) {
        let mut fixture = fixture_with_jobs(&sizes);
        for _ in 0..40 {
            let Some(request) = fixture.planner_request() else { return Ok(()) };
            let step = request.work.iter().filter(|work| work.missing > 0).find_map(|work| {
                let fits = |node: &&crate::RequestNode| {
                    let is_reserve = work.class == "whole";
                    let is_empty = node.used == Size::default();
                    let in_reach = work.class == "fair" || node.pool == POOL;
                    let needs_no_gpu = work.size.gpu_milli == 0;
                    node.schedulable && work.size.fits(&node.free) && in_reach && needs_no_gpu
                        && (!is_reserve || is_empty)
                };
                let node = request.nodes.iter().find(fits)?;
                Some(crate::fixture::requested_grant(work.work.as_str(), node.node.as_str(), 1))
            });
            let Some(step) = step else { return Ok(()) };
            let result = fixture.respond(vec![step], vec![]);
            let outcome = &result.external_planners[POOL];
            prop_assert_eq!(outcome.refusals, 0, "{:?}", outcome);
            prop_assert_eq!(result.grants.len(), 1);
        }
        prop_assert!(false, "work is still missing after 40 grants");
    }
}
