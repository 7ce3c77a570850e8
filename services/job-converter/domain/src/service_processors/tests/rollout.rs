//! Changes of a running service: other counts, and new deployments. A rollout stops slots from the
//! last to the first.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

impl ServiceTest {
    /// Applies a new deployment. Existing processes are outdated.
    fn deploy(&mut self, settings: ProcessorSettings) {
        for slot in 0..self.processors.settings().count() {
            let (occupant, alive) = (
                self.processors.by_slot[slot].occupant.clone(),
                self.processors.by_slot[slot].alive,
            );
            let stale = occupant.map(|occupant| Occupant {
                stale: true,
                ..occupant
            });
            self.processors.set_occupant(slot, stale, alive);
        }
        self.processors.amend(settings, true, time(self.now_ms));
    }

    fn roll_out(&mut self, limit: u64) {
        self.processors.roll_out(limit, &BTreeSet::new());
    }

    /// Returns the slots that request nothing.
    fn stopped_slots(&self) -> Vec<usize> {
        let all = 0..self.processors.settings().count();
        all.filter(|slot| self.requested_host(*slot) == "nothing")
            .collect()
    }

    /// Ends the stopped process and runs its successor.
    fn replace_process(&mut self, slot: usize, on: &str) {
        self.vacate(slot);
        assert_eq!(
            self.requested_host(slot),
            "nothing",
            "the old process has not ended yet"
        );
        self.end_vacated(slot);
        assert_ne!(self.requested_host(slot), "nothing");
        self.run(slot, on);
    }
}

fn without_standbys(instances: u32) -> ProcessorSettings {
    ProcessorSettings {
        retries: None,
        host_affinity: false,
        ..settings(instances, 0)
    }
}

#[test]
fn a_deployment_is_replaced_one_at_a_time() {
    let mut service_test = ServiceTest::running(without_standbys(3));
    service_test.roll_out(1);
    assert_eq!(
        service_test.stopped_slots(),
        [] as [usize; 0],
        "nothing is outdated"
    );
    service_test.deploy(without_standbys(3));
    for slot in [2, 1, 0] {
        service_test.roll_out(1);
        assert_eq!(service_test.stopped_slots(), [slot]);
        service_test.roll_out(1);
        assert_eq!(service_test.stopped_slots(), [slot], "the limit is reached");
        service_test.replace_process(slot, "h9");
    }
    service_test.roll_out(1);
    assert_eq!(
        (
            service_test.stopped_slots(),
            service_test.processors.count_outdated()
        ),
        (vec![], 0)
    );
    assert!(service_test.processors.is_healthy());
}

#[test]
fn a_limit_of_two_stops_two_but_never_an_active_with_its_standby() {
    let mut service_test = ServiceTest::running(without_standbys(3));
    service_test.deploy(without_standbys(3));
    service_test.roll_out(2);
    assert_eq!(service_test.stopped_slots(), [1, 2]);
    // Slots 0 and 1 are actives. Slots 2 and 3 are their standbys.
    let mut service_test = ServiceTest::running(settings(2, 1));
    service_test.deploy(settings(2, 1));
    service_test.roll_out(4);
    assert_eq!(
        service_test.stopped_slots(),
        [2, 3],
        "standbys first, then their actives"
    );
    service_test.replace_process(3, "h8");
    service_test.roll_out(4);
    assert_eq!(service_test.stopped_slots(), [1, 2]);
}

#[test]
fn a_replaced_active_restarts_on_its_host_without_failover() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.deploy(settings(1, 1));
    service_test.roll_out(1);
    service_test.replace_process(1, "h1");
    service_test.roll_out(1);
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "any",
        "the standby continues"
    );
    service_test.end_vacated(0);
    assert_eq!(service_test.requested_host(0), "h0");
    assert!(service_test.processors.get(0).unwrap().failover().is_none());
}

#[test]
fn a_failing_deployment_stops_the_rollout() {
    let mut service_test = ServiceTest::running(without_standbys(4));
    service_test.deploy(without_standbys(4));
    service_test.roll_out(1);
    service_test.replace_process(3, "h3");
    // The process crashed once since then, and has run again only briefly.
    let unstable = BTreeSet::from([3]);
    service_test.processors.roll_out(1, &unstable);
    assert_eq!(service_test.stopped_slots(), [] as [usize; 0]);
    // A second deployment replaces the unstable process too. Until slot 3 runs, it counts as
    // missing.
    service_test.deploy(without_standbys(4));
    service_test.end_process(3, ProcessOutcome::Failed);
    service_test.roll_out(1);
    assert_eq!(
        service_test.stopped_slots(),
        [] as [usize; 0],
        "slot 3 is missing"
    );
    service_test.run(3, "h3");
    service_test.roll_out(1);
    assert_eq!(service_test.stopped_slots(), [2]);
}

#[test]
fn a_processor_that_did_not_run_is_replaced_at_once() {
    let mut service_test = ServiceTest::running(without_standbys(3));
    let occupant = Occupant {
        running: false,
        ..service_test.occupant(1)
    };
    service_test.processors.set_occupant(1, Some(occupant), 1);
    service_test.deploy(without_standbys(3));
    service_test.roll_out(1);
    assert_eq!(service_test.stopped_slots(), [1]);
}

