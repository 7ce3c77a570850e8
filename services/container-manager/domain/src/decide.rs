//! One fact about one container, and what it makes of it.
//!
//! The hard part is absence: *an empty report is not an empty node*. That a node no longer has a
//! container is proven only by a complete report that answers a revision at or after the one at
//! which the container was known to be there: such a report was composed later, whatever way and
//! however often it travelled. A container never heard of is simply not started yet, unless the
//! node answers an order to stop it: then it will never start.

use hayward_vocabulary::{Exit, ExitCause, Timestamp};

use crate::life::{Life, State};

/// Longest message of an exit that is kept, in characters.
const MESSAGE_LIMIT: usize = 1024;

/// How the allocation of a container stands above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationStatus {
    Wanted,
    /// It has to go; its end is awaited.
    Leaving,
    /// Its node cannot answer: nothing more is awaited from it.
    Purged,
    /// Its entry is no longer there.
    Gone,
}

/// What an agent reported of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub incarnation: u64,
    pub state: State,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
    pub reason: Option<String>,
    /// Revision of the desired set the report answers, where there is one.
    pub answers: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    Allocation(AllocationStatus),
    /// It is to end for the sake of a move or a restart; its allocation says nothing of it.
    Stop,
    /// What it waited for has come: its node may start it.
    Launch,
    Observed(&'a Observation),
    /// Not in a complete report that answers this revision.
    Missing {
        answers: u64,
    },
    /// Its node was given up or forgotten. While it has an allocation, that one says what follows.
    NodeLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing new.
    Stay,
    Become(Life),
    /// Ended, and wanted by nobody: it leaves every set.
    Bury(Life),
}

/// Decides about one fact learned at `revision` (the one its consequence will be committed as).
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
    /// A container whose allocation had to go before anybody was told to start it: the rung above
    /// still waits to hear that it is over.
    pub fn never_started(incarnation: u64, status: AllocationStatus) -> Self {
        let mut life = Self::ordered(incarnation);
        life.end(match status {
            AllocationStatus::Purged => {
                Exit::of(ExitCause::Node, "its node was lost before it was started")
            }
            _ => Exit::of(
                ExitCause::Intended,
                "it was taken back before it was started",
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
            // No node knows of it, so there is nobody to wait for.
            self.end(Exit::of(
                ExitCause::Intended,
                "its place was given back before anything was started in it",
            ));
        } else if !self.has_ended() && self.stop.is_none() {
            self.stop = Some(revision);
            self.state = State::Stopping;
        }
    }

    fn apply_observation(&mut self, observation: &Observation, revision: u64) {
        let heard = !matches!(observation.state, State::Ordered);
        if self.has_ended() || observation.incarnation != self.incarnation || !heard {
            return;
        }
        self.launched.get_or_insert(revision);
        // Set once, so that a report which arrives late cannot bring an older value back.
        self.pid = self.pid.or(observation.pid);
        self.started_at = self.started_at.or(observation.started_at);
        if observation.state == State::Ended {
            self.end(self.exit_of(observation));
        } else {
            self.state = self.state.max(observation.state);
            self.reason = observation.reason.as_deref().map(clean);
        }
    }

    /// Whose doing the end was (W15). A node that answers the order to stop has carried it out,
    /// even where the program took the signal well; one that does not know of the order yet tells
    /// of an end the program came to by itself.
    fn exit_of(&self, observation: &Observation) -> Exit {
        let told = self
            .stop
            .zip(observation.answers)
            .is_some_and(|(stop, answers)| answers >= stop);
        let mut exit = observation.exit.clone().unwrap_or_else(|| {
            Exit::of(
                ExitCause::Node,
                "its agent reported the end and nothing about it",
            )
        });
        if told && matches!(exit.cause, ExitCause::Success | ExitCause::UserError) {
            exit.cause = ExitCause::Intended;
        }
        exit.message = exit.message.map(|message| clean(&message));
        exit
    }

    fn apply_absence(&mut self, answers: u64) {
        // The report may be older than the news that the node has it.
        if self.launched.is_some_and(|known| answers < known) {
            return;
        }
        if self.stop.is_some_and(|stop| answers >= stop) {
            self.end(Exit::of(
                ExitCause::Intended,
                "it was told to end and its node does not have it",
            ));
        } else if self.launched.is_some() {
            self.end(Exit::of(
                ExitCause::Node,
                "its node had it and no longer knows it",
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
    Exit::of(
        ExitCause::Node,
        "its node was lost and nothing is awaited from it",
    )
}

/// A message comes from a machine that runs other people's programs: short, and nothing in it that
/// a row cannot hold.
fn clean(message: &str) -> String {
    message
        .chars()
        .take(MESSAGE_LIMIT)
        .map(|c| if c == '\0' { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
