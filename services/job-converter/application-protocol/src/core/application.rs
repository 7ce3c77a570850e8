//! State of an application in the core: asks, allocations, gang and timers. An *ask* is the request
//! of one task or placeholder for an allocation. A *placeholder* is space held for a task of a task
//! group before that task exists.
//!
//! Usage is always computed from the allocations. No sum is stored.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp};
use serde::{Deserialize, Serialize};

use crate::core::gang::GroupCounters;
use crate::core::{self, Event, State};
use crate::ids::{GroupName, TaskId};
use crate::messages::{Ask, Submission, Termination, ToCore, ToFront};
use crate::no_change_reason::{Reason, Refusal};
use crate::state_log::StateLog;
use crate::timers::{ArmedTimers, Timer};

/// The head of an application: its state without the asks and allocations, which have rows of their
/// own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub submission: Submission,
    pub state: State,
    /// Whether the queue has accepted the application.
    pub accepted: bool,
    /// Time of the earliest ask or allocation, not of the registration.
    pub submitted_at: Timestamp,
    #[serde(default)]
    pub groups: BTreeMap<GroupName, GroupCounters>,
    /// Whether the gang has ever been complete. Its minimum is enforced from then on.
    #[serde(default)]
    pub formed: bool,
    /// Whether unused placeholders are being released. The state Completed waits for them.
    #[serde(default)]
    pub ending: bool,
    /// Number of placeholders that repairs created. Their names are never reused.
    #[serde(default)]
    pub repairs: u32,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub timers: ArmedTimers,
    #[serde(default)]
    pub log: StateLog<State>,
}

/// An ask that has a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub ask: Ask,
    pub node: NodeName,
    pub since: Timestamp,
    /// Reason of a requested release. The allocation counts until the confirmation.
    #[serde(default)]
    pub released: Option<Termination>,
    /// The real ask that replaces this placeholder, and its node. `None` without a replacement.
    #[serde(default)]
    pub successor: Option<(Ask, NodeName)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The queue admitted or refused the application.
    Admitted(Result<(), String>),
    Front(ToCore),
    /// Placement or admission found a node for an ask.
    Placed {
        key: TaskId,
        node: NodeName,
    },
    /// An allocation is preempted, or must leave its node for another reason.
    Preempt {
        key: TaskId,
        termination: Termination,
    },
    /// The frontend accepts no more tasks, and nothing is left to run.
    Finish,
    NodeLost {
        node: NodeName,
    },
    /// An allocation was lost unexpectedly.
    Lost {
        key: TaskId,
        termination: Termination,
    },
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    ToFront(ToFront),
    /// A real task needs more of these types than its placeholders hold.
    PlaceholderMismatch {
        ask: TaskId,
        placeholder: TaskId,
        types: Vec<String>,
    },
    /// The real ask replaces the placeholder on this node.
    Replacing {
        ask: TaskId,
        placeholder: TaskId,
        node: NodeName,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub from: State,
    pub event: Event,
    pub to: State,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    pub refusal: Option<Refusal>,
    pub transitions: Vec<Transition>,
    pub effects: Vec<Effect>,
}

impl Step {
    pub fn is_applied(&self) -> bool {
        self.refusal.is_none()
    }

    pub(super) fn send(&mut self, message: ToFront) {
        self.effects.push(Effect::ToFront(message));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    pub head: Head,
    /// Asks without a node, by task.
    pub pending: BTreeMap<TaskId, Ask>,
    /// Asks with a node, by task.
    pub allocations: BTreeMap<TaskId, Allocation>,
}

impl Application {
    pub fn new(submission: Submission, now: Timestamp) -> Self {
        let groups = submission.task_groups.iter().map(|group| {
            let counters = GroupCounters {
                minimum: group.min_member,
                ..GroupCounters::default()
            };
            (group.name.clone(), counters)
        });
        let head = Head {
            state: State::New,
            accepted: false,
            submitted_at: submission.created_at.min(now),
            groups: groups.collect(),
            formed: false,
            ending: false,
            repairs: 0,
            message: None,
            timers: ArmedTimers::default(),
            log: StateLog::default(),
            submission,
        };
        Self {
            head,
            pending: BTreeMap::new(),
            allocations: BTreeMap::new(),
        }
    }

