//! Applies one fact to one container.
//!
//! Absence is the hard case, because an empty report is not an empty node. Proof of a loss is a
//! complete report without the container that answers the revision of its first sighting or a later
//! one. Such a report was written later, even if it was delayed or repeated. A container that was
//! never reported has not started yet. If its node answers an order to stop it, the container will
//! never start.

use hayward_vocabulary::{Exit, ExitCause, Timestamp};

use crate::life::{Life, State};

/// Maximum length of a stored exit message, in characters.
const MESSAGE_LIMIT: usize = 1024;

/// State of the container's allocation in rm-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationStatus {
    Wanted,
    /// It must end, and its end is awaited.
    Leaving,
    /// Its node is lost; no answer is awaited.
    Purged,
    /// rm-scheduler has removed the allocation.
    Gone,
}

/// One container in an agent's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub incarnation: u64,
    pub state: State,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
    pub reason: Option<String>,
    /// Revision of the desired set that the report answers, if any.
    pub answers: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    Allocation(AllocationStatus),
    /// A move or restart ends it; its allocation is unchanged.
    Stop,
    /// It is no longer held: its node may start it.
    Launch,
    Observed(&'a Observation),
    /// Absent from a complete report that answers this revision.
    Missing {
        answers: u64,
    },
    /// Its node was declared lost or removed. Effective only without an allocation; otherwise the
    /// allocation decides.
    NodeLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Stay,
    Become(Life),
    /// Ended without an allocation: it is removed from every set.
    Bury(Life),
}

/// Decides the next state. `revision` is the one at which the result will be committed.
pub fn decide(life: &Life, fact: Fact<'_>, revision: u64) -> Step {
    let mut next = life.clone();
    match fact {
        Fact::Allocation(status) => next.apply_allocation(status, revision),
        Fact::Stop => next.order_stop(revision),
        Fact::Launch => next.held = false,
        Fact::Observed(observation) => next.apply_observation(observation, revision),
        Fact::Missing { answers } => next.apply_absence(answers),
        Fact::NodeLost if next.orphan => next.end(lost_node_exit()),
        Fact::NodeLost => {}
    }
    if next.has_ended() && next.orphan {
        Step::Bury(next)
    } else if next == *life {
        Step::Stay
    } else {
        Step::Become(next)
    }
}

impl Life {
    /// A container whose allocation was withdrawn before any node was ordered to start it.
    /// rm-scheduler still waits for its end.
    pub fn never_started(incarnation: u64, status: AllocationStatus) -> Self {
        let mut life = Self::ordered(incarnation);
        life.end(match status {
            AllocationStatus::Purged => Exit::of(
                ExitCause::Node,
                "the node was lost before the container started",
            ),
            _ => Exit::of(
                ExitCause::Intended,
                "the allocation was withdrawn before the container started",
            ),
        });
        life
    }

    fn apply_allocation(&mut self, status: AllocationStatus, revision: u64) {
        self.orphan = status == AllocationStatus::Gone;
        match status {
            AllocationStatus::Wanted => {}
            AllocationStatus::Leaving | AllocationStatus::Gone => self.order_stop(revision),
            AllocationStatus::Purged => self.end(lost_node_exit()),
        }
    }

    fn order_stop(&mut self, revision: u64) {
        if self.held {
            // No node has the order, so no answer is awaited.
            self.end(Exit::of(
                ExitCause::Intended,
                "the allocation was released before the container started",
            ));
        } else if !self.has_ended() && self.stop.is_none() {
            self.stop = Some(revision);
            self.state = State::Stopping;
        }
    }

    fn apply_observation(&mut self, observation: &Observation, revision: u64) {
        let launched = !matches!(observation.state, State::Ordered);
        if self.has_ended() || observation.incarnation != self.incarnation || !launched {
            return;
        }
        self.launched.get_or_insert(revision);
        // Set once: a late report cannot restore an older value.
        self.pid = self.pid.or(observation.pid);
        self.started_at = self.started_at.or(observation.started_at);
        if observation.state == State::Ended {
            self.end(self.exit_of(observation));
        } else {
            self.state = self.state.max(observation.state);
            self.reason = observation.reason.as_deref().map(clean);
        }
    }

    /// Attributes the end to its cause. If the node had seen the order to stop, the end is
    /// intended, even if the program exited cleanly. If it had not, the program ended by itself
    /// (W15).
    fn exit_of(&self, observation: &Observation) -> Exit {
        let knew_stop = self
            .stop
            .zip(observation.answers)
            .is_some_and(|(stop, answers)| answers >= stop);
        let mut exit = observation.exit.clone().unwrap_or_else(|| {
            Exit::of(
                ExitCause::Node,
                "the agent reported the end without details",
            )
        });
        if knew_stop && matches!(exit.cause, ExitCause::Success | ExitCause::UserError) {
            exit.cause = ExitCause::Intended;
        }
        exit.message = exit.message.map(|message| clean(&message));
        exit
    }

    fn apply_absence(&mut self, answers: u64) {
        // The report may predate the one that showed the container on its node.
        if self.launched.is_some_and(|known| answers < known) {
            return;
        }
        if self.stop.is_some_and(|stop| answers >= stop) {
            self.end(Exit::of(
                ExitCause::Intended,
                "it was ordered to stop, and the node no longer has it",
            ));
        } else if self.launched.is_some() {
            self.end(Exit::of(
                ExitCause::Node,
                "the node no longer knows the container",
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
    Exit::of(ExitCause::Node, "the node was lost; no answer is awaited")
}

/// Truncates an untrusted message and replaces NUL, which Postgres text cannot store.
fn clean(message: &str) -> String {
    message
        .chars()
        .take(MESSAGE_LIMIT)
        .map(|c| if c == '\0' { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
