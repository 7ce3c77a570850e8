//! Delivers messages between the two machines of an application until none are left.
//!
//! Replacements are delayed: the core chooses a placeholder, and the frontend is informed once the
//! scheduler has made the exchange ([`super::bindings`]).

use std::collections::VecDeque;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend::{self, Effect};
use hayward_job_converter_application_protocol::ids::{AppId, GroupName, TaskId};
use hayward_job_converter_application_protocol::messages::{Termination, ToCore, ToFront};
use hayward_job_converter_application_protocol::task;
use hayward_vocabulary::Timestamp;

use super::{Applications, demand};

/// A message between the machines.
enum Said {
    ToCore(ToCore),
    ToFront(ToFront),
    /// A task that was asked to end has no process.
    Stopped(TaskId),
}

impl Applications {
    /// Carries out the effects of a frontend step.
    pub(super) fn obey(&mut self, id: &AppId, effects: Vec<Effect>, now: Timestamp) {
        let mut queue = VecDeque::new();
        self.read_front(id, effects, now, &mut queue);
        self.carry(id, queue, now);
    }

    /// Applies an input to the core and delivers what follows; true when it was accepted.
    pub(super) fn core(&mut self, id: &AppId, input: core::Input, now: Timestamp) -> bool {
        let mut queue = VecDeque::new();
        let applied = self.step_core(id, input, now, &mut queue);
        self.carry(id, queue, now);
        applied
    }

    /// Applies an event to a task and delivers what follows.
    pub(super) fn task(&mut self, id: &AppId, task: &TaskId, event: task::Event, now: Timestamp) {
        if let Some(told) = self.book.tell_task(id, task, event, now) {
            self.touch(id).keys.insert(task.clone());
            self.obey(id, told.step.effects, now);
        }
    }

    /// The scheduler made the exchange: the task holds the placeholder's allocation.
    pub(super) fn replaced(&mut self, id: &AppId, placeholder: TaskId, now: Timestamp) {
        let news = ToFront::Release {
            keys: vec![placeholder],
            termination: Termination::PlaceholderReplaced,
        };
        self.carry(id, VecDeque::from([Said::ToFront(news)]), now);
    }

    fn carry(&mut self, id: &AppId, mut queue: VecDeque<Said>, now: Timestamp) {
        while let Some(said) = queue.pop_front() {
            match said {
                Said::ToCore(ToCore::Submit(submission)) => {
                    let Some(half) = self.halves.get_mut(id).filter(|it| it.core.is_none()) else {
                        continue;
                    };
                    let asks = self.book.get(id).is_some_and(demand::asks_for_admission);
                    half.core = Some(core::Application::new(submission, now));
                    self.touch(id).all = true;
                    // A queue admits its applications first; without a queue each task is judged
                    // alone.
                    if !asks {
                        self.step_core(id, core::Input::Admitted(Ok(())), now, &mut queue);
                    }
                }
                Said::ToCore(message) => {
                    self.note_to_core(id, &message);
                    self.step_core(id, core::Input::Front(message), now, &mut queue);
                }
                Said::ToFront(news) => self.tell_front(id, news, now, &mut queue),
                Said::Stopped(task) => {
                    let event = task::Event::Killed;
                    if let Some(told) = self.book.tell_task(id, &task, event, now) {
                        self.touch(id).keys.insert(task);
                        self.read_front(id, told.step.effects, now, &mut queue);
                    }
                }
            }
        }
    }

    fn step_core(
        &mut self,
        id: &AppId,
        input: core::Input,
        now: Timestamp,
        queue: &mut VecDeque<Said>,
    ) -> bool {
        let Some(core) = self.halves.get_mut(id).and_then(|it| it.core.as_mut()) else {
            return false;
        };
        let groups = core.head.groups.clone();
        let step = core.step(input, now);
        let after = core.head.groups.iter();
        let counted = after.filter(|(name, group)| groups.get(*name) != Some(*group));
        let counted: Vec<GroupName> = counted.map(|(name, _)| name.clone()).collect();
        let touched = self.touch(id);
        touched.groups.extend(counted);
        touched.all |= !step.moved.is_empty();
        let applied = step.applied();
        self.read_core(id, step, now, queue);
        applied
    }

    pub(super) fn say(&mut self, id: &AppId, step: core::Step, now: Timestamp) {
        let mut queue = VecDeque::new();
        self.touch(id).all = true;
        self.read_core(id, step, now, &mut queue);
        self.carry(id, queue, now);
    }

