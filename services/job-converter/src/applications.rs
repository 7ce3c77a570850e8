//! Applications of the application protocol. Each application is two state machines, which requests
//! and updates of `allocations` and `verdicts` drive.
//!
//! The *frontend* has the application and its tasks as the user sees them. The *core* faces the
//! scheduler. It has one *ask* for each task that waits for an allocation. The protocol crate has
//! the rules of both machines.
//!
//! This module delivers the messages between the two machines ([`message_loop`]). It turns asks
//! into demand ([`demand`]) and granted allocations into events ([`scheduler_updates`]). It writes
//! changed rows ([`tick`]). Decision 0024 gives the reasons.

mod application_record;
mod bindings;
mod commands;
pub mod demand;
mod message_loop;
pub mod parse_submission;
mod quota;
mod restore;
mod scheduler_updates;
mod task_end;
mod tick;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_application_protocol::core::IncompleteGang;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_application_protocol::partition::{Limits, Partition};
use hayward_rm_scheduler_api::VerdictEntry;
use hayward_vocabulary::invariant_finding::TimedState;
use hayward_vocabulary::{Timestamp, UserName};
use rustc_hash::FxHashMap;
use uuid::Uuid;

pub use application_record::AppRecord;
use application_record::Dirty;
pub use commands::{
    ApplicationCommand, CommandContext, NewTask, OwnerFilter, Refusal, RemovalMode,
};
use quota::Quota;
pub use scheduler_updates::{AllocationChange, is_application_work};
pub use view::{Filter, state_names};

use crate::config::Settings;
use crate::invariants;
use crate::metrics::GangCounts;

/// Prefix of the work ids of applications.
pub const WORK_ID_PREFIX: &str = "app_";

/// Verdicts of rm-scheduler, by work id.
pub type Verdicts = BTreeMap<String, VerdictEntry>;

pub struct Applications {
    /// The frontend of each application: the state that users see.
    partition: Partition,
    /// The core of each application, and its allocations.
    records: BTreeMap<AppId, AppRecord>,
    id_by_uuid: FxHashMap<Uuid, AppId>,
    /// Applications with changes, processed before this batch ends.
    dirty: BTreeMap<AppId, Dirty>,
    /// Next timer or tick of each application, by wall time in ms.
    due: BTreeSet<(i64, AppId)>,
    /// Uuids of deleted applications whose rows are not deleted yet.
    deleted: Vec<Uuid>,
    /// Whether the first update of `allocations` in this term has arrived.
    synced: bool,
    quota: Quota,
    tick_ms: u64,
    stop_grace_ms: u64,
}

impl Applications {
    pub fn new(settings: &Settings) -> Self {
        Self {
            partition: Partition::new(limits(settings)),
            records: BTreeMap::new(),
            id_by_uuid: FxHashMap::default(),
            dirty: BTreeMap::new(),
            due: BTreeSet::new(),
            deleted: Vec::new(),
            synced: false,
            quota: Quota::new(settings),
            tick_ms: settings.application_tick_ms,
            stop_grace_ms: settings.stop_grace_ms,
        }
    }

    /// Copies one application for a dry run. Quotas still count all applications (A10).
    pub fn copy_of_one(&self, id: &AppId) -> Self {
        let record = self.records.get(id).cloned();
        let id_by_uuid = record
            .iter()
            .map(|record| (record.uuid, id.clone()))
            .collect();
        Self {
            partition: self.partition.copy_of_one(id),
            records: record
                .into_iter()
                .map(|record| (id.clone(), record))
                .collect(),
            id_by_uuid,
            dirty: BTreeMap::new(),
            due: BTreeSet::new(),
            deleted: Vec::new(),
            synced: self.synced,
            quota: self.quota.clone(),
            tick_ms: self.tick_ms,
            stop_grace_ms: self.stop_grace_ms,
        }
    }

    /// Returns an application of the user that has not ended or holds allocations.
    pub fn live_application_of(&self, user: &UserName) -> Option<String> {
        let mut own = self.records.iter().filter(|(_, it)| it.user == *user);
        let is_over = |id: &AppId| {
            let front = self.partition.get(id);
            front.is_none_or(|it| it.head.state.is_dead())
        };
        let live = own.find(|(id, record)| !is_over(id) || !record.allocations.is_empty());
        live.map(|(id, _)| id.to_string())
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of live tasks of all applications, with the gang members that do not
    /// exist yet.
    pub fn live_tasks(&self) -> usize {
        self.quota.task_count()
    }

    /// Returns the applications and tasks in transitional states (I24).
    pub fn transitional_states(
        &self,
    ) -> impl Iterator<Item = ((String, Option<String>), &'static str)> + '_ {
        self.partition.iter().flat_map(|application| {
            let id = &application.head.id;
            let app_state = invariants::transitional_state(application.head.state);
            let app_state = app_state.map(|state| ((id.to_string(), None), state));
            let tasks = application.tasks.values().filter_map(move |task| {
                let state = invariants::task_transitional_state(task.state)?;
                Some(((id.to_string(), Some(task.id.to_string())), state))
            });
            app_state.into_iter().chain(tasks)
        })
    }

    /// Returns the applications with a gang. An incomplete gang comes with what it lacks (I13).
    pub fn gangs(&self) -> impl Iterator<Item = (&AppId, Option<IncompleteGang>)> + '_ {
        let cores = self.records.iter();
        let cores = cores.filter_map(|(id, record)| Some((id, record.core.as_ref()?)));
        let gangs = cores.filter(|(_, core)| !core.head.submission.task_groups.is_empty());
        gangs.map(|(id, core)| (id, core.incomplete_gang()))
    }

    /// Counts the gangs by state.
    pub fn gang_counts(&self) -> GangCounts {
        let mut counts = GangCounts::default();
        let cores = self
            .records
            .values()
            .filter_map(|record| record.core.as_ref());
        for core in cores.filter(|core| !core.head.submission.task_groups.is_empty()) {
            let has_lost_members = core
                .incomplete_gang()
                .is_some_and(|incomplete| incomplete.formed);
            match (core.head.formed, has_lost_members) {
                (false, _) => counts.waiting += 1,
                (true, false) => counts.complete += 1,
                (true, true) => counts.below_minimum += 1,
            }
        }
        counts
    }

    /// Returns the next timer of each application, and how late it is.
    pub fn timers(&self, now: Timestamp) -> impl Iterator<Item = TimedState<String>> + '_ {
        self.due.iter().map(move |(due_ms, id)| TimedState {
            subject: id.to_string(),
            state: "has a timer",
            late_ms: now.ms_since(Timestamp::from_unix_ms(*due_ms)),
            cause: None,
        })
    }

    /// Marks an application as changed in this batch.
    fn mark_dirty(&mut self, id: &AppId) -> &mut Dirty {
        self.dirty.entry(id.clone()).or_default()
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        applications: settings.max_applications,
        tasks: settings.max_application_tasks,
        ..Limits::default()
    }
}
