//! Changes of a running service.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

impl Trial {
    /// A new deployment: existing processes are outdated.
    fn deployed(&mut self, terms: Terms) {
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
        self.all.amend(terms, true, at(self.now));
    }

    fn rolls(&mut self, limit: u64) {
        self.all.roll(limit, &BTreeSet::new());
    }

    /// Slots that request nothing.
    fn held(&self) -> Vec<usize> {
        let all = 0..self.all.terms().count();
        all.filter(|slot| self.asks(*slot) == "nothing").collect()
    }

    /// The stopped process ends and its successor runs.
    fn is_renewed(&mut self, slot: usize, on: &str) {
        self.is_taken_off(slot);
        assert_eq!(self.asks(slot), "nothing", "it is not gone yet");
        self.is_gone(slot);
        assert_ne!(self.asks(slot), "nothing");
        self.runs(slot, on);
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
    let mut trial = Trial::running(plain(3));
    trial.rolls(1);
    assert_eq!(trial.held(), [] as [usize; 0], "nothing is outdated");
    trial.deployed(plain(3));
    for slot in [2, 1, 0] {
        trial.rolls(1);
        assert_eq!(trial.held(), [slot]);
        trial.rolls(1);
        assert_eq!(trial.held(), [slot], "the limit is reached");
        trial.is_renewed(slot, "h9");
    }
    trial.rolls(1);
    assert_eq!((trial.held(), trial.all.outdated()), (vec![], 0));
    assert!(trial.all.is_healthy());
}

#[test]
fn a_limit_of_two_takes_two_and_never_both_of_a_pair() {
    let mut trial = Trial::running(plain(3));
    trial.deployed(plain(3));
    trial.rolls(2);
    assert_eq!(trial.held(), [1, 2]);
    // Actives 0 and 1 with standbys 2 and 3.
    let mut trial = Trial::running(terms(2, 1));
    trial.deployed(terms(2, 1));
    trial.rolls(4);
    assert_eq!(trial.held(), [2, 3], "standbys first, then their actives");
    trial.is_renewed(3, "h8");
    trial.rolls(4);
    assert_eq!(trial.held(), [1, 2]);
}

#[test]
fn a_replaced_active_restarts_on_its_host_without_failover() {
    let mut trial = Trial::running(terms(1, 1));
    trial.deployed(terms(1, 1));
    trial.rolls(1);
    trial.is_renewed(1, "h1");
    trial.rolls(1);
    trial.is_taken_off(0);
    assert_eq!(trial.asks(1), "any", "what stands by is left alone");
    trial.is_gone(0);
    assert_eq!(trial.asks(0), "h0");
    assert!(trial.all.get(0).unwrap().failover().is_none());
}

#[test]
fn a_deployment_that_fails_stops_the_rest() {
    let mut trial = Trial::running(plain(4));
    trial.deployed(plain(4));
    trial.rolls(1);
    trial.is_renewed(3, "h3");
    // It crashed once since, and has run again only briefly.
    let shaky = BTreeSet::from([3]);
    trial.all.roll(1, &shaky);
    assert_eq!(trial.held(), [] as [usize; 0]);
    // A second deployment: the shaky process is replaced too, and first.
    trial.deployed(plain(4));
    trial.ends(3, Ending::Failure);
    trial.rolls(1);
    assert_eq!(trial.held(), [] as [usize; 0], "3 is missing");
    trial.runs(3, "h3");
    trial.rolls(1);
    assert_eq!(trial.held(), [2]);
}

#[test]
fn a_processor_that_did_not_run_is_replaced_at_once() {
    let mut trial = Trial::running(plain(3));
    let occupant = Occupant {
        running: false,
        ..trial.occupant(1)
    };
    trial.all.set_occupant(1, Some(occupant), 1);
    trial.deployed(plain(3));
    trial.rolls(1);
    assert_eq!(trial.held(), [1]);
}

#[test]
fn a_successor_that_is_there_already_ends_the_wait() {
    let mut trial = Trial::running(plain(1));
    trial.deployed(plain(1));
    trial.rolls(1);
    assert_eq!(trial.asks(0), "nothing");
    // A drain had placed it elsewhere before.
    trial.runs(0, "h7");
    assert_eq!(trial.asks(0), "any");
    assert_eq!(trial.all.outdated(), 0);
}

#[test]
fn a_rollout_skips_a_processor_that_is_being_moved() {
    let mut trial = Trial::running(plain(1));
    let occupant = trial.occupant(0);
    trial.all.set_occupant(0, Some(occupant), 2);
    trial.deployed(plain(1));
    trial.rolls(1);
    assert_eq!(trial.asks(0), "any");
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
    let mut trial = Trial::running(again.clone());
    trial.ends(0, Ending::Completed);
    trial.ends(1, Ending::Failure);
    trial.runs(1, "h1");
    trial.ends(1, Ending::Failure);
    assert_eq!(
        (trial.state(0), trial.state(1)),
        (State::Completed, State::Failed)
    );
    trial.deployed(again);
    assert_eq!(
        (trial.asks(0).as_str(), trial.asks(1).as_str()),
        ("h0", "h1")
    );
    assert_eq!(trial.all.get(1).unwrap().record(), None);
}

#[test]
fn scaling_touches_nothing_that_stays() {
    let mut trial = Trial::running(terms(2, 1));
    trial.ends(1, Ending::Failure);
    let record = trial.all.get(1).unwrap().record().copied();
    let fresh = trial.all.amend(terms(3, 2), false, at(trial.now));
    // Order of slots: 0, 1, 2, then 0-0, 0-1, 1-0, 1-1, 2-0, 2-1.
    assert_eq!(fresh, [2, 4, 6, 7, 8]);
    assert_eq!(
        (trial.occupant(0).host, trial.occupant(3).host),
        (host("h0"), host("h2"))
    );
    assert_eq!(trial.occupant(5).host, host("h3"));
    assert_eq!(trial.all.get(1).unwrap().record().copied(), record);
    assert_eq!(
        (trial.asks(2).as_str(), trial.asks(8).as_str()),
        ("any", "any")
    );
    let fresh = trial.all.amend(terms(1, 0), false, at(trial.now));
    assert_eq!((fresh.len(), trial.occupant(0).host), (0, host("h0")));
}

#[test]
fn a_failover_keeps_its_standby_though_slots_move() {
    let mut trial = Trial::running(terms(1, 1));
    trial.is_taken_off(0);
    assert_eq!(trial.asks(1), "nothing");
    trial.all.amend(terms(2, 1), false, at(trial.now));
    // Order of slots: 0, 1, 0-0, 1-0.
    assert_eq!(
        (trial.asks(0).as_str(), trial.asks(2).as_str()),
        ("nothing", "nothing")
    );
    trial.is_gone(2);
    assert_eq!(
        (trial.asks(0).as_str(), trial.asks(2).as_str()),
        ("h1", "any")
    );
    // Without standbys there is no failover to wait for.
    trial.is_taken_off_again();
    trial.all.amend(terms(2, 0), false, at(trial.now));
    assert_ne!(trial.asks(0), "nothing");
}

impl Trial {
    fn is_taken_off_again(&mut self) {
        self.runs(0, "h1");
        self.runs(2, "h2");
        self.is_taken_off(0);
        assert_eq!(self.asks(0), "nothing");
    }
}

proptest! {
    /// In every order of ends and starts, at most the limit is missing and the rollout completes.
    #[test]
    fn a_rollout_respects_its_limit_and_completes(
        instances in 1..8_u32, standbys in 0..3_u32, limit in 1..5_u64,
        order in prop::collection::vec(0..24_usize, 0..200),
    ) {
        let terms = || Terms { retries: None, ..terms(instances, standbys) };
        let mut trial = Trial::running(terms());
        trial.deployed(terms());
        let count = trial.all.terms().count();
        let rest = (0..count * count * 4).map(|step| step % count);
        for slot in order.into_iter().map(|it| it % count).chain(rest) {
            trial.rolls(limit);
            let down = trial.all.all.iter().filter(|it| !it.is_up(false)).count();
            prop_assert!(down as u64 <= limit, "{down} of {limit}");
            if trial.all.all[slot].renews {
                trial.is_renewed(slot, &format!("h{slot}"));
            }
        }
        prop_assert_eq!(trial.all.outdated(), 0);
        prop_assert!(trial.all.is_healthy());
    }
}
