//! State of node-status in memory: the nodes with their last judgements, the pools with their
//! brakes, and the times of the next checks. Changes are written to rows and to the publication
//! `nodes` in one transaction.
//!
//! Invariants:
//!
//! * A node is in `due` at most once, at its `due_ms`.
//! * `pools` counts exactly the nodes in `nodes`.
//! * The judgement of a node holds, so that unchanged heartbeats bypass the ledger, only while the
//!   node is responsive, has no conflict of agents and is not being drained.

mod enrolments;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_node_status_api::NodeEntry;
use hayward_node_status_domain::Brake;
use hayward_publication::{Batch, DryRunSupport, Followed, Moment, Wake};
use hayward_rm_scheduler_api::node_publications::{ClearingEntry, MachineEntry};
use hayward_service::metrics::Reading;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use self::enrolments::Enrolments;
use crate::command::Command;
use crate::context::Context;
use crate::error::Refusal;
use crate::metrics::{self, NodeReading};
use crate::model::{ClaimLimits, Drain, Node};
use crate::store::{self, Rows};

#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// Milliseconds by which the clock of the heartbeats is ahead of the clock of the term.
    pub(crate) clock_offset_ms: u64,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) pools: BTreeMap<String, PoolState>,
    /// Time of the next check of each node, in milliseconds.
    pub(crate) due: BTreeSet<(u64, NodeName)>,
    /// Pools that changed since their brake was last judged.
    pub(crate) dirty_pools: BTreeSet<String>,
    pub(crate) enrolments: Enrolments,
    /// Limits of the claims of each node with an enrolment limit (S15).
    pub(crate) claim_limits: BTreeMap<NodeName, ClaimLimits>,
    /// The last drain of each node.
    pub(crate) drains: BTreeMap<NodeName, Drain>,
    /// Time of the next check of each drain, by wall clock like its deadline.
    pub(crate) drain_checks: BTreeSet<(Timestamp, NodeName)>,
    /// Progress of drains and evacuations, published by rm-scheduler.
    pub(crate) clearings: Followed<ClearingEntry>,
    /// Nodes with their pools by policy, published by rm-scheduler.
    pub(crate) scheduler_nodes: Followed<MachineEntry>,
}

/// State loaded at the start of a term.
#[derive(Default)]
pub(crate) struct StoredState {
    pub nodes: Vec<Node>,
    pub enrolments: Enrolments,
    pub claim_limits: BTreeMap<NodeName, ClaimLimits>,
    pub drains: BTreeMap<NodeName, Drain>,
}

/// Counts of a pool, for its brake (B1).
#[derive(Clone, Default)]
pub(crate) struct PoolState {
    pub size: usize,
    /// Silent nodes of this term, with the time of their loss of contact.
    pub silent: BTreeMap<NodeName, u64>,
    pub brake: Brake,
}

impl Ledger {
    /// Returns the current time on the clock of the heartbeats.
    pub(crate) fn now_ms(&self, moment: &Moment) -> u64 {
        moment.monotonic_ms.saturating_add(self.clock_offset_ms)
    }

    pub(crate) fn from_stored(
        context: &Arc<Context>,
        moment: &Moment,
        stored: StoredState,
    ) -> Self {
        let began_ms = context.heartbeats.begin_term(
            stored
                .nodes
                .iter()
                .map(|node| (node.name.clone(), node.heartbeat.clone())),
        );
        let mut ledger = Self {
            context: context.clone(),
            clock_offset_ms: began_ms.saturating_sub(moment.monotonic_ms),
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            due: BTreeSet::new(),
            dirty_pools: BTreeSet::new(),
            enrolments: stored.enrolments,
            claim_limits: stored.claim_limits,
            drains: stored.drains,
            drain_checks: BTreeSet::new(),
            clearings: Followed::default(),
            scheduler_nodes: Followed::default(),
        };
        for mut node in stored.nodes {
            node.agents.restart_watch(began_ms);
            node.claim_limits = Some(ledger.limits_of(&node.name));
            ledger.add(node, began_ms);
        }
        for (name, drain) in &mut ledger.drains {
            drain.next_check = drain.next_check_at(moment.now);
            if let Some(next_check) = drain.next_check {
                ledger.drain_checks.insert((next_check, name.clone()));
            }
        }
        ledger
    }

