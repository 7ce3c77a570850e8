//! Generates the steps of a phase from the seed.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{
    Action, Actor, Agent, Caller, Choice, Connections, Disk, Fault, Operation, Phase, PhaseNumber,
    ProcessKind, Replica, Seed, Service, Step, Work,
};

/// Milliseconds between two faults, 150 on average.
const GAP_MS: std::ops::Range<u64> = 50..250;
/// Milliseconds from the beginning of a phase to its first fault, so that some work already runs.
const FIRST_FAULT_MS: u64 = 1_500;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// Generates the steps of a phase with a given number of faults.
pub fn generate_phase(seed: Seed, number: PhaseNumber, faults: u32) -> Phase {
    // The odd constant (2^64 divided by the golden ratio) spreads the bits of the seed, so that
    // neighbouring seeds with neighbouring phase numbers give different generators.
    let mixed_seed = seed.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number.0);
    let mut generator = PhaseGenerator {
        random: StdRng::seed_from_u64(mixed_seed),
    };
    let mut steps = Vec::new();
    let mut at_ms = FIRST_FAULT_MS;
    for _ in 0..faults {
        at_ms += generator.random.random_range(GAP_MS);
        steps.push(Step {
            at_ms,
            action: Action::Fault(generator.random_fault()),
        });
    }
    let end_ms = at_ms;
    for work in generator.random_work(number) {
        // Work is submitted early, so that most faults happen while it runs.
        let at_ms = generator.random.random_range(0..end_ms * 4 / 10);
        steps.push(Step {
            at_ms,
            action: Action::Submit(work),
        });
    }
    for operation in generator.random_operations() {
        // Operations need work that was acknowledged, so none is sent at the beginning.
        let at_ms = generator.random.random_range(end_ms / 5..end_ms);
        steps.push(Step {
            at_ms,
            action: Action::Operation(operation),
        });
    }
    steps.sort_by_key(|step| step.at_ms);
    Phase { number, steps }
}

struct PhaseGenerator {
    random: StdRng,
}

/// Weight of each kind of fault. Its frequency is its weight divided by the sum of all weights.
const WEIGHTS: [(FaultKind, u32); 14] = [
    (FaultKind::Reset, 18),
    (FaultKind::Silence, 8),
    (FaultKind::Refuse, 8),
    (FaultKind::Delay, 8),
    (FaultKind::KillService, 8),
    (FaultKind::PauseService, 8),
    (FaultKind::KillAgent, 6),
    (FaultKind::PauseAgent, 6),
    (FaultKind::KillContainerProcess, 20),
    (FaultKind::PauseContainerProcess, 8),
    (FaultKind::RestartPostgres, 1),
    (FaultKind::KillPostgres, 1),
    (FaultKind::FillDisk, 4),
    (FaultKind::StepClock, 6),
];

#[derive(Clone, Copy)]
enum FaultKind {
    Reset,
    Silence,
    Refuse,
    Delay,
    KillService,
    PauseService,
    KillAgent,
    PauseAgent,
    KillContainerProcess,
    PauseContainerProcess,
    RestartPostgres,
    KillPostgres,
    FillDisk,
    StepClock,
}