    fn read_core(
        &mut self,
        id: &AppId,
        step: core::Step,
        now: Timestamp,
        queue: &mut VecDeque<Said>,
    ) {
        for effect in step.effects {
            match effect {
                core::Effect::ToFront(ToFront::Release {
                    keys,
                    termination: Termination::PlaceholderReplaced,
                }) => self.touch(id).keys.extend(keys),
                core::Effect::ToFront(news) => queue.push_back(Said::ToFront(news)),
                core::Effect::Replacing { ask, .. } => {
                    self.touch(id).keys.insert(ask);
                }
                core::Effect::PlaceholderMismatch { ask, types, .. } => {
                    let text = format!(
                        "placeholder_mismatch: it needs more {} than the placeholders of its \
                         group hold; they are released and it is placed on its own",
                        types.join(", ")
                    );
                    if let Some(half) = self.halves.get_mut(id)
                        && half.warnings.last().is_none_or(|it| it.message != text)
                    {
                        half.warn(now, Some(ask), text);
                    }
                }
            }
        }
    }

    fn tell_front(
        &mut self,
        id: &AppId,
        news: ToFront,
        now: Timestamp,
        queue: &mut VecDeque<Said>,
    ) {
        let touched = self.touch(id);
        match &news {
            ToFront::Release { keys, .. } | ToFront::ReleaseAsks { keys, .. } => {
                touched.keys.extend(keys.iter().cloned());
            }
            ToFront::Allocated { key, .. } | ToFront::AskRejected { key, .. } => {
                touched.keys.insert(key.clone());
            }
            ToFront::Repaired { ask, .. } => drop(touched.keys.insert(ask.key.clone())),
            _ => touched.all = true,
        }
        let effects = match news {
            // A completed application stays readable until it expires or is removed.
            ToFront::Updated {
                state: core::State::Completed,
                ..
            } => self.completed(id, now),
            ToFront::Updated {
                state: core::State::Expired,
                ..
            } => {
                self.forget(id);
                return;
            }
            news => self.book.core(id, news, now).effects,
        };
        self.read_front(id, effects, now, queue);
    }

    /// The core has completed. The application failed when no task succeeded.
    fn completed(&mut self, id: &AppId, now: Timestamp) -> Vec<Effect> {
        let Some(front) = self.book.get(id) else {
            return Vec::new();
        };
        let input = match (front.head.state, front.came_to_nothing()) {
            (frontend::State::Running, Some(message)) => {
                return self.came_to_nothing(id, &message, now);
            }
            (frontend::State::Running, None) => frontend::Input::Complete,
            (frontend::State::Failing, _) => frontend::Input::Fail { reason: None },
            _ => return Vec::new(),
        };
        let told = self.book.tell(id, input, now);
        told.map(|it| it.step.effects).unwrap_or_default()
    }

    fn came_to_nothing(&mut self, id: &AppId, message: &str, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        for state in [core::State::Failing, core::State::Failed] {
            let message = Some(message.to_owned());
            let step = self.book.core(id, ToFront::Updated { state, message }, now);
            effects.extend(step.effects);
        }
        effects
    }

    fn read_front(
        &mut self,
        id: &AppId,
        effects: Vec<Effect>,
        now: Timestamp,
        queue: &mut VecDeque<Said>,
    ) {
        let Some(half) = self.halves.get_mut(id) else {
            return;
        };
        for effect in effects {
            match effect {
                Effect::ToCore(message) => queue.push_back(Said::ToCore(message)),
                // A running process ends when its demand is withdrawn; its end arrives as an
                // update.
                Effect::Stop { task } if half.place(&task).is_none() => {
                    queue.push_back(Said::Stopped(task));
                }
                Effect::Warn { task, message } => half.warn(now, Some(task), message),
                // The scheduler starts what it granted.
                Effect::Stop { .. } | Effect::Start { .. } | Effect::Drop => {}
            }
        }
    }

    fn note_to_core(&mut self, id: &AppId, message: &ToCore) {
        let touched = self.touch(id);
        match message {
            ToCore::Ask(ask) => drop(touched.keys.insert(ask.key.clone())),
            ToCore::ReleaseAllocation { key, .. } | ToCore::Confirm { key, .. } => {
                touched.keys.insert(key.clone());
            }
            // The ask may have been linked with a placeholder.
            ToCore::ReleaseAsk { .. } | ToCore::Submit(_) | ToCore::Remove => touched.all = true,
        }
    }
}
