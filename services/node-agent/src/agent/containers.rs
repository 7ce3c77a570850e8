//! A container that the agent knows, and the status of all containers for reports and heartbeats.

use std::sync::Arc;

use hayward_container_manager_api::{ContainerReport, ContainerState};
use hayward_node_agent_domain::{ActualContainer, Phase};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Size, Timestamp};

/// Status of the agent for reports and heartbeats. It is replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct AgentStatus {
    /// Position in the desired set. `None` before the first set was received.
    pub cursor: Option<String>,
    /// Whether the node was inspected and the journal was read.
    pub complete: bool,
    pub containers: Arc<Vec<ContainerReport>>,
    /// Resources granted to live containers, as far as known.
    pub granted: Size,
    /// Why the node cannot start anything. `None` if it can.
    pub fault: Option<String>,
}

impl AgentStatus {
    pub fn live_count(&self) -> usize {
        let is_live = |report: &&ContainerReport| report.state != ContainerState::Ended;
        self.containers.iter().filter(is_live).count()
    }
}

/// A container and its state.
#[derive(Debug, Clone)]
pub struct KnownContainer {
    pub actual: ActualContainer,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
    /// Why the container is in its state, for display.
    pub reason: Option<String>,
}

impl KnownContainer {
    pub fn new(incarnation: u64, epoch: u64, phase: Phase) -> Self {
        let actual = ActualContainer {
            incarnation,
            epoch,
            phase,
        };
        Self {
            actual,
            pid: None,
            started_at: None,
            exit: None,
            reason: None,
        }
    }

    pub fn with_exit(incarnation: u64, epoch: u64, exit: Exit) -> Self {
        Self {
            exit: Some(exit),
            ..Self::new(incarnation, epoch, Phase::Ended)
        }
    }

    pub fn to_report(&self, id: &AllocationId) -> ContainerReport {
        ContainerReport {
            id: id.clone(),
            incarnation: self.actual.incarnation,
            state: match self.actual.phase {
                Phase::Launching => ContainerState::Launching,
                Phase::Running => ContainerState::Running,
                Phase::Stopping => ContainerState::Stopping,
                Phase::Ended => ContainerState::Ended,
            },
            pid: self.pid,
            started_at: self.started_at,
            exit: self.exit.clone(),
            reason: self.reason.clone().filter(|_| self.exit.is_none()),
        }
    }
}

/// Returns the exit of a container that was never started.
pub fn exit_without_start(cause: ExitCause) -> Exit {
    let message = match cause {
        ExitCause::Node => "the lease of its node ran out before it was started",
        _ => "it was not started",
    };
    Exit::of(cause, message)
}
