//! The working set: every node as last judged, every pool's brake, and when each node has to be
//! looked at again. What it decides goes to rows and into `nodes` in one transaction.
//!
//! Invariants: a node is in `due` at most once, at its `due_ms`; `pools` counts exactly the nodes
//! in `nodes`; a pulse is calm only while the node is well and nothing about it is undecided.

mod enrolments;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_node_status_api::NodeEntry;
use hayward_node_status_domain::Brake;
use hayward_publication::{Batch, Followed, Moment, Trial, Wake};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, MachineEntry};
use hayward_service::metrics::Reading;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use self::enrolments::Enrolments;
use crate::command::Command;
use crate::context::Context;
use crate::error::Refusal;
use crate::metrics::{self, NodeReading};
use crate::model::{Bounds, Drain, Node};
use crate::store::{self, Rows};

#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// What the clock of the pulses showed when that of the term showed zero.
    pub(crate) ahead_ms: u64,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) due: BTreeSet<(u64, NodeName)>,
    /// Pools whose silence changed since their brake was last judged.
    pub(crate) stirred: BTreeSet<String>,
    pub(crate) enrolments: Enrolments,
    /// The most each node may claim, where that was said (S15).
    pub(crate) bounds: BTreeMap<NodeName, Bounds>,
    /// The last drain of each node.
    pub(crate) drains: BTreeMap<NodeName, Drain>,
    /// When a drain has to be looked at without news, by the wall clock: deadlines are set by it.
    pub(crate) deadlines: BTreeSet<(Timestamp, NodeName)>,
    pub(crate) clearings: Followed<ClearingEntry>,
    pub(crate) machines: Followed<MachineEntry>,
}

/// What is read when a term begins.
#[derive(Default)]
pub(crate) struct Stored {
    pub nodes: Vec<Node>,
    pub enrolments: Enrolments,
    pub bounds: BTreeMap<NodeName, Bounds>,
    pub drains: BTreeMap<NodeName, Drain>,
}

/// What the brake of a pool looks at (B1).
#[derive(Clone, Default)]
pub(crate) struct Pool {
    pub size: usize,
    /// Since when nodes are silent that fell silent in this term.
    pub silent: BTreeMap<NodeName, u64>,
    pub brake: Brake,
}

impl Ledger {
    /// Now, on the clock of the pulses.
    pub(crate) fn now_ms(&self, moment: &Moment) -> u64 {
        moment.monotonic_ms.saturating_add(self.ahead_ms)
    }

    pub(crate) fn of(context: &Arc<Context>, moment: &Moment, stored: Stored) -> Self {
        let began_ms = context.pulses.begin(
            stored
                .nodes
                .iter()
                .map(|node| (node.name.clone(), node.pulse.clone())),
        );
        let mut ledger = Self {
            context: context.clone(),
            ahead_ms: began_ms.saturating_sub(moment.monotonic_ms),
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            due: BTreeSet::new(),
            stirred: BTreeSet::new(),
            enrolments: stored.enrolments,
            bounds: stored.bounds,
            drains: stored.drains,
            deadlines: BTreeSet::new(),
            clearings: Followed::default(),
            machines: Followed::default(),
        };
        for mut node in stored.nodes {
            node.twins.seen_at(began_ms);
            node.bounds = Some(ledger.may_claim(&node.name));
            ledger.add(node, began_ms);
        }
        for (name, drain) in &mut ledger.drains {
            drain.look = drain.look_at(moment.now);
            if let Some(at) = drain.look {
                ledger.deadlines.insert((at, name.clone()));
            }
        }
        ledger
    }

    /// A copy that shares nothing with this one that a command changes (A10).
    fn apart(&self) -> Self {
        let pulses = self.context.pulses.copy();
        let mut copy = self.clone();
        for node in copy.nodes.values_mut() {
            node.pulse = pulses.get(node.name.as_str()).unwrap_or_default();
        }
        copy.context = Arc::new(Context {
            pulses,
            guards: self.context.guards.clone(),
            ..*self.context
        });
        copy
    }

