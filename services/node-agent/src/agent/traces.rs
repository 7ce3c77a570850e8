//! The lives of containers as their traces tell them (T5), and what is counted of agents (T6).
//!
//! Everything here may be forgotten: nothing rests on it, and an agent that restarts tells of what
//! it still sees. Times are those of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use hayward_container_manager_api::DesiredEntry;
use hayward_service::metrics::catalogue::{
    AGENT_JOURNAL_ERRORS, AGENT_ORPHANS, CONTAINER_LAUNCH_DURATION,
};
use hayward_service::trace::{self, Beginning, Place};
use hayward_vocabulary::{AllocationId, Exit, NodeName};

const SERVICE: &str = "node-agent";

/// How far a container has come, as far as this agent has seen it.
#[derive(Debug, Clone, Default)]
struct Life {
    within: Option<Place>,
    heard: Option<SystemTime>,
    launched: Option<SystemTime>,
    started: Option<SystemTime>,
    stopped: Option<SystemTime>,
}

pub struct Lives {
    node: NodeName,
    lives: BTreeMap<AllocationId, Life>,
}

fn between(from: SystemTime, to: SystemTime) -> std::time::Duration {
    to.duration_since(from).unwrap_or_default()
}

impl Lives {
    pub fn new(node: NodeName) -> Self {
        AGENT_JOURNAL_ERRORS.add(0, &[]);
        AGENT_ORPHANS.add(0, &[]);
        Self {
            node,
            lives: BTreeMap::new(),
        }
    }

    pub fn orphan() {
        AGENT_ORPHANS.add(1, &[]);
    }

    pub fn journal_error() {
        AGENT_JOURNAL_ERRORS.add(1, &[]);
    }

    fn tell(&self, id: &AllocationId, name: &'static str, place: &Place) -> Beginning {
        Beginning::new(SERVICE, name)
            .within(place)
            .with("hayward.allocation.id", id.to_string())
            .with("hayward.node.name", self.node.to_string())
    }

    /// An order was heard.
    pub fn heard(&mut self, entry: &DesiredEntry) {
        let life = self.lives.entry(entry.id.clone()).or_default();
        life.heard.get_or_insert_with(trace::now);
        if life.within.is_none() {
            let within = entry.launch.within.as_deref();
            life.within = within.and_then(Place::parse);
        }
    }

    /// What is logged of it belongs to its trace.
    pub fn place(&self, id: &AllocationId) -> Option<Place> {
        self.lives.get(id)?.within.clone()
    }

    /// The intent is on disk, and the runtime is told.
    pub fn launches(&mut self, id: &AllocationId) {
        let now = trace::now();
        let Some(life) = self.lives.get_mut(id) else {
            return;
        };
        life.launched = Some(now);
        let (place, heard) = (life.within.clone(), life.heard);
        if let (Some(place), Some(heard)) = (place, heard) {
            self.tell(id, "fetch", &place).at(heard).end_at(now);
        }
    }

    pub fn started(&mut self, id: &AllocationId) {
        let now = trace::now();
        let life = self.lives.entry(id.clone()).or_default();
        if life.started.replace(now).is_some() {
            return;
        }
        let (place, launched) = (life.within.clone(), life.launched);
        if let Some(launched) = launched {
            CONTAINER_LAUNCH_DURATION.took(between(launched, now), &[]);
        }
        if let (Some(place), Some(launched)) = (place, launched) {
            self.tell(id, "launch", &place).at(launched).end_at(now);
        }
    }

    /// It was told to end.
    pub fn stops(&mut self, id: &AllocationId) {
        if let Some(life) = self.lives.get_mut(id) {
            life.stopped.get_or_insert_with(trace::now);
        }
    }

    pub fn ended(&mut self, id: &AllocationId, exit: &Exit) {
        let now = trace::now();
        let Some(life) = self.lives.get(id).cloned() else {
            return;
        };
        let Some(place) = life.within else {
            return;
        };
        let cause = format!("{:?}", exit.cause);
        let (name, from) = match (life.started, life.launched) {
            (Some(started), _) => ("running", started),
            // It never came to run, as far as anybody saw.
            (None, Some(launched)) => ("launch", launched),
            // It has outlived the agent that started it.
            (None, None) => ("running", life.heard.unwrap_or(now)),
        };
        let whole = self.tell(id, name, &place).at(from);
        let whole = whole.with("hayward.exit.cause", cause);
        whole.end_at(now);
        if let Some(stopped) = life.stopped {
            self.tell(id, "stop", &place).at(stopped).end_at(now);
        }
    }

    /// What is neither wanted nor there any more.
    pub fn forget(&mut self, id: &AllocationId) {
        self.lives.remove(id);
    }

    /// Only what is desired now is remembered, and what is still there.
    pub fn keep(&mut self, wanted: impl Fn(&AllocationId) -> bool) {
        let gone: BTreeSet<AllocationId> = self
            .lives
            .keys()
            .filter(|id| !wanted(id))
            .cloned()
            .collect();
        for id in gone {
            self.lives.remove(&id);
        }
    }
}
