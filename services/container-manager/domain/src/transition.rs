//! Decides the next state of a container from one fact about it, such as a change of its allocation
//! or a report of its node.
//!
//! The hard case is a report that does not name the container, because an empty report is not an
//! empty node. A launched container is lost if a complete report does not name it, and the agent
//! had seen the revision at which the launch became known. Such a report was written after the
//! launch, even if it was delayed or repeated. A container that was never reported has not started
//! yet. It will never start if its node has seen the order to stop it.

use hayward_vocabulary::{Exit, ExitCause, Timestamp};

use crate::lifecycle::{Lifecycle, State};

/// Maximum length of a stored exit message, in characters.
const MAX_MESSAGE_CHARS: usize = 1024;

/// State of the allocation of the container in rm-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationStatus {
    /// The container may run.
    Granted,
    /// The container must end, and its end is awaited.
    Vacated,
    /// The node is lost; no report of it is awaited.
    Purged,
    /// rm-scheduler has removed the allocation.
    Removed,
}

/// One container in the report of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub incarnation: u64,
    pub state: State,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
    pub reason: Option<String>,
    /// Revision of the desired set that the agent had seen when it wrote the report. `None` if it
    /// had seen no revision.
    pub observed_revision: Option<u64>,
}

/// Input of [`decide`].
#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    Allocation(AllocationStatus),
    /// A move or a restart stops the container. The state of its allocation is unchanged.
    Stop,
    /// The container is no longer held: its node may start it.
    Launch,
    Observed(&'a Observation),
    /// The container is absent from a complete report.
    Missing {
        observed_revision: u64,
    },
    /// The node was declared lost or removed. This ends a container without an allocation. For any
    /// other container, the state of its allocation decides.
    NodeLost,
}

/// Result of [`decide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    Unchanged,
    Updated(Lifecycle),
    /// The container has ended and has no allocation: it is removed from all publications.
    Archived(Lifecycle),
}

/// Returns the transition that `fact` causes. `revision` is the revision at which the transition
/// will be committed.
pub fn decide(lifecycle: &Lifecycle, fact: Fact<'_>, revision: u64) -> Transition {
    let mut next = lifecycle.clone();
    match fact {
        Fact::Allocation(status) => next.apply_allocation(status, revision),
        Fact::Stop => next.order_stop(revision),
        Fact::Launch => next.held = false,
        Fact::Observed(observation) => next.apply_observation(observation, revision),
        Fact::Missing { observed_revision } => next.apply_absence(observed_revision),
        Fact::NodeLost if next.orphan => next.end(lost_node_exit()),
        Fact::NodeLost => {}
    }
    if next.has_ended() && next.orphan {
        Transition::Archived(next)
    } else if next == *lifecycle {
        Transition::Unchanged
    } else {
        Transition::Updated(next)
    }
}

impl Lifecycle {
    /// Creates a container whose allocation was withdrawn before any node was ordered to start it.
    /// Such a container has ended from the beginning, because rm-scheduler waits for its end.
    pub fn new_withdrawn(incarnation: u64, status: AllocationStatus) -> Self {
        let mut lifecycle = Self::new(incarnation);
        lifecycle.end(match status {
            AllocationStatus::Purged => Exit::of(
                ExitCause::Node,
                "the node was lost before the container started",
            ),
            _ => Exit::of(
                ExitCause::Intended,
                "the allocation was withdrawn before the container started",
            ),
        });
        lifecycle
    }

    fn apply_allocation(&mut self, status: AllocationStatus, revision: u64) {
        self.orphan = status == AllocationStatus::Removed;
        match status {
            AllocationStatus::Granted => {}
            AllocationStatus::Vacated | AllocationStatus::Removed => self.order_stop(revision),
            AllocationStatus::Purged => self.end(lost_node_exit()),
        }
    }

    fn order_stop(&mut self, revision: u64) {
        if self.held {
            // No node has the order, so no report is awaited.
            self.end(Exit::of(
                ExitCause::Intended,
                "the allocation was released before the container started",
            ));
        } else if !self.has_ended() && self.stop_revision.is_none() {
            self.stop_revision = Some(revision);
            self.state = State::Stopping;
        }
    }

    fn apply_observation(&mut self, observation: &Observation, revision: u64) {
        let is_launched = !matches!(observation.state, State::Ordered);
        if self.has_ended() || observation.incarnation != self.incarnation || !is_launched {
            return;
        }
        self.launch_revision.get_or_insert(revision);
        // `pid` and `started_at` are set only once, so that a late report cannot restore an older
        // value.
        self.pid = self.pid.or(observation.pid);
        self.started_at = self.started_at.or(observation.started_at);
        if observation.state == State::Ended {
            self.end(self.exit_with_cause(observation));
        } else {
            self.state = self.state.max(observation.state);
            self.reason = observation.reason.as_deref().map(sanitize);
        }
    }

    /// Attributes the end to its cause. The end is intended if the node had seen the order to stop,
    /// even if the program exited cleanly. Otherwise the program ended by itself (W15).
    fn exit_with_cause(&self, observation: &Observation) -> Exit {
        let had_seen_stop = self
            .stop_revision
            .zip(observation.observed_revision)
            .is_some_and(|(stop, observed_revision)| observed_revision >= stop);
        let mut exit = observation.exit.clone().unwrap_or_else(|| {
            Exit::of(
                ExitCause::Node,
                "the agent reported the end without details",
            )
        });
        if had_seen_stop && matches!(exit.cause, ExitCause::Success | ExitCause::UserError) {
            exit.cause = ExitCause::Intended;
        }
        exit.message = exit.message.map(|message| sanitize(&message));
        exit
    }

    fn apply_absence(&mut self, observed_revision: u64) {
        // The report may be older than the report that showed the container on its node.
        if self
            .launch_revision
            .is_some_and(|launched| observed_revision < launched)
        {
            return;
        }
        if self
            .stop_revision
            .is_some_and(|stop| observed_revision >= stop)
        {
            self.end(Exit::of(
                ExitCause::Intended,
                "the container was ordered to stop, and the node no longer has it",
            ));
        } else if self.launch_revision.is_some() {
            self.end(Exit::of(
                ExitCause::Node,
                "the node no longer has the container",
            ));
        }
    }

    fn end(&mut self, exit: Exit) {
        if !self.has_ended() {
            self.state = State::Ended;
            self.reason = None;
            self.exit = Some(exit);
        }
    }
}

fn lost_node_exit() -> Exit {
    Exit::of(ExitCause::Node, "the node was lost")
}

/// Truncates an untrusted message and replaces NUL, which Postgres text cannot store.
fn sanitize(message: &str) -> String {
    message
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .map(|c| if c == '\0' { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
