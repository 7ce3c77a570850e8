//! The control loop of the agent. It receives desired entries and runtime events, decides with
//! `reconcile`, writes to the journal, instructs the runtime, and publishes the status for reports.
//!
//! Invariants:
//! - An intent is on disk before the runtime receives it (I3).
//! - An end is in the journal before the status shows it, unless the disk fails.
//! - The status is complete only after the node was inspected and the journal was read.
//! - Containers that must end are ended even if the disk fails.

mod actions;
mod containers;
mod recovery;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{DesiredEntry, Goal as WireGoal};
use hayward_node_agent_domain::{
    DesiredContainer, Doubt, Goal, Phase, Record, State, Tenure, reconcile,
};
use hayward_service::Shutdown;
use hayward_vocabulary::{AllocationId, Size};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::desired_set::{Position, Update};
use crate::fault_points::{self, Point};
use crate::journal::{Journal, OpenedJournal};
use crate::lease::boottime_ms;
use crate::output_tail;
use crate::runtime::{Event, Runtime, RuntimeEvent};
use containers::KnownContainer;

pub use containers::AgentStatus;
pub use traces::Traces;

/// Delay after a failed write to the journal.
const DISK_RETRY: Duration = Duration::from_secs(1);
/// Poll interval while exclusive work waits for the lease of the node.
const LEASE_POLL: Duration = Duration::from_millis(100);
/// Time added to the longest grace when all containers are ended at exit.
const EXIT_MARGIN: Duration = Duration::from_secs(5);
/// Grace of a container without a desired entry when all containers are ended at exit.
const DEFAULT_GRACE_MS: u64 = 10_000;
/// Maximum number of events applied before the agent acts.
const MAX_BATCH: usize = 256;

pub struct Agent {
    runtime: Arc<dyn Runtime>,
    journal: Arc<Mutex<Journal>>,
    boot_id: String,
    containers: BTreeMap<AllocationId, KnownContainer>,
    desired: BTreeMap<AllocationId, DesiredEntry>,
    full_set_received: bool,
    /// Why an earlier agent may have started entries of the next full set that are not in the
    /// journal. `None` if that is impossible.
    doubt: Option<Doubt>,
    /// Entries that a previous agent may have started, with the reason.
    doubtful: BTreeMap<AllocationId, Doubt>,
    cursor: Option<String>,
    /// Newest position in the desired set that this or a previous agent acted on. Comparing it
    /// detects a desired set of another history.
    last_applied: Option<Position>,
    /// Why the journal cannot be written. `None` if it can.
    fault: Option<String>,
    status: watch::Sender<AgentStatus>,
    tenure: watch::Receiver<Option<Tenure>>,
    /// Start of the last seen tenure, in milliseconds since the boot. `None` before the first
    /// tenure.
    leased_since: Option<u64>,
    /// Exclusive entries that had not started when a lease expired.
    lease_missed: BTreeSet<AllocationId>,
    /// Delay until the next pass over the containers. `None` if none is due.
    retry_after: Option<Duration>,
    traces: Traces,
}

pub struct AgentInputs {
    pub updates: mpsc::Receiver<Update>,
    pub events: mpsc::Receiver<RuntimeEvent>,
}

/// Shared state of the agent and its loops.
pub struct AgentChannels {
    pub status: watch::Sender<AgentStatus>,
    pub tenure: watch::Receiver<Option<Tenure>>,
}

