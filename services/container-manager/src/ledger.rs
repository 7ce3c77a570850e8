//! The working set: every container that is not buried, by id and by node.
//!
//! A container changes in one place, [`Ledger::learn`], by one pure decision; from its life follow
//! its row, its entry in `containers` and its entry in its node's desired set. What witnesses know
//! of agents is in memory only: it drops reports that are certainly old, and no decision rests on
//! it, so a restart may forget it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hayward_container_manager_api::{
    CONTAINERS, ContainerEntry, ContainerState, DESIRED, DesiredEntry, Goal, Report,
};
use hayward_container_manager_domain as domain;
use hayward_container_manager_domain::{Fact, Life, State, Step, Witness, decide};
use hayward_container_manager_placement::Placement;
use hayward_publication::invariants::Findings;
use hayward_publication::{Batch, Moment, Reply, Trial, Update, Wake};
use hayward_rm_scheduler_api::{AllocationEntry, ClosedEntry, ProcessorEntry};
use hayward_service::metrics::Reading;
use hayward_vocabulary::{
    AllocationId, Launch, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};
use sqlx::PgConnection;

use crate::invariants::Stages;
use crate::metrics;
use crate::placements::{Deployment, Limits, Placements, commands};
use crate::reports::Foreign;
use crate::store;

/// A container, with everything its row, its entries and its decisions need.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub size: Size,
    /// Its node ends it by itself when its lease runs out (I4).
    pub exclusive: bool,
    /// The one whose place it takes.
    pub predecessor: Option<AllocationId>,
    /// The request of an action that it answers.
    pub request: Option<String>,
    /// Absent once it has ended: it may hold secrets.
    pub launch: Option<Arc<Launch>>,
    /// Term of the writer that last changed what the node is told.
    pub epoch: u64,
    pub ordered_at: Timestamp,
    pub life: Life,
    pub buried_at: Option<Timestamp>,
}

impl Container {
    pub fn entry(&self) -> ContainerEntry {
        ContainerEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            node: self.node.clone(),
            state: spoken(self.life.state),
            started_at: self.life.started_at,
            reason: self.life.reason.clone(),
            exit: self.life.exit.clone(),
        }
    }

    fn desired(&self) -> Option<DesiredEntry> {
        let goal = match self.life.desired()? {
            domain::Goal::Run => Goal::Run,
            domain::Goal::Stop => Goal::Stop,
        };
        Some(DesiredEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            incarnation: self.life.incarnation,
            epoch: self.epoch,
            goal,
            exclusive: self.exclusive,
            size: self.size.clone(),
            launch: self.launch.as_deref()?.clone(),
        })
    }
}

/// The word of the contract for a state.
pub fn spoken(state: State) -> ContainerState {
    match state {
        State::Ordered => ContainerState::Ordered,
        State::Launching => ContainerState::Launching,
        State::Running => ContainerState::Running,
        State::Stopping => ContainerState::Stopping,
        State::Ended => ContainerState::Ended,
    }
}

