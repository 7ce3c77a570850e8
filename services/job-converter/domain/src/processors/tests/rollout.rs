//! Changes of a running service.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

impl ServiceTest {
    /// Applies a new deployment. Existing processes are outdated.
    fn deploy(&mut self, terms: Terms) {
        for slot in 0..self.all.terms().count() {
            let (occupant, alive) = (
                self.all.all[slot].occupant.clone(),
                self.all.all[slot].alive,
            );
            let stale = occupant.map(|occupant| Occupant {
                stale: true,
                ..occupant
            });
            self.all.set_occupant(slot, stale, alive);
        }
        self.all.amend(terms, true, time(self.now));
    }

    fn roll_out(&mut self, limit: u64) {
        self.all.roll_out(limit, &BTreeSet::new());
    }

    /// Returns the slots that request nothing.
    fn stopped_slots(&self) -> Vec<usize> {
        let all = 0..self.all.terms().count();
        all.filter(|slot| self.requested_host(*slot) == "nothing")
            .collect()
    }

    /// Ends the stopped process and runs its successor.
    fn renew(&mut self, slot: usize, on: &str) {
        self.vacate(slot);
        assert_eq!(self.requested_host(slot), "nothing", "it is not gone yet");
        self.end_vacated(slot);
        assert_ne!(self.requested_host(slot), "nothing");
        self.run(slot, on);
    }
}

fn plain(instances: u32) -> Terms {
    Terms {
        retries: None,
        host_affinity: false,
        ..terms(instances, 0)
    }
}

#[test]
fn a_deployment_is_replaced_one_at_a_time() {
    let mut service_test = ServiceTest::running(plain(3));
    service_test.roll_out(1);
    assert_eq!(
        service_test.stopped_slots(),
        [] as [usize; 0],
        "nothing is outdated"
    );
    service_test.deploy(plain(3));
    for slot in [2, 1, 0] {
        service_test.roll_out(1);
        assert_eq!(service_test.stopped_slots(), [slot]);
        service_test.roll_out(1);
        assert_eq!(service_test.stopped_slots(), [slot], "the limit is reached");
        service_test.renew(slot, "h9");
    }
    service_test.roll_out(1);
    assert_eq!(
        (
            service_test.stopped_slots(),
            service_test.all.count_outdated()
        ),
        (vec![], 0)
    );
    assert!(service_test.all.is_healthy());
}

#[test]
fn a_limit_of_two_takes_two_and_never_both_of_a_pair() {
    let mut service_test = ServiceTest::running(plain(3));
    service_test.deploy(plain(3));
    service_test.roll_out(2);
    assert_eq!(service_test.stopped_slots(), [1, 2]);
    // Actives 0 and 1 with standbys 2 and 3.
    let mut service_test = ServiceTest::running(terms(2, 1));
    service_test.deploy(terms(2, 1));
    service_test.roll_out(4);
    assert_eq!(
        service_test.stopped_slots(),
        [2, 3],
        "standbys first, then their actives"
    );
    service_test.renew(3, "h8");
    service_test.roll_out(4);
    assert_eq!(service_test.stopped_slots(), [1, 2]);
}

#[test]
fn a_replaced_active_restarts_on_its_host_without_failover() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.deploy(terms(1, 1));
    service_test.roll_out(1);
    service_test.renew(1, "h1");
    service_test.roll_out(1);
    service_test.vacate(0);
    assert_eq!(
        service_test.requested_host(1),
        "any",
        "what stands by is left alone"
    );
    service_test.end_vacated(0);
    assert_eq!(service_test.requested_host(0), "h0");
    assert!(service_test.all.get(0).unwrap().failover().is_none());
}

#[test]
fn a_deployment_that_fails_stops_the_rest() {
    let mut service_test = ServiceTest::running(plain(4));
    service_test.deploy(plain(4));
    service_test.roll_out(1);
    service_test.renew(3, "h3");
    // The process crashed once since then, and has run again only briefly.
    let unstable = BTreeSet::from([3]);
    service_test.all.roll_out(1, &unstable);
    assert_eq!(service_test.stopped_slots(), [] as [usize; 0]);
    // With a second deployment, the shaky process is replaced too, and first.
    service_test.deploy(plain(4));
    service_test.end_process(3, Ending::Failure);
    service_test.roll_out(1);
    assert_eq!(
        service_test.stopped_slots(),
        [] as [usize; 0],
        "3 is missing"
    );
    service_test.run(3, "h3");
    service_test.roll_out(1);
    assert_eq!(service_test.stopped_slots(), [2]);
}