impl PhaseGenerator {
    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())]
    }

    fn random_choice(&mut self) -> Choice {
        Choice(self.random.random_range(0..1_000_000))
    }

    fn random_replica(&mut self) -> Replica {
        Replica {
            service: self.choose(&Service::ALL),
            number: self.choose(&[1, 2]),
        }
    }

    fn random_agent(&mut self) -> Agent {
        Agent(self.random.random_range(1..=Agent::COUNT))
    }

    fn random_actor(&mut self) -> Actor {
        if self.random.random_bool(0.5) {
            Actor::Service(self.random_replica())
        } else {
            Actor::Agent(self.random_agent())
        }
    }

    fn random_caller(&mut self) -> Caller {
        if self.random.random_bool(0.15) {
            Caller::Users
        } else {
            Caller::Actor(self.random_actor())
        }
    }

    fn random_connections(&mut self) -> Connections {
        match self.random.random_range(0..10) {
            0..3 => Connections::From(self.random_caller()),
            3..5 => Connections::To(self.random_replica()),
            5..7 => Connections::Between(self.random_caller(), self.random_replica()),
            _ => Connections::Database(self.random_replica()),
        }
    }

    /// Returns a duration of a fault. It is often short, and sometimes longer than the lease of a
    /// leader and the time after which a node is lost.
    fn random_duration_ms(&mut self) -> u64 {
        match self.random.random_range(0..10) {
            0..6 => self.random.random_range(100..800),
            6..9 => self.random.random_range(800..3_500),
            _ => self.random.random_range(3_500..12_000),
        }
    }

    /// Returns a kind of process. Programs of users are chosen most often and supervisors least.
    fn random_process_kind(&mut self) -> ProcessKind {
        self.choose(&[
            ProcessKind::Supervisor,
            ProcessKind::Runner,
            ProcessKind::Runner,
            ProcessKind::Program,
            ProcessKind::Program,
            ProcessKind::Program,
        ])
    }

    /// Returns a kind of fault. Its probability is proportional to its weight.
    fn random_fault_kind(&mut self) -> FaultKind {
        let sum: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut remaining = self.random.random_range(0..sum);
        for (kind, weight) in WEIGHTS {
            match remaining.checked_sub(weight) {
                Some(next_remaining) => remaining = next_remaining,
                None => return kind,
            }
        }
        FaultKind::Reset
    }

    fn random_fault(&mut self) -> Fault {
        match self.random_fault_kind() {
            FaultKind::Reset => Fault::Reset {
                connections: self.random_connections(),
            },
            FaultKind::Silence => Fault::Silence {
                connections: self.random_connections(),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::Refuse => Fault::Refuse {
                connections: self.random_connections(),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::Delay => Fault::Delay {
                connections: self.random_connections(),
                delay_ms: self.random.random_range(5..400),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::KillService => Fault::Kill {
                actor: Actor::Service(self.random_replica()),
                down_ms: self.random.random_range(0..1_500),
            },
            FaultKind::PauseService => Fault::Pause {
                actor: Actor::Service(self.random_replica()),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::KillAgent => Fault::Kill {
                actor: Actor::Agent(self.random_agent()),
                down_ms: self.random.random_range(0..3_000),
            },
            FaultKind::PauseAgent => Fault::Pause {
                actor: Actor::Agent(self.random_agent()),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::KillContainerProcess => Fault::KillContainerProcess {
                kind: self.random_process_kind(),
                choice: self.random_choice(),
            },
            FaultKind::PauseContainerProcess => Fault::PauseContainerProcess {
                kind: self.random_process_kind(),
                choice: self.random_choice(),
                duration_ms: self.random_duration_ms(),
            },
            FaultKind::RestartPostgres => Fault::RestartPostgres,
            FaultKind::KillPostgres => Fault::KillPostgres {
                down_ms: self.random.random_range(0..1_000),
            },
            FaultKind::FillDisk => Fault::FillDisk {
                disk: if self.random.random_bool(0.2) {
                    Disk::Postgres
                } else {
                    Disk::Agent(self.random_agent())
                },
                duration_ms: self.random.random_range(200..3_000),
            },
            FaultKind::StepClock => self.random_clock_step(),
        }
    }

    fn random_clock_step(&mut self) -> Fault {
        Fault::StepClock {
            actor: self.random_actor(),
            offset_ms: self.choose(&[-HOUR_MS, -MINUTE_MS, 1_500, MINUTE_MS, HOUR_MS]),
            duration_ms: self.random_duration_ms(),
        }
    }

    fn random_work(&mut self, number: PhaseNumber) -> Vec<Work> {
        let mut work = Vec::new();
        for queued in [false, false, true, true] {
            work.push(Work::Job {
                tasks: self.random.random_range(20..80),
                sleep_ms: self.random.random_range(20..900),
                queued,
            });
        }
        work.push(Work::FailingJob {
            tasks: self.random.random_range(2..6),
        });
        // A reservation takes one of the two nodes of the pool, so a standby would have no node.
        let has_reservation = number.0 % 2 == 1;
        work.push(Work::Service {
            instances: self.random.random_range(1..3),
            standbys: self.random.random_range(0..2) * u32::from(!has_reservation),
        });
        work.push(Work::ExclusiveService);
        work.push(Work::ExclusiveService);
        for _ in 0..2 {
            work.push(Work::Gang {
                members: self.random.random_range(2..5),
                sleep_ms: self.random.random_range(100..2_000),
            });
        }
        if has_reservation {
            work.push(Work::Reservation);
        }
        work.push(Work::Pool {
            size: self.random.random_range(1..4),
        });
        work
    }

    fn random_operations(&mut self) -> Vec<Operation> {
        let mut operations = vec![
            Operation::Cancel {
                choice: self.random_choice(),
            },
            Operation::Cancel {
                choice: self.random_choice(),
            },
            Operation::Block {
                agent: self.random_agent(),
                evacuate: self.random.random_bool(0.7),
                graceful: self.random.random_bool(0.5),
            },
            Operation::Move {
                choice: self.random_choice(),
            },
            Operation::Move {
                choice: self.random_choice(),
            },
        ];
        operations.push(if self.random.random_bool(0.7) {
            Operation::Drain {
                agent: self.random_agent(),
            }
        } else {
            Operation::MakeUnschedulable {
                agent: self.random_agent(),
            }
        });
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_phase_and_another_seed_another_phase() {
        let generate = |seed, number| generate_phase(Seed(seed), PhaseNumber(number), 50);
        assert_eq!(generate(7, 1), generate(7, 1));
        assert_ne!(generate(7, 1).steps, generate(7, 2).steps);
        assert_ne!(generate(7, 1).steps, generate(8, 1).steps);
    }

    #[test]
    fn a_phase_is_in_order_of_time_and_has_its_faults() {
        let phase = generate_phase(Seed(3), PhaseNumber(0), 200);
        assert!(phase.steps.is_sorted_by_key(|step| step.at_ms));
        let faults = phase
            .steps
            .iter()
            .filter(|step| matches!(step.action, Action::Fault(_)));
        assert_eq!(faults.count(), 200);
    }

    #[test]
    fn every_kind_of_fault_occurs() {
        // The number of different labels that `Fault::label` can return.
        const LABEL_COUNT: usize = 23;
        let phases = (0..20).map(|number| generate_phase(Seed(1), PhaseNumber(number), 100));
        let labels: std::collections::BTreeSet<&str> = phases
            .flat_map(|phase| phase.steps)
            .filter_map(|step| match step.action {
                Action::Fault(fault) => Some(fault.label()),
                _ => None,
            })
            .collect();
        assert_eq!(labels.len(), LABEL_COUNT, "{labels:?}");
    }
}
