//! The working set: every node as last judged, every pool's brake, and when each node has to be
//! looked at again. What it decides goes to rows and into `nodes` in one transaction.
//!
//! Invariants: a node is in `due` at most once, at its `due_ms`; `pools` counts exactly the nodes
//! in `nodes`; a pulse is calm only while the node is well and nothing about it is undecided.

mod enrolments;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NodeEntry, Schedulable};
use hayward_node_status_domain::{Brake, Limits};
use hayward_publication::{Batch, Moment, Reply, Wake};
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

pub use self::enrolments::{Asked, Enrolment, Enrolments};
pub use self::node::Node;
use crate::error::Refusal;
use crate::pulses::Pulses;
use crate::store::{self, Rows};

/// What readers, handlers and the ledger share.
pub struct Context {
    pub pulses: Pulses,
    pub limits: Limits,
    pub heartbeat_ms: u64,
}

type Answer<T> = Reply<Result<T, Refusal>>;

pub enum Command {
    /// A heartbeat that is not the same as the last, or of a node that is not well.
    Heartbeat {
        node: NodeName,
        beat: Box<Heartbeat>,
        digest: u64,
        reply: Answer<HeartbeatAnswer>,
    },
    Vary {
        node: NodeName,
        change: Schedulable,
        by: String,
        reply: Answer<NodeEntry>,
    },
    Remove {
        node: NodeName,
        by: String,
        reply: Answer<()>,
    },
    Enrol {
        asked: Asked,
        reply: Answer<Timestamp>,
    },
    Redeem {
        node: NodeName,
        secret_digest: [u8; 32],
        reply: Answer<()>,
    },
}

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
}

/// What the brake of a pool looks at (B1).
#[derive(Default)]
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

    pub(crate) fn of(
        context: &Arc<Context>,
        moment: &Moment,
        nodes: Vec<Node>,
        enrolments: Enrolments,
    ) -> Self {
        let began_ms = context.pulses.begin(
            nodes
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
            enrolments,
        };
        for node in nodes {
            ledger.add(node, began_ms);
        }
        ledger
    }

    /// Takes a node in, to be judged in the next round.
    pub(crate) fn add(&mut self, mut node: Node, now_ms: u64) {
        node.watched_since_ms = now_ms;
        node.due_ms = Some(now_ms);
        self.due.insert((now_ms, node.name.clone()));
        self.pools.entry(node.pool.clone()).or_default().size += 1;
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
        let nodes = store::load_nodes(tx).await?;
        let enrolments = store::load_enrolments(tx).await?;
        Ok(Self::of(context, moment, nodes, enrolments))
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
                batch.answer(reply, Ok(answer));
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
                let answer = self.remove(&node, &by, batch);
                batch.answer(reply, answer);
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
                let enrolments = &mut self.enrolments;
                let answer = enrolments.redeem(&node, &secret_digest, moment.now, &mut batch.rows);
                batch.answer(reply, answer);
            }
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.judge_all_due(moment, batch)
    }

    fn is_empty(rows: &Rows) -> bool {
        rows.is_empty()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
