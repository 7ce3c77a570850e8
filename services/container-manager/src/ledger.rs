//! The working set: all containers that are not archived, indexed by id, node and work. A container
//! is archived once it has ended and its allocation was removed.
//!
//! A container changes only in [`Ledger::apply_fact`], by one call of [`decide`]. Its row and its
//! entries in `containers` and `desired` are derived from its state. Report filters drop old
//! reports. They exist only in memory, because no decision depends on them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hayward_container_manager_api::{CONTAINERS, DESIRED};
use hayward_container_manager_domain::{Fact, ReportFilter, State, Transition, decide};
use hayward_publication::{Batch, DryRunSupport, Moment, Wake};
use hayward_service::metrics::Reading;
use hayward_vocabulary::invariant_finding::Ages;
use hayward_vocabulary::{AllocationId, NodeName, WorkId, WorkKind};
use sqlx::PgConnection;

use crate::command::Command;
use crate::config::Limits;
use crate::model::{Container, Rows};
use crate::placement_state::PlacementState;
use crate::{metrics, store};

#[derive(Clone)]
pub struct Ledger {
    pub(crate) limits: Arc<Limits>,
    pub(crate) containers: HashMap<AllocationId, Container>,
    pub(crate) by_node: HashMap<NodeName, BTreeSet<AllocationId>>,
    pub(crate) by_work: HashMap<WorkId, BTreeSet<AllocationId>>,
    /// Ids of held containers, which are in no desired set yet.
    pub(crate) held_containers: BTreeSet<AllocationId>,
    pub(crate) report_filters: HashMap<NodeName, ReportFilter>,
    pub(crate) placements: PlacementState,
    /// Time that each container has been in its current state, for the invariants.
    pub(crate) state_ages: Ages<AllocationId, State>,
    /// Containers on unreachable nodes whose end is still awaited (W7).
    pub(crate) unreachable: BTreeSet<AllocationId>,
}

impl Ledger {
    fn new(limits: Arc<Limits>, placements: PlacementState) -> Self {
        Self {
            limits,
            containers: HashMap::new(),
            by_node: HashMap::new(),
            by_work: HashMap::new(),
            held_containers: BTreeSet::new(),
            report_filters: HashMap::new(),
            placements,
            state_ages: Ages::default(),
            unreachable: BTreeSet::new(),
        }
    }
}

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Limits;

    async fn load(
        tx: &mut PgConnection,
        _moment: &Moment,
        context: &Arc<Limits>,
    ) -> Result<Self, sqlx::Error> {
        let containers = store::container::load(&mut *tx).await?;
        let placements = PlacementState::from_rows(store::placement::load(tx).await?);
        let mut ledger = Self::new(context.clone(), placements);
        for container in containers {
            ledger.index_container(container);
        }
        tracing::info!(containers = ledger.containers.len(), "loaded");
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::AllocationsUpdate { update, reply } => {
                self.apply_allocation_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::ProcessorsUpdate(update, reply) => {
                self.apply_processor_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::ClosedNodesUpdate(update, reply) => {
                self.apply_closed_node_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::CheckInvariants(reply) => {
                let findings = self.check_invariants(moment);
                batch.answer(reply, findings);
            }
            Command::Placement(command) => self.apply_placement_command(*command, moment, batch),
            Command::ApplyReport(report, reply) => {
                let result = self.apply_report(&report, moment, batch);
                batch.answer(reply, result);
            }
        }
    }

    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Placement(_) => DryRunSupport::OnCopy(Box::new(self.clone())),
            _ => DryRunSupport::Unsupported,
        }
    }

    /// Advances placements, which are the only part that depends on time.
    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.advance_placements(moment, batch)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        metrics::readings(self.containers.values(), moment)
    }

    fn count_changes(rows: &Rows) -> usize {
        let counts = [
            rows.created.len(),
            rows.changed.len(),
            rows.placements.len(),
            rows.deleted_placements.len(),
            rows.deployments.len(),
            rows.deleted_deployments.len(),
        ];
        counts.into_iter().sum()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::container::insert(tx, &rows.created).await?;
        store::container::update(tx, &rows.changed).await?;
        store::placement::write_deployments(tx, &rows.deployments, &rows.deleted_deployments)
            .await?;
        store::placement::delete(tx, &rows.deleted_placements).await?;
        store::placement::upsert(tx, &rows.placements).await
    }
}

impl Ledger {
    /// Adds a new container, its row and its published entries.
    pub(crate) fn add_container(&mut self, container: Container, batch: &mut Batch<Rows>) {
        publish(&container, batch);
        metrics::trace_start_order(&container, batch);
        batch
            .rows
            .created
            .insert(container.id.clone(), container.clone());
        self.index_container(container);
    }

    /// Inserts a container into all indices.
    fn index_container(&mut self, container: Container) {
        self.by_node
            .entry(container.node.clone())
            .or_default()
            .insert(container.id.clone());
        self.by_work
            .entry(container.work.clone())
            .or_default()
            .insert(container.id.clone());
        if container.lifecycle.held && !container.lifecycle.has_ended() {
            self.held_containers.insert(container.id.clone());
        }
        self.containers.insert(container.id.clone(), container);
    }

    /// Applies one fact to one container, and publishes the result.
    pub(crate) fn apply_fact(
        &mut self,
        id: &str,
        fact: Fact<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let (lifecycle, is_archived) = match decide(&container.lifecycle, fact, moment.revision) {
            Transition::Unchanged => return,
            Transition::Updated(lifecycle) => (lifecycle, false),
            Transition::Archived(lifecycle) => (lifecycle, true),
        };
        metrics::record_transition(container, &lifecycle, moment);
        // The epoch changes only with the goal, so that a new term does not wake every agent.
        if lifecycle.goal() != container.lifecycle.goal() {
            container.epoch = moment.epoch;
        }
        if lifecycle.has_ended() {
            container.launch = None;
        }
        if container.lifecycle.held && (!lifecycle.held || lifecycle.has_ended()) {
            self.held_containers.remove(&container.id);
        }
        if container.kind == WorkKind::Service && lifecycle.launch_revision.is_some() {
            self.placements
                .record_last_host(&container.work, &container.node);
        }
        container.lifecycle = lifecycle;
        publish(container, batch);
        if is_archived {
            container.archived_at = Some(moment.now);
            batch.withdraw(CONTAINERS, "", container.id.as_str());
        }
        let container = container.clone();
        if is_archived {
            self.unindex_container(&container);
        }
        batch.rows.changed.insert(container.id.clone(), container);
    }

    /// Removes a container from all indices.
    fn unindex_container(&mut self, container: &Container) {
        self.containers.remove(&container.id);
        self.held_containers.remove(&container.id);
        if let Some(work_ids) = self.by_work.get_mut(&container.work) {
            work_ids.remove(&container.id);
            if work_ids.is_empty() {
                self.by_work.remove(&container.work);
            }
        }
        if let Some(node_ids) = self.by_node.get_mut(&container.node) {
            node_ids.remove(&container.id);
            if node_ids.is_empty() {
                self.by_node.remove(&container.node);
            }
        }
    }
}

fn publish(container: &Container, batch: &mut Batch<Rows>) {
    let id = container.id.as_str();
    batch.publish(CONTAINERS, "", id, &container.entry());
    match container.desired_entry() {
        Some(entry) => batch.publish(DESIRED, container.node.as_str(), id, &entry),
        None => batch.withdraw(DESIRED, container.node.as_str(), id),
    }
}

#[cfg(test)]
mod tests;
