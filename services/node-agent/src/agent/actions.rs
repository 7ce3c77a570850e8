//! Executes the decided actions: the journal first, then the runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::DesiredEntry;
use hayward_node_agent_domain::{Action, Phase, Record, Stage, exit_for_failed_start};
use hayward_vocabulary::{AllocationId, Exit, ExitCause};

use super::containers::{KnownContainer, exit_without_start};
use super::{Agent, Traces};
use crate::fault_points::{self, Point};
use crate::runtime::Container;

/// A write to the journal that takes longer is reported as a fault of the node.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);

impl Agent {
    /// Executes the actions. Returns false if the journal could not be written. Stops are still
    /// executed then, and starts fail.
    pub(super) async fn execute(&mut self, actions: Vec<Action>) -> bool {
        let is_stop = |action: &Action| matches!(action, Action::Stop { .. });
        let (stops, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_stop);
        for action in stops {
            self.perform(action);
        }
        let mut records: Vec<Record> = others
            .iter()
            .filter_map(|action| self.record_for(action))
            .collect();
        if let Some(cursor) = self.cursor.clone().filter(|_| !records.is_empty()) {
            // The position acted on is written together with the records (I7).
            records.push(Record::Seen { cursor });
        }
        let written = self.write(records, true).await;
        let failed = written.is_err();
        for action in others {
            match (&written, action) {
                (Ok(()), action) => self.perform(action),
                (Err(error), Action::Start { id, incarnation }) => {
                    // The end is reported from memory alone. The report leads to the removal of the
                    // order. A later agent that still finds the order can start the container,
                    // because no agent has started it (I3).
                    let message = format!("the journal cannot be written: {error}");
                    let exit = exit_for_failed_start(Stage::Setup, error.raw_os_error(), message);
                    let epoch = desired_epoch(&self.desired, &id);
                    self.containers
                        .insert(id, KnownContainer::with_exit(incarnation, epoch, exit));
                }
                (Err(_), _) => {}
            }
        }
        !failed
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start { id, incarnation } => self.start(id, incarnation),
            Action::Stop { id } => {
                if let Some(known) = self.containers.get_mut(&id) {
                    known.actual.phase = Phase::Stopping;
                    known.actual.epoch = known.actual.epoch.max(desired_epoch(&self.desired, &id));
                }
                self.traces.record_stop(&id);
                fault_points::pass(Point::StopBefore);
                self.runtime.stop(&id);
                fault_points::pass(Point::StopAfter);
            }
            Action::Forget { id } => {
                self.containers.remove(&id);
                self.traces.forget(&id);
                fault_points::pass(Point::ForgetBefore);
                self.runtime.forget(&id);
                fault_points::pass(Point::ForgetAfter);
            }
            Action::Conclude {
                id,
                incarnation,
                cause,
            } => {
                let epoch = desired_epoch(&self.desired, &id);
                let exit = self.exit_without_start(&id, cause);
                self.doubtful.remove(&id);
                self.lease_missed.remove(&id);
                self.containers
                    .insert(id, KnownContainer::with_exit(incarnation, epoch, exit));
            }
        }
    }

    /// Returns the record that must be on disk before the action.
    fn record_for(&self, action: &Action) -> Option<Record> {
        match action {
            Action::Start { id, incarnation } => Some(Record::Intent {
                id: id.clone(),
                incarnation: *incarnation,
                epoch: desired_epoch(&self.desired, id),
                boot_id: self.boot_id.clone(),
            }),
            Action::Stop { .. } => None,
            Action::Forget { id } => Some(Record::Forgotten { id: id.clone() }),
            Action::Conclude {
                id,
                incarnation,
                cause,
            } => Some(Record::Ended {
                id: id.clone(),
                incarnation: *incarnation,
                epoch: desired_epoch(&self.desired, id),
                exit: self.exit_without_start(id, *cause),
            }),
        }
    }

    fn start(&mut self, id: AllocationId, incarnation: u64) {
        let Some(entry) = self.desired.get(&id) else {
            return;
        };
        self.traces.record_launch(&id);
        let _span_guard = self.traces.parent(&id).map(|parent| parent.enter());
        tracing::info!(container = %id, work = %entry.work, incarnation, "starting");
        let container = Container {
            id: id.clone(),
            incarnation,
            epoch: entry.epoch,
            work: entry.work.clone(),
            user: entry.user.clone(),
            size: entry.launch.enforced_size(&entry.size),
            exclusive: entry.exclusive,
            launch: entry.launch.clone(),
        };
        self.containers.insert(
            id,
            KnownContainer::new(incarnation, entry.epoch, Phase::Launching),
        );
        self.runtime.launch(container);
    }

    /// Writes to the journal. While the disk fails or does not answer, the node asks for no new
    /// work (F29).
    pub(super) async fn write(&mut self, records: Vec<Record>, sync: bool) -> io::Result<()> {
        if records.is_empty() || !self.journal.lock().is_persistent() {
            return Ok(());
        }
        let journal = Arc::clone(&self.journal);
        let mut write_task =
            tokio::task::spawn_blocking(move || journal.lock().append(&records, sync));
        let finished = tokio::time::timeout(DISK_TIMEOUT, &mut write_task).await;
        let written = if let Ok(written) = finished {
            written
        } else {
            tracing::error!("the disk of the journal does not answer");
            self.fault = Some("the disk of its journal does not answer".to_owned());
            self.publish_status();
            write_task.await
        };
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        if written.is_err() {
            Traces::count_journal_error();
        }
        let fault = written.as_ref().err().map(|error| {
            // The text has no measured values, because every change of it is published to the
            // fleet.
            format!("its journal cannot be written: {error}")
        });
        if let Some(fault) = &fault
            && self.fault.as_ref() != Some(fault)
        {
            tracing::error!(%fault, "nothing new is started");
        }
        self.fault = fault;
        written
    }

    /// Tests whether the journal can be written again.
    pub(super) async fn probe_journal(&mut self) {
        let cursor = self.cursor.clone().unwrap_or_default();
        if self
            .write(vec![Record::Seen { cursor }], true)
            .await
            .is_ok()
        {
            tracing::info!("the journal can be written again");
        }
    }

    /// Returns the exit of a container that this agent did not start.
    fn exit_without_start(&self, id: &AllocationId, cause: ExitCause) -> Exit {
        let doubt = self
            .doubtful
            .get(id)
            .filter(|_| cause == ExitCause::LaunchUnknown);
        doubt.map_or_else(|| exit_without_start(cause), |doubt| doubt.to_exit())
    }
}

fn desired_epoch(desired: &BTreeMap<AllocationId, DesiredEntry>, id: &AllocationId) -> u64 {
    desired.get(id).map_or(0, |entry| entry.epoch)
}