    /// Returns a copy for dry runs. The copy shares no state that a command changes.
    fn detached_copy(&self) -> Self {
        let heartbeats = self.context.heartbeats.copy();
        let mut copy = self.clone();
        for node in copy.nodes.values_mut() {
            node.heartbeat = heartbeats.get(node.name.as_str()).unwrap_or_default();
        }
        copy.context = Arc::new(Context {
            heartbeats,
            guards: self.context.guards.clone(),
            ..*self.context
        });
        copy
    }

    /// Returns the published entry of a node.
    pub(crate) fn entry_of(&self, name: &NodeName) -> Result<NodeEntry, Refusal> {
        self.nodes
            .get(name)
            .map(|node| node.entry(self.active_drain(name)))
            .ok_or_else(|| Refusal::NoNode(name.clone()))
    }

    /// Adds a node, to be judged in the next round.
    pub(crate) fn add(&mut self, mut node: Node, now_ms: u64) {
        node.watch_began_ms = now_ms;
        node.due_ms = Some(now_ms);
        self.due.insert((now_ms, node.name.clone()));
        let brake_pool = node.brake_pool().to_owned();
        self.pools.entry(brake_pool).or_default().size += 1;
        self.nodes.insert(node.name.clone(), node);
    }
}

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Context;

    async fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Context>,
    ) -> Result<Self, sqlx::Error> {
        let stored = StoredState {
            nodes: store::load_nodes(tx).await?,
            enrolments: store::load_enrolments(tx).await?.into_iter().collect(),
            claim_limits: store::load_limits(tx).await?,
            drains: store::load_drains(tx).await?,
        };
        Ok(Self::from_stored(context, moment, stored))
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Heartbeat { received, reply } => {
                let result = self.heartbeat(*received, moment, batch);
                batch.answer(reply, result);
            }
            Command::Vary { request, reply } => {
                let result = self.vary(request, moment, batch);
                batch.answer(reply, result);
            }
            Command::Remove { node, by, reply } => {
                let result = self.remove(&node, &by, moment, batch);
                batch.answer(reply, result);
            }
            Command::Identify { request, reply } => {
                let result = self.identify(request, moment, batch);
                batch.answer(reply, result);
            }
            Command::Drain { request, reply } => {
                let result = self.drain(request, moment, batch);
                batch.answer(reply, result);
            }
            Command::CancelDrain { node, by, reply } => {
                let result = self.cancel_drain(&node, &by, moment, batch);
                batch.answer(reply, result);
            }
            Command::ShowDrain { node, reply } => {
                batch.answer(reply, self.show_drain(&node, moment));
            }
            Command::Clearings { update, reply } => {
                self.apply_clearings(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Machines { update, reply } => {
                self.apply_machines(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Enrol { enrolment, reply } => {
                let result = self.enrol(enrolment, moment, batch);
                batch.answer(reply, result);
            }
            Command::Redeem {
                node,
                secret_digest,
                reply,
            } => {
                let result = self.redeem(&node, &secret_digest, moment, batch);
                batch.answer(reply, result);
            }
            Command::Invariants(reply) => batch.answer(reply, self.check_invariants(moment)),
        }
    }

    /// Allows dry runs of the commands of operators on a copy. A dry run of an enrolment would
    /// return an unusable secret.
    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Vary { .. }
            | Command::Remove { .. }
            | Command::Identify { .. }
            | Command::Drain { .. }
            | Command::CancelDrain { .. } => DryRunSupport::OnCopy(Box::new(self.detached_copy())),
            _ => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.check_drain_deadlines(moment, batch);
        self.judge_all_due(moment, batch)
    }

    fn readings(&self, _moment: &Moment) -> Vec<Reading> {
        let nodes = self.nodes.values().map(|node| NodeReading {
            node,
            is_draining: self.active_drain(&node.name).is_some(),
            silent_ms: self.context.heartbeats.silence_ms(&node.heartbeat),
        });
        let brake_is_on = |pool: &str| self.pools.get(pool).is_some_and(|it| it.brake.is_on());
        metrics::readings(nodes, brake_is_on, self.context.guards.pool_floor)
    }

    fn count_changes(rows: &Rows) -> usize {
        rows.row_count()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
