//! The working set of rm-scheduler, and the three ways it changes: someone asked
//! ([`crate::commands`]), news came ([`crate::absorb`]), time to decide ([`crate::round`]).
//!
//! The snapshot a round plans from is kept up to date entry by entry, so a round costs no
//! translation of the whole fleet, and what changed in it is noted, so it costs no reading of the
//! whole fleet either. What is followed is not copied into rows: a new term asks its
//! neighbours for everything and plans nothing before each has answered once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::ContainerEntry;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Followed, Moment, Reply, Update, Wake};
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::views::{LedgerLine, RoundView};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS, VerdictEntry};
use hayward_rm_scheduler_domain::{News, Rounds, Snapshot, Verdict, plan, snapshot};
use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId};
use parking_lot::RwLock;
use sqlx::PgConnection;

use crate::config::Settings;
use crate::error::Refusal;
use crate::store::{self, Rows};
use crate::translate;

pub const JOB_CONVERTER: &str = "job-converter";

/// An allocation and what only the scheduler needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub entry: AllocationEntry,
    /// Not preemptable.
    pub fixed: bool,
    /// The gpus of its node it sits on.
    pub gpus: Vec<u64>,
}

/// What readers see that is not published: refreshed when a batch is committed.
#[derive(Debug, Default)]
pub struct View {
    pub policy: PolicyView,
    /// Absent until the first round.
    pub counted: Option<Counted>,
    /// Newest last.
    pub rounds: VecDeque<RoundView>,
}

/// The arithmetic of the newest round, and the fairness ledger up to `at`.
#[derive(Debug, Default)]
pub struct Counted {
    pub round: u64,
    pub at: Timestamp,
    pub shares: plan::Shares,
    pub ledger: Vec<LedgerLine>,
}

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<View>,
}

pub enum Command {
    Nodes(Update<NodeEntry>, Reply<()>),
    Demand(Update<DemandEntry>, Reply<()>),
    Blocks(Update<BlockEntry>, Reply<()>),
    Containers(Update<ContainerEntry>, Reply<()>),
    SetPolicy(
        Box<crate::commands::SetPolicy>,
        Reply<Result<PolicyView, Refusal>>,
    ),
}

pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) policy: PolicyView,
    pub(crate) nodes: Followed<NodeEntry>,
    pub(crate) demand: Followed<DemandEntry>,
    pub(crate) blocks: Followed<BlockEntry>,
    pub(crate) containers: Followed<ContainerEntry>,
    pub(crate) allocations: BTreeMap<AllocationId, Held>,
    pub(crate) by_work: BTreeMap<WorkId, BTreeSet<AllocationId>>,
    pub(crate) incarnations: BTreeMap<WorkId, u64>,
    /// As published.
    pub(crate) verdicts: BTreeMap<WorkId, VerdictEntry>,
    /// What the next round plans from.
    pub(crate) snapshot: Snapshot,
    /// What of it the rounds have not seen yet.
    pub(crate) unplanned: News,
    pub(crate) rounds: Rounds,
    /// The next round says everything, and not just what changed.
    pub(crate) says_all: bool,
    /// Verdicts that changed and wait for their turn to be published.
    pub(crate) unsaid: BTreeMap<WorkId, Verdict>,
    /// Ends of blocks, so that each counts exactly until its end.
    pub(crate) block_ends: BTreeSet<(Timestamp, String)>,
    pub(crate) usage: BTreeMap<(UserName, String), LedgerLine>,
    /// What each user holds and is due since the last accounting: (due, held) in quanta.
    pub(crate) rates: BTreeMap<(UserName, String), (u64, u64)>,
    pub(crate) accounted_ms: u64,
    pub(crate) usage_written_ms: u64,
    pub(crate) round: u64,
    pub(crate) last_round_ms: Option<u64>,
    /// What the last round cost.
    pub(crate) cost_ms: u64,
    /// The neighbour that has not been heard for too long.
    pub(crate) silent: Option<&'static str>,
    /// Something happened since the last round that a plan could depend on.
    pub(crate) news: bool,
}

impl Ledger {
    /// Every neighbour has answered once in this term: no news of nodes is not news of no nodes.
    pub(crate) fn informed(&self) -> bool {
        self.nodes.heard() && self.demand.heard() && self.blocks.heard() && self.containers.heard()
    }

