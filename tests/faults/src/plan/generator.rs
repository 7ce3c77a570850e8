//! Draws a phase.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{
    Actor, Agent, Caller, Chosen, Disk, Fault, Happening, Inside, Lines, Order, Phase, PhaseNumber,
    Replica, Seed, Service, Step, Work,
};

/// Milliseconds between two faults, 150 on average.
const GAP_MS: std::ops::Range<u64> = 50..250;

/// Draws the steps of a phase with a given number of faults.
pub fn phase(seed: Seed, number: PhaseNumber, faults: u32) -> Phase {
    let mixed = seed.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number.0);
    let mut draw = Draw(StdRng::seed_from_u64(mixed));
    let mut steps = Vec::new();
    let mut at_ms = 1_500;
    for _ in 0..faults {
        at_ms += draw.0.random_range(GAP_MS);
        steps.push(Step {
            at_ms,
            what: Happening::Fault(draw.fault()),
        });
    }
    let end_ms = at_ms;
    for work in draw.works(number) {
        // Most work is submitted early, and some in the middle of the phase.
        let at_ms = draw.0.random_range(0..end_ms * 4 / 10);
        steps.push(Step {
            at_ms,
            what: Happening::Submit(work),
        });
    }
    for order in draw.orders() {
        let at_ms = draw.0.random_range(end_ms / 5..end_ms);
        steps.push(Step {
            at_ms,
            what: Happening::Order(order),
        });
    }
    steps.sort_by_key(|step| step.at_ms);
    Phase { number, steps }
}

struct Draw(StdRng);

/// Frequency of each kind, relative to the sum.
const WEIGHTS: [(Kind, u32); 14] = [
    (Kind::Reset, 18),
    (Kind::Silence, 8),
    (Kind::Refuse, 8),
    (Kind::Delay, 8),
    (Kind::KillService, 8),
    (Kind::PauseService, 8),
    (Kind::KillAgent, 6),
    (Kind::PauseAgent, 6),
    (Kind::KillInside, 20),
    (Kind::PauseInside, 8),
    (Kind::RestartPostgres, 1),
    (Kind::KillPostgres, 1),
    (Kind::FillDisk, 4),
    (Kind::StepClock, 6),
];

