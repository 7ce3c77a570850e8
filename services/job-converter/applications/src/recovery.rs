//! After a restart (4): what is stored, what runs, and what follows from both. Pure, and safe to
//! do twice.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core;
use crate::front::application::GANG_TIMEOUT;
use crate::front::{self, Event, Failure, State, Step};
use crate::ids::{AppId, TaskId};
use crate::messages::{Ask, Submission, Termination};
use crate::metadata::{FORCE_CREATE, Metadata};
use crate::policy::Style;
use crate::task::{Runtime, Task, Wish};
use crate::timers::Timer;

/// Applications that a manager brings back (2.8): those with an object that is on a node. The
/// first such object speaks for its application.
pub fn applications<'a>(
    objects: impl IntoIterator<Item = (&'a AppId, &'a Metadata, &'a Wish)>,
    now: Timestamp,
) -> BTreeMap<AppId, Metadata> {
    let mut found = BTreeMap::new();
    for (app, metadata, wish) in objects {
        if !matches!(wish.runtime, Runtime::Assigned { .. }) || found.contains_key(app) {
            continue;
        }
        let mut metadata = metadata.clone();
        metadata.creation_time.get_or_insert(now);
        // It runs, so it is placed even where no rule places it any more (4.3).
        metadata
            .tags
            .insert(FORCE_CREATE.to_owned(), "true".to_owned());
        found.insert(app.clone(), metadata);
    }
    found
}

/// The allocation that an object stands for (2.8); none for one that has ended or has no node.
pub fn existing_allocation(task: &Task) -> Option<core::Allocation> {
    let Runtime::Assigned { node } = &task.wish.runtime else {
        return None;
    };
    Some(core::Allocation {
        ask: task.ask(),
        node: node.clone(),
        since: task.created_at,
        released: None,
        successor: None,
    })
}

/// A gang that was reserving when the front went down (4.3): with real work under way, or with its
/// time over, it is not reserved again.
pub fn resume(application: &mut front::Application, now: Timestamp) -> Step {
    let mut step = Step::default();
    let reserving = matches!(
        application.head.state,
        State::Accepted | State::Reserving | State::Resuming
    );
    let metadata = &application.head.metadata;
    if !reserving || metadata.task_groups.is_empty() {
        return step;
    }
    let policy = metadata.scheduling_policy_parameters;
    let timeout_ms = match policy.placeholder_timeout_ms {
        0 => Timer::Placeholder.default_ms(),
        given => given,
    };
    let created = metadata.creation_time.unwrap_or(now);
    let late = created.plus_ms(timeout_ms) <= now;
    let begun = !application.wants_reservation();
    let hard = late && !begun && policy.style == Style::Hard;
    let done = if hard && application.head.state != State::Resuming {
        application.fail(&Failure::read(GANG_TIMEOUT), now, &mut step)
    } else if begun || late {
        let ran = application.fire(Event::Run, now, &mut step);
        ran.and_then(|()| application.clean_placeholders(now, &mut step))
    } else {
        Ok(())
    };
    step.refused = done.err();
    step
}

/// The core's half from what exists: allocations first, the oldest first, then what waits. Sums
/// are counted anew and no limit is asked for what runs (4.1).
pub fn rebuild(
    submission: Submission,
    mut allocations: Vec<core::Allocation>,
    asks: Vec<Ask>,
    now: Timestamp,
) -> core::Application {
    let mut application = core::Application::new(submission, now);
    application.step(core::Input::Admitted(Ok(())), now);
    allocations.sort_by(|a, b| {
        let key = |it: &core::Allocation| it.ask.created_at;
        key(a).cmp(&key(b)).then_with(|| a.ask.key.cmp(&b.ask.key))
    });
    for allocation in allocations {
        application.step(core::Input::Restored(allocation), now);
    }
    for ask in asks {
        application.step(core::Input::Front(crate::messages::ToCore::Ask(ask)), now);
    }
    application
}

/// An allocation in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub app: AppId,
    pub key: TaskId,
    pub node: NodeName,
    /// A row; no container is expected.
    pub placeholder: bool,
}

/// A container that a node reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub app: AppId,
    pub key: TaskId,
    /// When it was first seen without a row.
    pub first_seen: Timestamp,
}

/// 4.4 (d), for one thing each. What matches needs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// In the store, and not on its node.
    Release {
        app: AppId,
        key: TaskId,
        termination: Termination,
    },
    /// Its node has not reported: nothing is known, so nothing is done.
    Hold { app: AppId, key: TaskId },
    /// On the node and not in the store, and its application exists.
    Attach {
        app: AppId,
        key: TaskId,
        node: NodeName,
    },
    /// Nobody knows its application. It is reported, and never killed in silence.
    Report {
        app: AppId,
        key: TaskId,
        node: NodeName,
        /// The grace is over: its owner is asked what becomes of it.
        ask_owner: bool,
    },
}

/// Compares the store with what the nodes report. A node that is not in `reports` has not reported.
pub fn reconcile(
    stored: &[Stored],
    reports: &BTreeMap<NodeName, Vec<Running>>,
    known: &BTreeSet<AppId>,
    (now, grace_ms): (Timestamp, u64),
) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut rows = BTreeSet::new();
    for row in stored {
        rows.insert((&row.node, &row.app, &row.key));
        let (app, key) = (row.app.clone(), row.key.clone());
        match reports.get(&row.node) {
            None => actions.push(Action::Hold { app, key }),
            Some(_) if row.placeholder => {}
            Some(running) => {
                let stands = |it: &Running| it.app == row.app && it.key == row.key;
                if !running.iter().any(stands) {
                    actions.push(Action::Release {
                        app,
                        key,
                        termination: Termination::Unknown,
                    });
                }
            }
        }
    }
    for (node, running) in reports {
        let orphans = running
            .iter()
            .filter(|it| !rows.contains(&(node, &it.app, &it.key)));
        actions.extend(orphans.map(|it| orphan(it, node, known, (now, grace_ms))));
    }
    actions
}

fn orphan(
    it: &Running,
    node: &NodeName,
    known: &BTreeSet<AppId>,
    (now, grace_ms): (Timestamp, u64),
) -> Action {
    let (app, key, node) = (it.app.clone(), it.key.clone(), node.clone());
    if known.contains(&app) {
        return Action::Attach { app, key, node };
    }
    let ask_owner = now.ms_since(it.first_seen) >= grace_ms;
    Action::Report {
        app,
        key,
        node,
        ask_owner,
    }
}
