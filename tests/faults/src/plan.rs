//! The plan of a run, which depends on its seed alone: the submissions, operations and faults of
//! each phase. The same seed and phase number give the same phase on every computer.
//!
//! A plan names targets that always exist (a replica, an agent, a connection). Other targets, such
//! as processes in containers, exist only while work runs. For these the plan has a random number
//! ([`Choice`]), which selects one of the targets that exist at the time of the step.

mod generator;

use std::fmt;

pub use generator::generate_phase;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhaseNumber(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    JobConverter,
    RmScheduler,
    ContainerManager,
    NodeStatus,
    Blocklist,
}

impl Service {
    pub const ALL: [Self; 5] = [
        Self::JobConverter,
        Self::RmScheduler,
        Self::ContainerManager,
        Self::NodeStatus,
        Self::Blocklist,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::JobConverter => "job-converter",
            Self::RmScheduler => "rm-scheduler",
            Self::ContainerManager => "container-manager",
            Self::NodeStatus => "node-status",
            Self::Blocklist => "blocklist",
        }
    }
}

/// One of the two processes of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    pub service: Service,
    /// Number of the replica, 1 or 2.
    pub number: u8,
}

impl Replica {
    pub fn all() -> impl Iterator<Item = Self> {
        let replicas_of = |service| [1, 2].map(|number| Self { service, number });
        Service::ALL.into_iter().flat_map(replicas_of)
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.service.name(), self.number)
    }
}

/// An agent, by its number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agent(pub u8);

impl Agent {
    pub const COUNT: u8 = 4;
    /// Agents up to this number are in the node pool that is divided by classes. The others are in
    /// the node pool that is divided by queues.
    pub const LAST_IN_CLASS_POOL: u8 = 2;

    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::COUNT).map(Self)
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// A process that this program starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Service(Replica),
    Agent(Agent),
}

impl Actor {
    pub fn all() -> impl Iterator<Item = Self> {
        let services = Replica::all().map(Self::Service);
        services.chain(Agent::all().map(Self::Agent))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(replica) => replica.fmt(f),
            Self::Agent(agent) => agent.fmt(f),
        }
    }
}

/// The side that opens a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    Users,
    Actor(Actor),
}

impl Caller {
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Users).chain(Actor::all().map(Self::Actor))
    }
}

/// The connections that a network fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// All connections of this caller to services.
    From(Caller),
    /// All connections to this replica.
    To(Replica),
    /// The connections of one caller to one replica.
    Between(Caller, Replica),
    /// Connections of a replica to the database.
    Database(Replica),
}

/// A disk that can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disk {
    Agent(Agent),
    Postgres,
}

/// A process inside a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// The parent of all processes of the container.
    Supervisor,
    /// The process that executes the tasks of a job.
    Runner,
    /// A program of a user.
    Program,
}

/// Random number that selects one of the targets that exist at the time of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed, and started again later.
    Kill {
        actor: Actor,
        down_ms: u64,
    },
    /// A process is stopped by SIGSTOP, and continued later.
    Pause {
        actor: Actor,
        duration_ms: u64,
    },
    KillContainerProcess {
        kind: ProcessKind,
        choice: Choice,
    },
    PauseContainerProcess {
        kind: ProcessKind,
        choice: Choice,
        duration_ms: u64,
    },
    /// Connections are closed at once, and may be opened again.
    Reset {
        connections: Connections,
    },
    /// No data passes, and no side is notified.
    Silence {
        connections: Connections,
        duration_ms: u64,
    },
    /// Connections are closed, and new ones are refused.
    Refuse {
        connections: Connections,
        duration_ms: u64,
    },
    Delay {
        connections: Connections,
        delay_ms: u64,
        duration_ms: u64,
    },
    RestartPostgres,
    KillPostgres {
        down_ms: u64,
    },
    FillDisk {
        disk: Disk,
        duration_ms: u64,
    },
    /// The wall clock of one process is wrong by `offset_ms` for a time.
    StepClock {
        actor: Actor,
        offset_ms: i64,
        duration_ms: u64,
    },
}

impl Fault {
    /// Returns the label under which the fault is counted in the summary of a run.
    pub fn label(self) -> &'static str {
        match self {
            Self::Kill {
                actor: Actor::Service(_),
                ..
            } => "kill -9 of a service",
            Self::Kill {
                actor: Actor::Agent(_),
                ..
            } => "kill -9 of an agent",
            Self::Pause {
                actor: Actor::Service(_),
                ..
            } => "stop and continue of a service",
            Self::Pause {
                actor: Actor::Agent(_),
                ..
            } => "stop and continue of an agent",
            Self::KillContainerProcess { kind, .. } => match kind {
                ProcessKind::Supervisor => "kill -9 of a supervisor",
                ProcessKind::Runner => "kill -9 of a runner",
                ProcessKind::Program => "kill -9 of a user's process",
            },
            Self::PauseContainerProcess { kind, .. } => match kind {
                ProcessKind::Supervisor => "stop and continue of a supervisor",
                ProcessKind::Runner => "stop and continue of a runner",
                ProcessKind::Program => "stop and continue of a user's process",
            },
            Self::Reset {
                connections: Connections::Database(_),
            } => "database connections reset",
            Self::Reset { .. } => "connections reset",
            Self::Silence {
                connections: Connections::Database(_),
                ..
            } => "database connections silent",
            Self::Silence { .. } => "connections silent",
            Self::Refuse {
                connections: Connections::Database(_),
                ..
            } => "database connections refused",
            Self::Refuse { .. } => "connections refused",
            Self::Delay {
                connections: Connections::Database(_),
                ..
            } => "database connections delayed",
            Self::Delay { .. } => "connections delayed",
            Self::RestartPostgres => "restart of Postgres",
            Self::KillPostgres { .. } => "crash of Postgres",
            Self::FillDisk {
                disk: Disk::Agent(_),
                ..
            } => "full disk of an agent",
            Self::FillDisk {
                disk: Disk::Postgres,
                ..
            } => "full disk of Postgres",
            Self::StepClock { .. } => "clock step",
        }
    }
}

/// Work that users submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A job whose tasks all succeed. A `queued` job runs in the node pool that is divided by
    /// queues.
    Job {
        tasks: u64,
        sleep_ms: u64,
        queued: bool,
    },
    /// A job whose tasks with an odd number fail each time.
    FailingJob {
        tasks: u64,
    },
    Service {
        instances: u32,
        standbys: u32,
    },
    /// A service of which two processes never run at once.
    ExclusiveService,
    Reservation,
    Gang {
        members: u32,
        sleep_ms: u64,
    },
    /// A worker pool.
    Pool {
        size: u32,
    },
}

/// An operation of an operator or user on existing work or an existing node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Cancel {
        choice: Choice,
    },
    Block {
        agent: Agent,
        /// Whether the processes on the node must leave.
        evacuate: bool,
        /// Whether the processes have time to end. Only used with `evacuate`.
        graceful: bool,
    },
    Drain {
        agent: Agent,
    },
    /// The node takes no new work.
    MakeUnschedulable {
        agent: Agent,
    },
    /// A process of a service moves to another node.
    Move {
        choice: Choice,
    },
}

/// Action of one step of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Submit(Work),
    Operation(Operation),
    Fault(Fault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Milliseconds from the beginning of the phase.
    pub at_ms: u64,
    pub action: Action,
}

/// A period of faults. The repairs and all checks follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    pub number: PhaseNumber,
    /// Steps in order of time.
    pub steps: Vec<Step>,
}