impl Agent {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        opened: OpenedJournal,
        boot_id: String,
        channels: AgentChannels,
        traces: Traces,
    ) -> anyhow::Result<Self> {
        let recovered = runtime.recover()?;
        let AgentChannels { status, tenure } = channels;
        let last_applied = opened.last_applied();
        let mut agent = Self {
            runtime,
            journal: Arc::new(Mutex::new(opened.journal)),
            boot_id,
            containers: BTreeMap::new(),
            desired: BTreeMap::new(),
            full_set_received: false,
            doubt: opened.doubt,
            doubtful: BTreeMap::new(),
            cursor: None,
            last_applied,
            fault: None,
            status,
            tenure,
            leased_since: None,
            lease_missed: BTreeSet::new(),
            retry_after: None,
            traces,
        };
        agent.recover(opened.state, recovered)?;
        if let Some(doubt) = agent.doubt {
            tracing::warn!(
                ?doubt,
                "orders that may have been obeyed before are not started"
            );
        }
        agent.publish_status();
        Ok(agent)
    }

    /// Runs until `stop`. With `end_containers`, the agent then stops all containers and waits for
    /// their ends.
    pub async fn run(mut self, mut inputs: AgentInputs, stop: Shutdown, end_containers: bool) {
        loop {
            let retry = self.retry_after;
            tokio::select! {
                Some(update) = inputs.updates.recv() => {
                    // The check comes first, because the new entries did not exist when a lease
                    // expired.
                    self.check_tenure();
                    fault_points::pass(Point::AbsorbBefore);
                    self.absorb(update);
                    fault_points::pass(Point::AbsorbAfter);
                }
                Some(event) = inputs.events.recv() => {
                    self.apply_events(event, &mut inputs.events).await;
                }
                Ok(()) = self.tenure.changed() => self.check_tenure(),
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
                () = stop.wait() => break,
            }
            self.act().await;
            self.publish_status();
        }
        if end_containers {
            self.end_all(inputs).await;
        }
    }

    /// Stops all containers, and waits for their ends within the longest grace.
    async fn end_all(&mut self, mut inputs: AgentInputs) {
        let live: Vec<_> = self
            .containers
            .iter()
            .filter(|(_, known)| known.actual.phase.is_live())
            .map(|(id, _)| id.clone())
            .collect();
        let grace = live
            .iter()
            .filter_map(|id| Some(self.desired.get(id)?.launch.stop_grace_ms))
            .max()
            .unwrap_or(DEFAULT_GRACE_MS);
        for id in &live {
            self.runtime.stop(id);
        }
        let limit = Duration::from_millis(grace) + EXIT_MARGIN;
        let all_ended = async {
            while self
                .containers
                .values()
                .any(|known| known.actual.phase.is_live())
            {
                let Some(event) = inputs.events.recv().await else {
                    return;
                };
                self.apply_events(event, &mut inputs.events).await;
                self.publish_status();
            }
        };
        if tokio::time::timeout(limit, all_ended).await.is_err() {
            tracing::error!("some containers did not end in time");
        }
    }

    /// Applies an update to the desired set in memory. After a full set, the entries without a
    /// container are doubtful if an earlier agent may have started them.
    fn absorb(&mut self, update: Update) {
        if update.full {
            self.desired.clear();
        }
        for key in &update.removed {
            self.desired.remove(key.as_str());
        }
        for entry in update.changed.into_values() {
            self.traces.record_order(&entry);
            self.desired.insert(entry.id.clone(), entry);
        }
        if update.full {
            let position = Position::parse(&update.cursor);
            let positions = position.as_ref().zip(self.last_applied.as_ref());
            if positions
                .is_some_and(|(current, last_applied)| !current.is_same_history(last_applied))
            {
                self.doubt = Some(Doubt::OtherHistory);
            }
            self.last_applied = position.or(self.last_applied.take());
            self.full_set_received = true;
            if let Some(doubt) = self.doubt.take() {
                let without_container = self
                    .desired
                    .keys()
                    .filter(|id| !self.containers.contains_key(*id));
                self.doubtful = without_container.map(|id| (id.clone(), doubt)).collect();
            }
        }
        self.cursor = Some(update.cursor);
        let (desired, containers) = (&self.desired, &self.containers);
        self.traces
            .retain(|id| desired.contains_key(id) || containers.contains_key(id));
    }

    /// Checks for a gap between leases. Exclusive entries from before a gap are not started any
    /// more, because another node may run their work.
    fn check_tenure(&mut self) {
        let since = self
            .tenure
            .borrow_and_update()
            .map(|tenure| tenure.since_ms);
        if self.leased_since.is_some() && since != self.leased_since {
            self.lease_missed = self.waiting_for_lease().cloned().collect();
        }
        self.leased_since = since;
    }

    /// Returns the exclusive entries that are not started yet.
    fn waiting_for_lease(&self) -> impl Iterator<Item = &AllocationId> {
        let is_waiting = |(id, entry): &(&AllocationId, &DesiredEntry)| {
            entry.exclusive && entry.goal == WireGoal::Run && !self.containers.contains_key(*id)
        };
        self.desired.iter().filter(is_waiting).map(|(id, _)| id)
    }

    /// Applies an event and all events that are already queued. Their records go to the journal in
    /// one write, which is synced only if it contains an end.
    async fn apply_events(
        &mut self,
        first: RuntimeEvent,
        receiver: &mut mpsc::Receiver<RuntimeEvent>,
    ) {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(event) = receiver.try_recv()
        {
            batch.push(event);
        }
        let records: Vec<Record> = batch
            .into_iter()
            .filter_map(|event| self.apply_event(event))
            .collect();
        let has_end = records
            .iter()
            .any(|record| matches!(record, Record::Ended { .. }));
        if self.write(records, has_end).await.is_err() {
            tracing::error!("an end is reported without a journal record; its directory keeps it");
        }
    }

    /// Applies an event to its container. Returns the record for the journal, if there is one.
    fn apply_event(&mut self, event: RuntimeEvent) -> Option<Record> {
        let RuntimeEvent {
            id,
            incarnation,
            event,
        } = event;
        let known = self.containers.get_mut(&id)?;
        if known.actual.incarnation != incarnation || known.exit.is_some() {
            return None;
        }
        match event {
            Event::Started { pid, at } => {
                // The pid is 0 if the runtime does not know it.
                known.pid = Some(pid).filter(|pid| *pid > 0);
                known.started_at = Some(at);
                if known.actual.phase == Phase::Launching {
                    known.actual.phase = Phase::Running;
                }
                self.traces.record_start(&id);
                Some(Record::Started {
                    id,
                    incarnation,
                    pid,
                    at: Some(at),
                })
            }
            Event::Stuck(reason) => {
                // The container keeps its space and does not count as ended (F31).
                tracing::error!(container = %id, why = %reason, "the container cannot be ended");
                known.actual.phase = Phase::Stopping;
                known.reason = Some(reason);
                None
            }
            Event::Ended(mut exit) => {
                output_tail::add_to_exit(self.runtime.as_ref(), &id, &mut exit);
                self.traces.record_end(&id, &exit);
                let _span_guard = self.traces.parent(&id).map(|parent| parent.enter());
                tracing::info!(container = %id, cause = ?exit.cause, "ended");
                known.actual.phase = Phase::Ended;
                known.exit = Some(exit.clone());
                let epoch = known.actual.epoch;
                Some(Record::Ended {
                    id,
                    incarnation,
                    epoch,
                    exit,
                })
            }
        }
    }

    /// Executes the actions that follow from the desired set and the containers, and schedules a
    /// retry if the disk fails or work waits for a lease.
    async fn act(&mut self) {
        self.retry_after = None;
        // Several passes are needed, because forgetting an old incarnation allows the next one to
        // start.
        for _ in 0..3 {
            let actions = reconcile(&self.reconcile_input());
            if actions.is_empty() {
                break;
            }
            if !self.execute(actions).await {
                self.retry_after = Some(DISK_RETRY);
                return;
            }
        }
        if self.fault.is_some() {
            self.probe_journal().await;
            self.retry_after = self.fault.is_some().then_some(DISK_RETRY);
            return;
        }
        let is_waiting = self.waiting_for_lease().next().is_some();
        self.retry_after = is_waiting.then_some(LEASE_POLL);
    }

    fn reconcile_input(&self) -> State {
        let desired_container = |entry: &DesiredEntry| DesiredContainer {
            incarnation: entry.incarnation,
            epoch: entry.epoch,
            goal: match entry.goal {
                WireGoal::Run => Goal::Run,
                WireGoal::Stop => Goal::Stop,
                WireGoal::Unknown => Goal::Unknown,
            },
            exclusive: entry.exclusive,
        };
        let tenure = *self.tenure.borrow();
        State {
            desired: self
                .desired
                .iter()
                .map(|(id, entry)| (id.clone(), desired_container(entry)))
                .collect(),
            full_set_received: self.full_set_received,
            actual: self
                .containers
                .iter()
                .map(|(id, known)| (id.clone(), known.actual))
                .collect(),
            doubtful: self.doubtful.keys().cloned().collect(),
            has_lease: tenure.is_some_and(|tenure| tenure.may_start(boottime_ms())),
            lease_missed: self.lease_missed.clone(),
        }
    }

    /// Returns why a container cannot be ended, or `None` if there is no such container. The reason
    /// is a fault of the node, which then accepts no new work.
    fn stuck_reason(&self) -> Option<String> {
        let mut live = self
            .containers
            .iter()
            .filter(|(_, known)| known.exit.is_none());
        let (id, reason) = live.find_map(|(id, known)| Some((id, known.reason.as_ref()?)))?;
        Some(format!("{id} cannot be ended: {reason}"))
    }

    fn publish_status(&self) {
        let containers = self
            .containers
            .iter()
            .map(|(id, known)| known.to_report(id));
        let mut granted = Size::default();
        for (id, known) in &self.containers {
            if let Some(entry) = self
                .desired
                .get(id)
                .filter(|_| known.actual.phase.is_live())
            {
                granted.add(&entry.size);
            }
        }
        self.status.send_replace(AgentStatus {
            cursor: self.cursor.clone(),
            complete: true,
            containers: Arc::new(containers.collect()),
            granted,
            fault: self.fault.clone().or_else(|| self.stuck_reason()),
        });
    }
}
