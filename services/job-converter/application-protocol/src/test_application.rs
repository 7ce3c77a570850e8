//! Fixture of the tests: one application with both machines, and the messages between them. The
//! test acts as the queue, the scheduler and the clock.

use std::collections::{BTreeMap, VecDeque};

use hayward_vocabulary::{NodeName, Size, Timestamp, UserName};

use crate::core;
use crate::free_capacity::NodeSpace;
use crate::frontend::{self, Effect, Input};
use crate::gang_policy::Policy;
use crate::ids::{AppId, GroupName, TaskId};
use crate::messages::{Ask, Submission, ToCore, ToFront};
use crate::metadata::Metadata;
use crate::no_change_reason::Reason;
use crate::task::{self, TaskSpec};
use crate::task_groups::TaskGroup;
use crate::waiting_gangs::{AdmissionPass, Decision, decide_all};

pub fn app(name: &str) -> AppId {
    AppId::new(name).unwrap()
}
pub fn task_id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}
pub fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}
pub fn ann() -> UserName {
    UserName::new("ann").unwrap()
}
pub fn time(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

/// Creates a size with amounts of two resource types, `first` and `second`.
pub fn size(first: u64, second: u64) -> Size {
    let extras = [("first".to_owned(), first), ("second".to_owned(), second)];
    Size {
        extras: extras
            .into_iter()
            .filter(|(_, amount)| *amount > 0)
            .collect(),
        ..Size::default()
    }
}

pub fn group(name: &str, min_member: u32, min_resource: Size) -> TaskGroup {
    TaskGroup {
        name: GroupName::new(name).unwrap(),
        min_member,
        min_resource,
        node_selector: BTreeMap::new(),
        copied: BTreeMap::new(),
    }
}

pub fn metadata(task_groups: Vec<TaskGroup>, policy: Policy) -> Metadata {
    Metadata {
        queue_name: "root.a".to_owned(),
        task_groups,
        scheduling_policy_parameters: policy,
        creation_time: Some(time(0)),
        ..Metadata::new(ann())
    }
}

pub fn submission(task_groups: Vec<TaskGroup>, policy: Policy) -> Submission {
    Submission {
        id: app("app-1"),
        queue: "root.a".to_owned(),
        user: ann(),
        tags: BTreeMap::new(),
        task_groups,
        policy,
        created_at: time(0),
    }
}

pub fn ask(key: &str, size: Size, group: Option<&str>) -> Ask {
    Ask {
        key: task_id(key),
        size,
        priority: 0,
        group: group.map(|name| GroupName::new(name).unwrap()),
        placeholder: false,
        node_selector: BTreeMap::new(),
        created_at: time(0),
    }
}

pub struct TestApplication {
    pub front: frontend::Application,
    pub core: Option<core::Application>,
    pub now: Timestamp,
    /// Response of the queue to the application.
    pub queue_response: Result<(), String>,
    /// Whether messages of the frontend are withheld.
    pub messages_paused: bool,
    /// Messages to the core that are not delivered yet.
    pub outbox: VecDeque<ToCore>,
    /// All messages sent to the core.
    pub to_core: Vec<ToCore>,
    /// All messages sent to the frontend.
    pub to_front: Vec<ToFront>,
    pub effects: Vec<Effect>,
    pub core_effects: Vec<core::Effect>,
    /// Whether the frontend has dropped the application.
    pub dropped: bool,
}

impl TestApplication {
    pub fn new(task_groups: Vec<TaskGroup>, policy: Policy) -> Self {
        let metadata = metadata(task_groups, policy);
        let front = frontend::Application::new(app("app-1"), "jobs".to_owned(), metadata, time(0));
        Self {
            front,
            core: None,
            now: time(0),
            queue_response: Ok(()),
            messages_paused: false,
            outbox: VecDeque::new(),
            to_core: Vec::new(),
            to_front: Vec::new(),
            effects: Vec::new(),
            core_effects: Vec::new(),
            dropped: false,
        }
    }

    pub fn without_groups() -> Self {
        Self::new(Vec::new(), Policy::default())
    }

    pub fn add_task(&mut self, name: &str, size: Size, group: Option<&str>) {
        let spec = TaskSpec {
            size,
            task_group_name: group.map(|name| GroupName::new(name).unwrap()),
            ..TaskSpec::default()
        };
        self.front
            .put(task::Task::new(task_id(name), spec, self.now));
    }

    pub fn apply(&mut self, input: Input) -> Option<Reason> {
        let step = self.front.step(input, self.now);
        self.collect_effects(step.effects);
        self.deliver_messages();
        step.refusal.map(|it| it.reason)
    }

    pub fn apply_to_task(&mut self, name: &str, event: task::Event) -> Option<Reason> {
        self.apply(Input::Task {
            id: task_id(name),
            event,
        })
    }

    pub fn apply_to_core(&mut self, input: core::Input) -> Option<Reason> {
        let step = self
            .core
            .as_mut()
            .expect("the application was submitted")
            .step(input, self.now);
        let reason = step.refusal.as_ref().map(|it| it.reason);
        self.deliver_core_effects(step);
        self.deliver_messages();
        reason
    }

    pub fn place_task(&mut self, name: &str, on: &str) -> Option<Reason> {
        self.apply_to_core(core::Input::Placed {
            key: task_id(name),
            node: node(on),
        })
    }

    fn collect_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToCore(message) => {
                    self.to_core.push(message.clone());
                    self.outbox.push_back(message);
                }
                Effect::Drop => self.dropped = true,
                other => self.effects.push(other),
            }
        }
    }

    fn deliver_core_effects(&mut self, step: core::Step) {
        for effect in step.effects {
            if let core::Effect::ToFront(message) = effect {
                self.to_front.push(message.clone());
                let result = self.front.step(Input::Core(message), self.now);
                self.collect_effects(result.effects);
            } else {
                self.core_effects.push(effect);
            }
        }
    }

    /// Delivers messages until none are left.
    pub fn deliver_messages(&mut self) {
        while !self.messages_paused
            && let Some(message) = self.outbox.pop_front()
        {
            let step = match (message, &mut self.core) {
                (ToCore::Submit(submission), core) => {
                    let mut application = core::Application::new(submission, self.now);
                    let step = application
                        .step(core::Input::Admitted(self.queue_response.clone()), self.now);
                    *core = Some(application);
                    step
                }
                (message, Some(core)) => core.step(core::Input::Front(message), self.now),
                (_, None) => core::Step::default(),
            };
            self.deliver_core_effects(step);
        }
    }

    pub fn resume_messages(&mut self) {
        self.messages_paused = false;
        self.deliver_messages();
    }

    /// Advances time for both machines.
    pub fn advance(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.apply(Input::Tick);
        if self.core.is_some() {
            self.apply_to_core(core::Input::Tick);
        }
    }

    pub fn tick(&mut self) {
        self.advance(1_000);
    }

    /// Submits the application and ticks until the state no longer changes.
    pub fn after_submission(mut self) -> Self {
        for _ in 0..3 {
            self.tick();
        }
        self
    }

    /// Runs one admission pass over these nodes, then one replacement pass.
    pub fn run_pass(&mut self, spaces: Vec<NodeSpace>) {
        let mut pass = AdmissionPass {
            spaces,
            empty: vec![space("large", size(100, 100))],
            levels: BTreeMap::new(),
            now: self.now,
            overtaking_limit_ms: 60_000,
        };
        let core = self.core.as_mut().expect("the application was submitted");
        let waiting: Vec<_> = core.waiting_entry(Vec::new()).into_iter().collect();
        for (_, decision) in decide_all(&waiting, &mut pass) {
            use crate::gang_admission::Outcome::{Complete, Partial};
            if let Decision::Admission(Complete(placed) | Partial { placed, .. }) = decision {
                let step = self
                    .core
                    .as_mut()
                    .expect("the application was submitted")
                    .bind(&placed, self.now);
                assert!(step.is_applied(), "{:?}", step.refusal);
                self.deliver_core_effects(step);
                self.deliver_messages();
            }
        }
        let core = self.core.as_mut().expect("the application was submitted");
        let step = core.replace(&mut pass.spaces, self.now);
        self.deliver_core_effects(step);
        self.deliver_messages();
    }

    pub fn states(&self) -> (frontend::State, core::State) {
        (self.front.head.state, self.core_head().state)
    }

    pub fn core_head(&self) -> &core::Head {
        &self
            .core
            .as_ref()
            .expect("the application was submitted")
            .head
    }

    pub fn core(&self) -> &core::Application {
        self.core.as_ref().expect("the application was submitted")
    }

    /// Returns how many placeholders of a group were created, replaced, and ended otherwise.
    pub fn counters(&self, name: &str) -> (u32, u32, u32) {
        let group = &self.core_head().groups[name];
        (group.count, group.replaced, group.timedout)
    }

    pub fn task_state(&self, name: &str) -> task::State {
        self.front.tasks[&task_id(name)].state
    }

    pub fn placeholders(&self) -> Vec<TaskId> {
        let allocations = self.core().allocations.iter();
        allocations
            .filter(|(_, it)| it.ask.placeholder)
            .map(|(key, _)| key.clone())
            .collect()
    }
}

pub fn space(name: &str, free: Size) -> NodeSpace {
    NodeSpace::new(node(name), free)
}