#[test]
fn a_successor_that_is_there_already_ends_the_wait() {
    let mut service_test = ServiceTest::running(without_standbys(1));
    service_test.deploy(without_standbys(1));
    service_test.roll_out(1);
    assert_eq!(service_test.requested_host(0), "nothing");
    // A drain has moved the process to another node, so the new process runs already.
    service_test.run(0, "h7");
    assert_eq!(service_test.requested_host(0), "any");
    assert_eq!(service_test.processors.count_outdated(), 0);
}

#[test]
fn a_rollout_skips_a_processor_that_is_being_moved() {
    let mut service_test = ServiceTest::running(without_standbys(1));
    let occupant = service_test.occupant(0);
    service_test.processors.set_occupant(0, Some(occupant), 2);
    service_test.deploy(without_standbys(1));
    service_test.roll_out(1);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn a_new_deployment_clears_failures() {
    let one_retry = ProcessorSettings {
        retries: Some(Retries {
            fail_service: false,
            ..retries(1)
        }),
        ..settings(2, 0)
    };
    let mut service_test = ServiceTest::running(one_retry.clone());
    service_test.end_process(0, ProcessOutcome::Completed);
    service_test.end_process(1, ProcessOutcome::Failed);
    service_test.run(1, "h1");
    service_test.end_process(1, ProcessOutcome::Failed);
    assert_eq!(
        (service_test.state(0), service_test.state(1)),
        (State::Completed, State::Failed)
    );
    service_test.deploy(one_retry);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("h0", "h1")
    );
    assert_eq!(service_test.processors.get(1).unwrap().failures(), None);
}

#[test]
fn scaling_does_not_change_the_remaining_processors() {
    let mut service_test = ServiceTest::running(settings(2, 1));
    service_test.end_process(1, ProcessOutcome::Failed);
    let record = service_test.processors.get(1).unwrap().failures().copied();
    let new_slots = service_test
        .processors
        .amend(settings(3, 2), false, time(service_test.now_ms));
    // The order of slots is 0, 1, 2, then 0-0, 0-1, 1-0, 1-1, 2-0, 2-1.
    assert_eq!(new_slots, [2, 4, 6, 7, 8]);
    assert_eq!(
        (service_test.occupant(0).host, service_test.occupant(3).host),
        (host("h0"), host("h2"))
    );
    assert_eq!(service_test.occupant(5).host, host("h3"));
    assert_eq!(
        service_test.processors.get(1).unwrap().failures().copied(),
        record
    );
    assert_eq!(
        (
            service_test.requested_host(2).as_str(),
            service_test.requested_host(8).as_str()
        ),
        ("any", "any")
    );
    let new_slots = service_test
        .processors
        .amend(settings(1, 0), false, time(service_test.now_ms));
    assert_eq!(
        (new_slots.len(), service_test.occupant(0).host),
        (0, host("h0"))
    );
}

#[test]
fn a_failover_refers_to_the_same_standby_after_slots_move() {
    let mut service_test = ServiceTest::running(settings(1, 1));
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(1), "nothing");
    service_test
        .processors
        .amend(settings(2, 1), false, time(service_test.now_ms));
    // The order of slots is 0, 1, 0-0, 1-0.
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(2).as_str()
        ),
        ("nothing", "nothing")
    );
    service_test.end_vacated(2);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(2).as_str()
        ),
        ("h1", "any")
    );
    // Without standbys there is no failover to wait for.
    service_test.restart_and_vacate();
    service_test
        .processors
        .amend(settings(2, 0), false, time(service_test.now_ms));
    assert_ne!(service_test.requested_host(0), "nothing");
}

impl ServiceTest {
    /// Runs slots 0 and 2, and vacates the active again, so that a failover starts.
    fn restart_and_vacate(&mut self) {
        self.run(0, "h1");
        self.run(2, "h2");
        self.vacate(0);
        assert_eq!(self.requested_host(0), "nothing");
    }
}

proptest! {
    /// At most the limit is missing and the rollout completes, in every order of ends and starts.
    #[test]
    fn a_rollout_respects_its_limit_and_completes(
        instances in 1..8_u32, standbys in 0..3_u32, limit in 1..5_u64,
        order in prop::collection::vec(0..24_usize, 0..200),
    ) {
        let settings = || ProcessorSettings { retries: None, ..settings(instances, standbys) };
        let mut service_test = ServiceTest::running(settings());
        service_test.deploy(settings());
        let count = service_test.processors.settings().count();
        let remaining_steps = (0..count * count * 4).map(|step| step % count);
        for slot in order.into_iter().map(|it| it % count).chain(remaining_steps) {
            service_test.roll_out(limit);
            let down = service_test.processors.by_slot.iter().filter(|it| !it.is_up(false)).count();
            prop_assert!(down as u64 <= limit, "{down} of {limit}");
            if service_test.processors.by_slot[slot].is_restarting {
                service_test.replace_process(slot, &format!("h{slot}"));
            }
        }
        prop_assert_eq!(service_test.processors.count_outdated(), 0);
        prop_assert!(service_test.processors.is_healthy());
    }
}