#[test]
fn a_processor_that_did_not_run_is_replaced_at_once() {
    let mut service_test = ServiceTest::running(plain(3));
    let occupant = Occupant {
        running: false,
        ..service_test.occupant(1)
    };
    service_test.all.set_occupant(1, Some(occupant), 1);
    service_test.deploy(plain(3));
    service_test.roll_out(1);
    assert_eq!(service_test.stopped_slots(), [1]);
}

#[test]
fn a_successor_that_is_there_already_ends_the_wait() {
    let mut service_test = ServiceTest::running(plain(1));
    service_test.deploy(plain(1));
    service_test.roll_out(1);
    assert_eq!(service_test.requested_host(0), "nothing");
    // A drain had moved it to this node before.
    service_test.run(0, "h7");
    assert_eq!(service_test.requested_host(0), "any");
    assert_eq!(service_test.all.count_outdated(), 0);
}

#[test]
fn a_rollout_skips_a_processor_that_is_being_moved() {
    let mut service_test = ServiceTest::running(plain(1));
    let occupant = service_test.occupant(0);
    service_test.all.set_occupant(0, Some(occupant), 2);
    service_test.deploy(plain(1));
    service_test.roll_out(1);
    assert_eq!(service_test.requested_host(0), "any");
}

#[test]
fn a_new_deployment_clears_failures() {
    let again = Terms {
        retries: Some(Retries {
            fail_service: false,
            ..retries(1)
        }),
        ..terms(2, 0)
    };
    let mut service_test = ServiceTest::running(again.clone());
    service_test.end_process(0, Ending::Completed);
    service_test.end_process(1, Ending::Failure);
    service_test.run(1, "h1");
    service_test.end_process(1, Ending::Failure);
    assert_eq!(
        (service_test.state(0), service_test.state(1)),
        (State::Completed, State::Failed)
    );
    service_test.deploy(again);
    assert_eq!(
        (
            service_test.requested_host(0).as_str(),
            service_test.requested_host(1).as_str()
        ),
        ("h0", "h1")
    );
    assert_eq!(service_test.all.get(1).unwrap().record(), None);
}

#[test]
fn scaling_touches_nothing_that_stays() {
    let mut service_test = ServiceTest::running(terms(2, 1));
    service_test.end_process(1, Ending::Failure);
    let record = service_test.all.get(1).unwrap().record().copied();
    let fresh = service_test
        .all
        .amend(terms(3, 2), false, time(service_test.now));
    // The order of slots is 0, 1, 2, then 0-0, 0-1, 1-0, 1-1, 2-0, 2-1.
    assert_eq!(fresh, [2, 4, 6, 7, 8]);
    assert_eq!(
        (service_test.occupant(0).host, service_test.occupant(3).host),
        (host("h0"), host("h2"))
    );
    assert_eq!(service_test.occupant(5).host, host("h3"));
    assert_eq!(service_test.all.get(1).unwrap().record().copied(), record);
    assert_eq!(
        (
            service_test.requested_host(2).as_str(),
            service_test.requested_host(8).as_str()
        ),
        ("any", "any")
    );
    let fresh = service_test
        .all
        .amend(terms(1, 0), false, time(service_test.now));
    assert_eq!(
        (fresh.len(), service_test.occupant(0).host),
        (0, host("h0"))
    );
}

#[test]
fn a_failover_keeps_its_standby_though_slots_move() {
    let mut service_test = ServiceTest::running(terms(1, 1));
    service_test.vacate(0);
    assert_eq!(service_test.requested_host(1), "nothing");
    service_test
        .all
        .amend(terms(2, 1), false, time(service_test.now));
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
        .all
        .amend(terms(2, 0), false, time(service_test.now));
    assert_ne!(service_test.requested_host(0), "nothing");
}

impl ServiceTest {
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
        let terms = || Terms { retries: None, ..terms(instances, standbys) };
        let mut service_test = ServiceTest::running(terms());
        service_test.deploy(terms());
        let count = service_test.all.terms().count();
        let rest = (0..count * count * 4).map(|step| step % count);
        for slot in order.into_iter().map(|it| it % count).chain(rest) {
            service_test.roll_out(limit);
            let down = service_test.all.all.iter().filter(|it| !it.is_up(false)).count();
            prop_assert!(down as u64 <= limit, "{down} of {limit}");
            if service_test.all.all[slot].is_restarting {
                service_test.renew(slot, &format!("h{slot}"));
            }
        }
        prop_assert_eq!(service_test.all.count_outdated(), 0);
        prop_assert!(service_test.all.is_healthy());
    }
}