#[derive(Clone, Copy)]
enum Kind {
    Reset,
    Silence,
    Refuse,
    Delay,
    KillService,
    PauseService,
    KillAgent,
    PauseAgent,
    KillInside,
    PauseInside,
    RestartPostgres,
    KillPostgres,
    FillDisk,
    StepClock,
}

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.random_range(0..all.len())]
    }

    fn chosen(&mut self) -> Chosen {
        Chosen(self.0.random_range(0..1_000_000))
    }

    fn replica(&mut self) -> Replica {
        Replica {
            service: self.one_of(&Service::ALL),
            number: self.one_of(&[1, 2]),
        }
    }

    fn agent(&mut self) -> Agent {
        Agent(self.0.random_range(1..=Agent::COUNT))
    }

    fn actor(&mut self) -> Actor {
        if self.0.random_bool(0.5) {
            Actor::Service(self.replica())
        } else {
            Actor::Agent(self.agent())
        }
    }

    fn caller(&mut self) -> Caller {
        if self.0.random_bool(0.15) {
            Caller::Users
        } else {
            Caller::Actor(self.actor())
        }
    }

    fn lines(&mut self) -> Lines {
        match self.0.random_range(0..10) {
            0..3 => Lines::From(self.caller()),
            3..5 => Lines::To(self.replica()),
            5..7 => Lines::Between(self.caller(), self.replica()),
            _ => Lines::Database(self.replica()),
        }
    }

    /// Draws the duration of a fault. It is often short, and sometimes longer than the lease of a
    /// writer and the silence of a lost node.
    fn lasting(&mut self) -> u64 {
        match self.0.random_range(0..10) {
            0..6 => self.0.random_range(100..800),
            6..9 => self.0.random_range(800..3_500),
            _ => self.0.random_range(3_500..12_000),
        }
    }

    fn inside(&mut self) -> Inside {
        self.one_of(&[
            Inside::Supervisor,
            Inside::Runner,
            Inside::Runner,
            Inside::Program,
            Inside::Program,
            Inside::Program,
        ])
    }

    fn kind(&mut self) -> Kind {
        let sum: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = self.0.random_range(0..sum);
        for (kind, weight) in WEIGHTS {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::Reset
    }

    fn fault(&mut self) -> Fault {
        match self.kind() {
            Kind::Reset => Fault::Reset {
                lines: self.lines(),
            },
            Kind::Silence => Fault::Silence {
                lines: self.lines(),
                for_ms: self.lasting(),
            },
            Kind::Refuse => Fault::Refuse {
                lines: self.lines(),
                for_ms: self.lasting(),
            },
            Kind::Delay => Fault::Delay {
                lines: self.lines(),
                by_ms: self.0.random_range(5..400),
                for_ms: self.lasting(),
            },
            Kind::KillService => Fault::Kill {
                actor: Actor::Service(self.replica()),
                down_ms: self.0.random_range(0..1_500),
            },
            Kind::PauseService => Fault::Pause {
                actor: Actor::Service(self.replica()),
                for_ms: self.lasting(),
            },
            Kind::KillAgent => Fault::Kill {
                actor: Actor::Agent(self.agent()),
                down_ms: self.0.random_range(0..3_000),
            },
            Kind::PauseAgent => Fault::Pause {
                actor: Actor::Agent(self.agent()),
                for_ms: self.lasting(),
            },
            Kind::KillInside => Fault::KillInside {
                what: self.inside(),
                chosen: self.chosen(),
            },
            Kind::PauseInside => Fault::PauseInside {
                what: self.inside(),
                chosen: self.chosen(),
                for_ms: self.lasting(),
            },
            Kind::RestartPostgres => Fault::RestartPostgres,
            Kind::KillPostgres => Fault::KillPostgres {
                down_ms: self.0.random_range(0..1_000),
            },
            Kind::FillDisk => Fault::FillDisk {
                disk: if self.0.random_bool(0.2) {
                    Disk::Postgres
                } else {
                    Disk::Agent(self.agent())
                },
                for_ms: self.0.random_range(200..3_000),
            },
            Kind::StepClock => self.clock_step(),
        }
    }

    fn clock_step(&mut self) -> Fault {
        let hour = 3_600_000;
        Fault::StepClock {
            actor: self.actor(),
            by_ms: self.one_of(&[-hour, -60_000, 1_500, 60_000, hour]),
            for_ms: self.lasting(),
        }
    }

    fn works(&mut self, number: PhaseNumber) -> Vec<Work> {
        let mut works = Vec::new();
        for queued in [false, false, true, true] {
            works.push(Work::Job {
                tasks: self.0.random_range(20..80),
                rest_ms: self.0.random_range(20..900),
                queued,
            });
        }
        works.push(Work::FailingJob {
            tasks: self.0.random_range(2..6),
        });
        // A reservation holds one of the two nodes, so a standby would have no other node.
        let reserved = number.0 % 2 == 1;
        works.push(Work::Service {
            instances: self.0.random_range(1..3),
            standbys: self.0.random_range(0..2) * u32::from(!reserved),
        });
        works.push(Work::ExclusiveService);
        works.push(Work::ExclusiveService);
        for _ in 0..2 {
            works.push(Work::Gang {
                members: self.0.random_range(2..5),
                rest_ms: self.0.random_range(100..2_000),
            });
        }
        if reserved {
            works.push(Work::Reservation);
        }
        works.push(Work::Pool {
            size: self.0.random_range(1..4),
        });
        works
    }

    fn orders(&mut self) -> Vec<Order> {
        let mut orders = vec![
            Order::Cancel {
                chosen: self.chosen(),
            },
            Order::Cancel {
                chosen: self.chosen(),
            },
            Order::Block {
                agent: self.agent(),
                evacuate: self.0.random_bool(0.7),
                graceful: self.0.random_bool(0.5),
            },
            Order::Move {
                chosen: self.chosen(),
            },
            Order::Move {
                chosen: self.chosen(),
            },
        ];
        orders.push(if self.0.random_bool(0.7) {
            Order::Drain {
                agent: self.agent(),
            }
        } else {
            Order::Vary {
                agent: self.agent(),
            }
        });
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_phase_and_another_gives_another() {
        let drawn = |seed, number| phase(Seed(seed), PhaseNumber(number), 50);
        assert_eq!(drawn(7, 1), drawn(7, 1));
        assert_ne!(drawn(7, 1).steps, drawn(7, 2).steps);
        assert_ne!(drawn(7, 1).steps, drawn(8, 1).steps);
    }

    #[test]
    fn a_phase_is_in_order_of_time_and_has_its_faults() {
        let phase = phase(Seed(3), PhaseNumber(0), 200);
        assert!(phase.steps.is_sorted_by_key(|step| step.at_ms));
        let faults = phase
            .steps
            .iter()
            .filter(|step| matches!(step.what, Happening::Fault(_)));
        assert_eq!(faults.count(), 200);
    }

    #[test]
    fn every_kind_of_fault_comes_up() {
        let phases = (0..20).map(|number| phase(Seed(1), PhaseNumber(number), 100));
        let kinds: std::collections::BTreeSet<&str> = phases
            .flat_map(|phase| phase.steps)
            .filter_map(|step| match step.what {
                Happening::Fault(fault) => Some(fault.kind()),
                _ => None,
            })
            .collect();
        assert_eq!(kinds.len(), 23, "{kinds:?}");
    }
}