    /// A node as everybody may know it.
    pub(crate) fn entry_of(&self, name: &NodeName) -> Result<NodeEntry, Refusal> {
        self.nodes
            .get(name)
            .map(|node| node.entry(self.lasting_drain(name)))
            .ok_or_else(|| Refusal::NoNode(name.clone()))
    }

    /// Takes a node in, to be judged in the next round.
    pub(crate) fn add(&mut self, mut node: Node, now_ms: u64) {
        node.watched_since_ms = now_ms;
        node.due_ms = Some(now_ms);
        self.due.insert((now_ms, node.name.clone()));
        let counted_in = node.counted_in().to_owned();
        self.pools.entry(counted_in).or_default().size += 1;
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
        let stored = Stored {
            nodes: store::load_nodes(tx).await?,
            enrolments: store::load_enrolments(tx).await?.into_iter().collect(),
            bounds: store::load_limits(tx).await?,
            drains: store::load_drains(tx).await?,
        };
        Ok(Self::of(context, moment, stored))
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Heartbeat {
                node,
                beat,
                digest,
                reply,
            } => {
                let answer = self.heartbeat((node, *beat, digest), moment, batch);
                batch.answer(reply, answer);
            }
            Command::Vary {
                node,
                change,
                by,
                reply,
            } => {
                let answer = self.vary((&node, change, by), moment, batch);
                batch.answer(reply, answer);
            }
            Command::Remove { node, by, reply } => {
                let answer = self.remove((&node, &by), moment, batch);
                batch.answer(reply, answer);
            }
            Command::Identify {
                node,
                instance,
                by,
                reply,
            } => {
                let answer = self.identify((&node, instance, by), moment, batch);
                batch.answer(reply, answer);
            }
            Command::Drain {
                node,
                request,
                by,
                reply,
            } => {
                let answer = self.drain((&node, request, by), moment, batch);
                batch.answer(reply, answer);
            }
            Command::CancelDrain { node, by, reply } => {
                let answer = self.cancel_drain((&node, &by), moment, batch);
                batch.answer(reply, answer);
            }
            Command::ShowDrain { node, reply } => {
                batch.answer(reply, self.show_drain(&node, moment));
            }
            Command::Clearings { update, reply } => {
                self.absorb_clearings(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Machines { update, reply } => {
                self.absorb_machines(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Enrol { asked, reply } => {
                let answer = self.enrolments.enrol(asked, moment.now, &mut batch.rows);
                batch.answer(reply, answer);
            }
            Command::Redeem {
                node,
                secret_digest,
                reply,
            } => {
                let answer = self.redeem((&node, &secret_digest), moment, batch);
                batch.answer(reply, answer);
            }
            Command::Invariants(reply) => batch.answer(reply, self.report(moment)),
        }
    }

    /// What operators order of nodes is tried on a copy. Enrolments are not: their answer is a
    /// secret that would be good for nothing.
    fn trial(&self, command: &Command) -> Trial<Self> {
        match command {
            Command::Vary { .. }
            | Command::Remove { .. }
            | Command::Identify { .. }
            | Command::Drain { .. }
            | Command::CancelDrain { .. } => Trial::OnACopy(Box::new(self.apart())),
            _ => Trial::Never,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.look_at_deadlines(moment, batch);
        self.judge_all_due(moment, batch)
    }

    fn readings(&self, _moment: &Moment) -> Vec<Reading> {
        let nodes = self.nodes.values().map(|node| NodeReading {
            node,
            is_draining: self.lasting_drain(&node.name).is_some(),
            silent_ms: self.context.pulses.silence_ms(&node.pulse),
        });
        let brake_is_on = |pool: &str| self.pools.get(pool).is_some_and(|it| it.brake.is_on());
        metrics::readings(nodes, brake_is_on, self.context.guards.pool_floor)
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