/// Someone asked, or news came.
pub enum Command {
    Allocations {
        update: Update<AllocationEntry>,
        reply: Reply<()>,
    },
    Processors(Update<ProcessorEntry>, Reply<()>),
    Closed(Update<ClosedEntry>, Reply<()>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
    /// Somebody asked about placements, and is answered by what they asked.
    Placements(Box<commands::Act>),
    Report {
        node: NodeName,
        answers: Option<u64>,
        report: Report,
        reply: Reply<Result<(), Foreign>>,
    },
}

/// The rows of one batch; of a container that changed twice, the last.
#[derive(Default)]
pub struct Rows {
    pub born: BTreeMap<AllocationId, Container>,
    pub changed: BTreeMap<AllocationId, Container>,
    pub placements: BTreeMap<String, Placement>,
    pub forgotten: BTreeSet<String>,
    pub deployments: BTreeMap<String, Deployment>,
    pub forgotten_deployments: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Ledger {
    pub(crate) limits: Arc<Limits>,
    pub(crate) containers: HashMap<AllocationId, Container>,
    pub(crate) by_node: HashMap<NodeName, BTreeSet<AllocationId>>,
    pub(crate) by_work: HashMap<WorkId, BTreeSet<AllocationId>>,
    /// Those no node is told of yet.
    pub(crate) held: BTreeSet<AllocationId>,
    pub(crate) witnesses: HashMap<NodeName, Witness>,
    pub(crate) placements: Placements,
    /// From look to look at the invariants.
    pub(crate) stages: Stages,
    /// Those whose nodes cannot answer, and that are waited for all the same (W7).
    pub(crate) unreachable: BTreeSet<AllocationId>,
}

impl Ledger {
    /// One that knows no container.
    fn new(limits: Arc<Limits>, placements: Placements) -> Self {
        Self {
            limits,
            containers: HashMap::new(),
            by_node: HashMap::new(),
            by_work: HashMap::new(),
            held: BTreeSet::new(),
            witnesses: HashMap::new(),
            placements,
            stages: Stages::default(),
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
        let placements = Placements::loaded(store::placement::load(tx).await?);
        let mut ledger = Self::new(context.clone(), placements);
        for container in containers {
            ledger.hold(container);
        }
        tracing::info!(containers = ledger.containers.len(), "loaded");
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Allocations { update, reply } => {
                self.absorb_allocations(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Processors(update, reply) => {
                self.absorb_processors(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Closed(update, reply) => {
                self.absorb_closed(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Invariants(reply) => {
                let report = self.report(moment);
                batch.answer(reply, report);
            }
            Command::Placements(asked) => asked(self, moment, batch),
            Command::Report {
                node,
                answers,
                report,
                reply,
            } => {
                let answer = self.take_report(&node, (answers, &report), moment, batch);
                batch.answer(reply, answer);
            }
        }
    }

    fn trial(&self, command: &Command) -> Trial<Self> {
        match command {
            Command::Placements(_) => Trial::OnACopy(Box::new(self.clone())),
            _ => Trial::Never,
        }
    }

    /// Only placements are moved by the passing of time.
    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.place(moment, batch)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        metrics::readings(self, moment)
    }

    fn weight(rows: &Rows) -> usize {
        let all = [
            rows.born.len(),
            rows.changed.len(),
            rows.placements.len(),
            rows.forgotten.len(),
            rows.deployments.len(),
            rows.forgotten_deployments.len(),
        ];
        all.into_iter().sum()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::container::insert(tx, &rows.born).await?;
        store::container::update(tx, &rows.changed).await?;
        let deployments = (&rows.deployments, &rows.forgotten_deployments);
        store::placement::write_deployments(tx, deployments).await?;
        store::placement::delete(tx, &rows.forgotten).await?;
        store::placement::upsert(tx, &rows.placements).await
    }
}

impl Ledger {
    /// Takes a container in that was not there before.
    pub(crate) fn bear(&mut self, container: Container, batch: &mut Batch<Rows>) {
        publish(&container, batch);
        metrics::ordered(&container, batch);
        batch
            .rows
            .born
            .insert(container.id.clone(), container.clone());
        self.hold(container);
    }

    fn hold(&mut self, container: Container) {
        self.by_node
            .entry(container.node.clone())
            .or_default()
            .insert(container.id.clone());
        self.by_work
            .entry(container.work.clone())
            .or_default()
            .insert(container.id.clone());
        if container.life.held && !container.life.has_ended() {
            self.held.insert(container.id.clone());
        }
        self.containers.insert(container.id.clone(), container);
    }

    /// One fact about one container, and all that follows from it.
    pub(crate) fn learn(
        &mut self,
        id: &str,
        fact: Fact<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let (life, bury) = match decide(&container.life, fact, moment.revision) {
            Step::Stay => return,
            Step::Become(life) => (life, false),
            Step::Bury(life) => (life, true),
        };
        metrics::moves(container, &life, moment);
        // An order keeps its epoch until it changes: a new term alone wakes no agent.
        if life.desired() != container.life.desired() {
            container.epoch = moment.epoch;
        }
        if life.has_ended() {
            container.launch = None;
        }
        if container.life.held && (!life.held || life.has_ended()) {
            self.held.remove(&container.id);
        }
        if container.kind == WorkKind::Service && life.launched.is_some() {
            self.placements.started_on(&container.work, &container.node);
        }
        container.life = life;
        publish(container, batch);
        if bury {
            container.buried_at = Some(moment.now);
            batch.withdraw(CONTAINERS, "", container.id.as_str());
        }
        let container = container.clone();
        if bury {
            self.forget(&container);
        }
        batch.rows.changed.insert(container.id.clone(), container);
    }

    fn forget(&mut self, container: &Container) {
        self.containers.remove(&container.id);
        self.held.remove(&container.id);
        if let Some(siblings) = self.by_work.get_mut(&container.work) {
            siblings.remove(&container.id);
            if siblings.is_empty() {
                self.by_work.remove(&container.work);
            }
        }
        if let Some(there) = self.by_node.get_mut(&container.node) {
            there.remove(&container.id);
            if there.is_empty() {
                self.by_node.remove(&container.node);
            }
        }
    }
}

fn publish(container: &Container, batch: &mut Batch<Rows>) {
    let id = container.id.as_str();
    batch.publish(CONTAINERS, "", id, &container.entry());
    match container.desired() {
        Some(entry) => batch.publish(DESIRED, container.node.as_str(), id, &entry),
        None => batch.withdraw(DESIRED, container.node.as_str(), id),
    }
}

#[cfg(test)]
mod tests;