    /// Applies one input. The result has the transitions and effects, or the reason of a refusal.
    pub fn step(&mut self, input: Input, now: Timestamp) -> Step {
        let mut step = Step::default();
        let result = match input {
            Input::Admitted(result) => self.on_admitted(result, now, &mut step),
            Input::Front(message) => self.on_message(message, now, &mut step),
            Input::Placed { key, node } => self.on_placed(&key, node, now, &mut step),
            Input::Preempt { key, termination } => self.preempt(&key, termination, &mut step),
            Input::Finish => self.finish(now, &mut step),
            Input::NodeLost { node } => self.on_node_lost(&node, now, &mut step),
            Input::Lost { key, termination } => {
                self.on_allocation_lost(&key, termination, now, &mut step)
            }
            Input::Tick => self.tick(now, &mut step),
        };
        step.refusal = result.err();
        step
    }

    pub(super) fn refusal(&self, reason: Reason, event: &impl std::fmt::Debug) -> Refusal {
        Refusal::new(reason, event, &self.head.state)
    }

    /// Applies an event, then logs the transition and sends the new state to the frontend. The
    /// state Rejected has a message of its own.
    pub(super) fn fire(
        &mut self,
        event: Event,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let from = self.head.state;
        let Some(to) = core::next(from, event) else {
            return Err(self.refusal(Reason::NotLegalHere, &event));
        };
        step.transitions.push(Transition { from, event, to });
        if from == to {
            return Ok(());
        }
        self.head.state = to;
        self.head.timers.clear(Timer::Completing);
        match to {
            State::Completing => self.arm(Timer::Completing, now),
            State::Completed | State::Failed | State::Rejected => {
                self.head.timers = ArmedTimers::default();
                self.arm(Timer::Terminated, now);
            }
            _ => {}
        }
        if to != State::Completing {
            self.head.ending = false;
        }
        if to != State::Rejected {
            self.head.log.record(to, now);
            step.send(ToFront::Updated {
                state: to,
                message: self.head.message.clone(),
            });
        }
        Ok(())
    }

    fn arm(&mut self, timer: Timer, now: Timestamp) {
        self.head.timers.arm(timer, now.plus_ms(timer.default_ms()));
    }

    /// Returns the usage in the queue. A successor is not counted in addition to its placeholder.
    pub fn used(&self) -> Size {
        sum(self.allocations.values().map(|it| &it.ask.size))
    }

    pub fn used_by_placeholders(&self) -> Size {
        let placeholders = self.allocations.values().filter(|it| it.ask.placeholder);
        sum(placeholders.map(|it| &it.ask.size))
    }

    pub fn pending_size(&self) -> Size {
        sum(self.pending.values().map(|it| &it.size))
    }

    /// Returns the usage of one node. A successor that moves to another node than its placeholder
    /// already counts on that node.
    pub fn used_on(&self, node: &NodeName) -> Size {
        let mut used = Size::default();
        for allocation in self.allocations.values() {
            if allocation.node == *node {
                used.add(&allocation.ask.size);
            }
            if let Some((ask, on)) = &allocation.successor
                && on == node
                && allocation.node != *node
            {
                used.add(&ask.size);
            }
        }
        used
    }

    pub(super) fn placeholders(&self) -> impl Iterator<Item = (&TaskId, &Allocation)> {
        self.allocations.iter().filter(|(_, it)| it.ask.placeholder)
    }

    /// Returns true if a real task runs or is replacing a placeholder.
    pub(super) fn has_real_task(&self) -> bool {
        let is_real = |it: &Allocation| !it.ask.placeholder || it.successor.is_some();
        self.allocations.values().any(is_real)
    }

    pub(super) fn has_placeholders(&self) -> bool {
        let requested = self.pending.values().any(|it| it.placeholder);
        requested || self.placeholders().next().is_some()
    }

    /// Returns the asks for normal placement. An ask that can replace a placeholder is not among
    /// them.
    pub fn placeable(&self) -> impl Iterator<Item = &Ask> {
        let accepts_asks = matches!(
            self.head.state,
            State::Accepted | State::Running | State::Completing
        );
        let asks = self.pending.values();
        asks.filter(move |ask| accepts_asks && !self.can_replace_placeholder(ask))
    }

    /// Advances the state after an ask or allocation was removed.
    pub(super) fn advance_state(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let is_empty = self.allocations.is_empty() && self.pending.is_empty();
        if !self.has_placeholders() {
            self.head.timers.clear(Timer::Placeholder);
        }
        match self.head.state {
            State::Resuming if !self.has_placeholders() => self.fire(Event::Run, now, step),
            State::Failing if is_empty => self.fire(Event::Fail, now, step),
            State::Completing if self.head.ending && !self.has_placeholders() => {
                self.fire(Event::Complete, now, step)
            }
            _ => Ok(()),
        }
    }
}

fn sum<'a>(sizes: impl Iterator<Item = &'a Size>) -> Size {
    let mut total = Size::default();
    sizes.for_each(|size| total.add(size));
    total
}