    pub(crate) fn stale(&self, now_ms: u64) -> Option<&'static str> {
        let limit = self.context.settings.stale_ms;
        [
            ("node-status", self.nodes.stale(now_ms, limit)),
            (JOB_CONVERTER, self.demand.stale(now_ms, limit)),
            ("blocklist", self.blocks.stale(now_ms, limit)),
            ("container-manager", self.containers.stale(now_ms, limit)),
        ]
        .into_iter()
        .find_map(|(name, stale)| stale.then_some(name))
    }

    /// Sets an allocation in memory, in the snapshot, in the rows and in `allocations`.
    pub(crate) fn put(&mut self, held: Held, batch: &mut Batch<Rows>) {
        let id = held.entry.id.clone();
        self.by_work
            .entry(held.entry.work.clone())
            .or_default()
            .insert(id.clone());
        let seen = held.entry.holds().then(|| translate::allocation(&held));
        self.unplanned.allocations.insert(id.clone());
        let before = match seen.clone() {
            Some(seen) => self.snapshot.allocations.insert(id.clone(), seen),
            None => self.snapshot.allocations.remove(&id),
        };
        // That it came to run matters for who is taken back first, and asks for no new round.
        let meaning = |seen: Option<snapshot::Allocation>| {
            seen.map(|seen| snapshot::Allocation {
                running: false,
                running_since: None,
                ..seen
            })
        };
        self.news |= meaning(seen) != meaning(before);
        batch.publish(ALLOCATIONS, "", id.as_str(), &held.entry);
        batch.rows.allocations.insert(id.clone(), held.clone());
        self.allocations.insert(id, held);
    }

    /// Buries an ended allocation once the rung above has let go of it: its work is withdrawn, or
    /// lists it as settled.
    pub(crate) fn bury_if_settled(&mut self, id: &AllocationId, batch: &mut Batch<Rows>) {
        let Some(held) = self.allocations.get(id) else {
            return;
        };
        let demand = self.demand.get(held.entry.work.as_str());
        let settled = demand.is_none_or(|demand| demand.settled.contains(id));
        if held.entry.holds() || !settled || !self.demand.heard() {
            return;
        }
        let work = held.entry.work.clone();
        self.allocations.remove(id);
        batch.withdraw(ALLOCATIONS, "", id.as_str());
        batch.rows.allocations.remove(id);
        batch.rows.buried.insert(id.clone());
        if let Some(siblings) = self.by_work.get_mut(&work) {
            siblings.remove(id);
            if siblings.is_empty() {
                self.by_work.remove(&work);
            }
        }
        self.forget_work_if_over(&work, batch);
    }

    /// Drops what is remembered of work that is withdrawn and holds nothing any more.
    pub(crate) fn forget_work_if_over(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        if self.demand.get(work.as_str()).is_some() || self.by_work.contains_key(work) {
            return;
        }
        if self.incarnations.remove(work).is_some() {
            batch.rows.incarnations.remove(work);
            batch.rows.forgotten_work.insert(work.clone());
        }
    }

    pub(crate) fn next_incarnation(&mut self, work: &WorkId, batch: &mut Batch<Rows>) -> u64 {
        let last = self.incarnations.entry(work.clone()).or_default();
        *last += 1;
        batch.rows.incarnations.insert(work.clone(), *last);
        batch.rows.forgotten_work.remove(work);
        *last
    }

    pub(crate) fn withdraw_verdict(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        self.unsaid.remove(work);
        if self.verdicts.remove(work).is_some() {
            batch.withdraw(VERDICTS, "", work.as_str());
        }
    }

    pub(crate) fn set_policy(&mut self, policy: PolicyView) {
        translate::policy(&policy.policy, &mut self.snapshot);
        self.snapshot.tunables.cycle_ms = self.context.settings.round_max_ms;
        self.policy = policy;
        for (_, entry) in self.nodes.iter() {
            let node = translate::node(entry, &self.blocks, &self.snapshot);
            self.unplanned.nodes.insert(entry.node.clone());
            self.snapshot.nodes.insert(entry.node.clone(), node);
        }
        self.news = true;
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
        let policy = store::policies::newest(&mut *tx)
            .await?
            .unwrap_or(PolicyView {
                generation: 0,
                policy: Policy::default(),
            });
        let rounds = store::rounds::load(&mut *tx).await?;
        let usage = store::usage::load(&mut *tx).await?;
        let mut ledger = Self {
            context: context.clone(),
            policy: PolicyView::default(),
            nodes: Followed::default(),
            demand: Followed::default(),
            blocks: Followed::default(),
            containers: Followed::default(),
            allocations: store::allocations::load(&mut *tx).await?,
            by_work: BTreeMap::new(),
            incarnations: store::allocations::load_incarnations(&mut *tx).await?,
            verdicts: store::verdicts::load(&mut *tx).await?,
            snapshot: translate::empty_snapshot(),
            unplanned: News::everything(),
            rounds: Rounds::default(),
            says_all: true,
            unsaid: BTreeMap::new(),
            block_ends: BTreeSet::new(),
            usage: usage
                .into_iter()
                .map(|line| ((line.user.clone(), line.class.clone()), line))
                .collect(),
            rates: BTreeMap::new(),
            accounted_ms: moment.monotonic_ms,
            usage_written_ms: moment.monotonic_ms,
            round: rounds.last().map_or(0, |round| round.round),
            last_round_ms: None,
            cost_ms: 0,
            silent: None,
            news: true,
        };
        for held in ledger.allocations.values() {
            let entry = &held.entry;
            ledger
                .by_work
                .entry(entry.work.clone())
                .or_default()
                .insert(entry.id.clone());
            if entry.holds() {
                ledger
                    .snapshot
                    .allocations
                    .insert(entry.id.clone(), translate::allocation(held));
            }
        }
        ledger.set_policy(policy);
        let mut view = context.view.write();
        view.policy = ledger.policy.clone();
        view.rounds = rounds.into();
        drop(view);
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Nodes(update, reply) => {
                self.absorb_nodes(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Demand(update, reply) => {
                self.absorb_demand(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Blocks(update, reply) => {
                self.absorb_blocks(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Containers(update, reply) => {
                self.absorb_containers(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::SetPolicy(change, reply) => {
                let answer = self.change_policy(*change, moment, batch);
                batch.answer(reply, answer);
            }
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.take_round(moment, batch)
    }

    fn is_empty(rows: &Rows) -> bool {
        rows.is_empty()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        rows.write(tx).await
    }
}
