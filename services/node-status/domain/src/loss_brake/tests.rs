//! Tests of the brake, alone and together with the judgement of the nodes of a pool.

use proptest::prelude::*;

use super::*;
use crate::{Health, Limits, NodeFacts, judge};

fn update_brake(brake: Brake, size: usize, silent: &[u64], now: u64) -> Brake {
    brake.update(
        Pool {
            size,
            silent_since_ms: silent,
        },
        now,
    )
}

#[test]
fn the_brake_comes_on_for_many_simultaneous_losses_only() {
    let off = Brake::default();
    // (pool size, silent nodes) -> brake on
    let table = [
        (3, 1, false),
        (3, 2, false),
        (3, 3, true),
        (11, 3, true),
        (12, 3, false),
        (12, 4, true),
        (39, 9, false),
        (1000, 9, false),
        (1000, 10, true),
        (1000, 251, true),
    ];
    for (size, silent, on) in table {
        let brake = update_brake(off, size, &vec![1_000_000; silent], 1_000_001);
        assert_eq!(brake.is_on(), on, "{silent} of {size}");
    }
}

#[test]
fn old_losses_are_no_incident() {
    let silent = [0, 0, 0, 1_000_000];
    assert!(!update_brake(Brake::default(), 10, &silent, 1_000_000).is_on());
}

#[test]
fn the_brake_holds_until_nodes_return_and_then_grants_a_grace_period() {
    let silent = [1_000_000, 1_000_000, 1_000_000];
    let on = update_brake(Brake::default(), 4, &silent, 1_000_000);
    let later = update_brake(on, 4, &silent, 1_000_000 + 10 * WINDOW_MS);
    assert_eq!(later, on);
    assert_eq!(later.not_lost_before_ms(60), 0);
    let off = update_brake(later, 4, &silent[..2], 1_000_000 + 10 * WINDOW_MS);
    assert!(!off.is_on());
    assert_eq!(off.not_lost_before_ms(60), 1_000_060 + 10 * WINDOW_MS);
    let after_release = update_brake(off, 4, &silent[..1], 1_000_500 + 10 * WINDOW_MS);
    assert_eq!(
        after_release.not_lost_before_ms(60),
        off.not_lost_before_ms(60)
    );
}

const LIMITS: Limits = Limits {
    suspect_ms: 15_000,
    lost_ms: 60_000,
};
/// Milliseconds between two steps of the simulation, and their number.
const STEP_MS: u64 = 5_000;
const STEPS: u64 = 200;

/// A simulated pool. Each step records losses, then updates the brake, then judges the nodes, like
/// the service.
struct SimulatedPool {
    brake: Brake,
    health: Vec<Health>,
    last_heartbeat: Vec<u64>,
    silent_since: Vec<Option<u64>>,
}

impl SimulatedPool {
    fn step(&mut self, now: u64, up: &[bool]) {
        for (node, is_up) in up.iter().enumerate() {
            if *is_up {
                self.last_heartbeat[node] = now;
                self.silent_since[node] = None;
            } else if now - self.last_heartbeat[node] >= LIMITS.suspect_ms {
                self.silent_since[node].get_or_insert(now);
            }
        }
        let silent: Vec<u64> = self.silent_since.iter().flatten().copied().collect();
        self.brake = update_brake(self.brake, up.len(), &silent, now);
        for node in 0..up.len() {
            let facts = NodeFacts {
                before: self.health[node],
                watch_began_ms: 0,
                last_heartbeat_ms: Some(self.last_heartbeat[node]),
                quiesced: None,
                duplicate_agents: false,
                brake_on: self.brake.is_on(),
                not_lost_before_ms: self.brake.not_lost_before_ms(LIMITS.lost_ms),
                flaps: 0,
                limits: LIMITS,
            };
            self.health[node] = judge(&facts, now).health;
        }
    }

    /// Returns the number of lost nodes that lost contact within one window of `now`.
    fn recently_lost(&self, now: u64) -> usize {
        let is_recent = |at: &Option<u64>| at.is_some_and(|at| at + WINDOW_MS > now);
        let lost = self.health.iter().map(|health| *health == Health::Lost);
        lost.zip(&self.silent_since)
            .filter(|(lost, at)| *lost && is_recent(at))
            .count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The brake is off again after all nodes are back.
    #[test]
    fn one_incident_never_loses_more_than_the_allowed_part(
        size in 1..60_usize,
        // Each event: step, first node, number of nodes, and whether the nodes are up.
        events in prop::collection::vec(
            (0..STEPS, 0..60_usize, 0..60_usize, any::<bool>()), 0..40,
        ),
    ) {
        let mut up = vec![true; size];
        let mut pool = SimulatedPool {
            brake: Brake::default(),
            health: vec![Health::Healthy; size],
            last_heartbeat: vec![0; size],
            silent_since: vec![None; size],
        };
        for step in 0..STEPS {
            for (event_step, first, count, is_up) in &events {
                if *event_step != step {
                    continue;
                }
                for node in 0..*count {
                    up[(first + node) % size] = *is_up;
                }
            }
            let now = step * STEP_MS;
            pool.step(now, &up);
            let lost = pool.recently_lost(now);
            prop_assert!(!is_incident(lost, size), "{lost} of {size} at {now}");
        }
        pool.step(STEPS * STEP_MS, &vec![true; size]);
        prop_assert!(!pool.brake.is_on());
        prop_assert!(pool.health.iter().all(|health| *health == Health::Healthy));
    }
}
