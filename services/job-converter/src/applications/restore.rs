//! Restores the frontend and the core of each application from rows. Timers are stored as points in
//! time, so they continue. Allocations arrive again from rm-scheduler.

use std::collections::BTreeMap;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::ids::TaskId;
use hayward_job_converter_application_protocol::partition::Partition;
use hayward_vocabulary::UserName;
use uuid::Uuid;

use super::application_record::{AppRecord, HeadRow, TaskRow, hash_row};
use super::{Applications, limits};
use crate::config::Settings;
use crate::store::applications::{ApplicationRow, ApplicationTaskRow};

impl Applications {
    /// Restores all applications.
    ///
    /// # Errors
    /// Fails if a row cannot be read, because continuing would lose its content.
    pub fn from_rows(
        settings: &Settings,
        heads: Vec<ApplicationRow>,
        tasks: Vec<ApplicationTaskRow>,
    ) -> Result<Self, serde_json::Error> {
        let mut by_app: BTreeMap<Uuid, Vec<ApplicationTaskRow>> = BTreeMap::new();
        for task in tasks {
            by_app.entry(task.application).or_default().push(task);
        }
        let mut applications = Self::new(settings);
        let mut fronts = Vec::with_capacity(heads.len());
        for head in heads {
            let tasks = by_app.remove(&head.uuid).unwrap_or_default();
            let (front, mut record) = restore_one(head, tasks)?;
            record.quota_tasks = front.open_task_count();
            applications
                .quota
                .add_application(&record.user, record.quota_tasks);
            let id = front.head.id.clone();
            applications.id_by_uuid.insert(record.uuid, id.clone());
            applications.records.insert(id.clone(), record);
            applications.mark_dirty(&id).all = true;
            fronts.push(front);
        }
        applications.partition = Partition::from_rows(limits(settings), fronts);
        Ok(applications)
    }
}

fn restore_one(
    head: ApplicationRow,
    tasks: Vec<ApplicationTaskRow>,
) -> Result<(frontend::Application, AppRecord), serde_json::Error> {
    use serde::de::Error as _;
    let row: HeadRow = serde_json::from_str(&head.body)?;
    let user = UserName::new(head.user).map_err(serde_json::Error::custom)?;
    let mut record = AppRecord::new(head.uuid, user);
    record.next_number = row.next_number;
    record.settled = row.settled.into_owned();
    record.warnings = row.warnings.into_owned();
    record.written_head = head.body;
    record.core = row.core.map(|core| core::Application {
        head: core.into_owned(),
        pending: BTreeMap::new(),
        allocations: BTreeMap::new(),
    });
    let mut front_tasks = Vec::with_capacity(tasks.len());
    for text in tasks {
        let id = TaskId::new(text.id).map_err(serde_json::Error::custom)?;
        let row: TaskRow = serde_json::from_str(&text.body)?;
        front_tasks.extend(row.task);
        if let Some(core) = record.core.as_mut() {
            core.pending.extend(row.ask.map(|ask| (id.clone(), ask)));
            core.allocations
                .extend(row.held.map(|held| (id.clone(), held)));
        }
        if let Some(number) = row.info.number {
            record.task_by_number.insert(number, id.clone());
        }
        let allocation = row.info.allocation.clone();
        record
            .task_by_allocation
            .extend(allocation.map(|allocation| (allocation, id.clone())));
        record
            .written_tasks
            .insert(id.clone(), hash_row(&text.body));
        record.tasks.insert(id, row.info);
    }
    let front = frontend::Application::from_rows(row.front.into_owned(), front_tasks);
    Ok((front, record))
}
