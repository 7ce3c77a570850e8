//! The working set of rm-scheduler, and the three ways it changes: someone asked
//! ([`crate::commands`]), news came ([`crate::absorb`]), time to decide ([`crate::round`]).
//!
//! The snapshot a round plans from is kept up to date entry by entry, so a round costs no
//! translation of the whole fleet, and what changed in it is noted, so it costs no reading of the
//! whole fleet either. What is followed is not copied into rows: a new term asks its
//! neighbours for everything and plans nothing before each has answered once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::ContainerEntry;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Followed, Moment, Reply, Update, Wake};
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_rm_scheduler_api::policy::{Policy, PolicyAnswer, PolicyView};
use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS, VerdictEntry};
use hayward_rm_scheduler_domain::{Rounds, Snapshot, Verdict, plan, snapshot};
use hayward_rm_scheduler_policy::Rules;
use hayward_service::lengthy;
use hayward_vocabulary::{AllocationId, Receipt, Timestamp, UserName, WorkId};
use parking_lot::RwLock;
use sqlx::PgConnection;

use crate::carried::{self, Lines};
use crate::config::Settings;
use crate::error::Refusal;
use crate::load;
use crate::looks::{Asked, Look, Looks, Under, timed};
use crate::occupancy::{self, Wanted};
use crate::policy;
use crate::pools::{self, Bell, Pools};
use crate::receipts::Receipts;
use crate::recorder::Recorder;
use crate::store::{self, Rows};
use crate::tracked::Tracked;
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
    /// By number, which grows; told with the rounds that wrote them.
    pub receipts: BTreeMap<u64, Receipt>,
}

impl View {
    /// Newest first, each with its receipts as they stand.
    pub fn newest_rounds(&self, limit: usize) -> Vec<RoundView> {
        let mut receipts: BTreeMap<u64, Vec<Receipt>> = BTreeMap::new();
        for receipt in self.receipts.values() {
            let of_round = receipts.entry(receipt.round).or_default();
            of_round.push(receipt.clone());
        }
        let newest = self.rounds.iter().rev().take(limit);
        newest
            .map(|round| RoundView {
                receipts: receipts.remove(&round.round).unwrap_or_default(),
                ..round.clone()
            })
            .collect()
    }

    pub fn round(&self, round: u64) -> Option<RoundView> {
        let found = self.rounds.iter().find(|view| view.round == round)?;
        let receipts = self.receipts.values().filter(|it| it.round == round);
        Some(RoundView {
            receipts: receipts.cloned().collect(),
            ..found.clone()
        })
    }
}

/// The arithmetic of the newest round, and the fairness ledger up to `at`.
#[derive(Debug, Default)]
pub struct Counted {
    pub round: u64,
    pub at: Timestamp,
    pub shares: plan::Shares,
    /// With the numbers of this round; what is published keeps those it was published with.
    pub verdicts: BTreeMap<WorkId, Verdict>,
    pub ledger: Vec<LedgerLine>,
}

/// What a round counted and said otherwise than the one before.
pub struct CountedNews {
    /// Absent when all was read anew; then these are all the verdicts there are.
    pub shares: Option<plan::ShareNews>,
    pub verdicts: BTreeMap<WorkId, Verdict>,
    /// Work without a verdict any more.
    pub gone: Vec<WorkId>,
}

impl CountedNews {
    /// `all` are the shares, where all was read anew.
    pub fn tell(self, all: Option<plan::Shares>, counted: &mut Counted) {
        match self.shares {
            Some(news) => counted.shares.absorb(news),
            None => counted.verdicts.clear(),
        }
        if let Some(all) = all {
            counted.shares = all;
        }
        for work in &self.gone {
            counted.verdicts.remove(work);
        }
        counted.verdicts.extend(self.verdicts);
    }
}

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<View>,
    pub looks: Looks,
    pub pools: Bell,
}

pub enum Command {
    Nodes(Update<NodeEntry>, Reply<()>),
    Demand(Update<DemandEntry>, Reply<()>),
    Blocks(Update<BlockEntry>, Reply<()>),
    Containers(Update<ContainerEntry>, Reply<()>),
    /// What is asked for against what there is; nothing before the first round.
    Load(Reply<Option<Load>>),
    /// Who stands where.
    Occupancy(Box<Wanted>, Reply<Occupancy>),
    SetPolicy(
        Box<crate::commands::SetPolicy>,
        Reply<Result<PolicyAnswer, Refusal>>,
    ),
    /// A copy of the fleet as it is, and as it would be under another policy; with what it cost.
    /// Nothing before all neighbours have been heard.
    Look(Option<Box<Asked>>, Reply<Option<(Look, Duration)>>),
    /// Somebody asked about a worker pool, and is answered by what they asked.
    Pools(Box<pools::Act>),
}

pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) policy: PolicyView,
    /// The policy in the words of the planner.
    pub(crate) rules: Arc<Rules>,
    pub(crate) nodes: Followed<NodeEntry>,
    pub(crate) demand: Followed<DemandEntry>,
    pub(crate) blocks: Followed<BlockEntry>,
    pub(crate) containers: Followed<ContainerEntry>,
    pub(crate) allocations: BTreeMap<AllocationId, Held>,
    pub(crate) by_work: BTreeMap<WorkId, BTreeSet<AllocationId>>,
    pub(crate) incarnations: BTreeMap<WorkId, u64>,
    /// Worker pools, which ask for work of their own.
    pub(crate) pools: Pools,
    /// As published.
    pub(crate) verdicts: BTreeMap<WorkId, VerdictEntry>,
    pub(crate) receipts: Receipts,
    /// What is remembered from round to round, as it is in rows.
    pub(crate) lines: Lines,
    pub(crate) accounts_written_ms: u64,
    /// Some accounts are newer than their lines.
    pub(crate) accounts_wait: bool,
    /// What the next round plans from.
    pub(crate) snapshot: Tracked,
    pub(crate) rounds: Rounds,
    /// The next round says everything, and not just what changed.
    pub(crate) says_all: bool,
    /// Verdicts that changed and wait for their turn to be published.
    pub(crate) unsaid: BTreeMap<WorkId, Verdict>,
    /// Keeps what rounds were planned from.
    pub(crate) recorder: Recorder,
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
        let before = self.snapshot.set_allocation(&id, seen.clone());
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
        self.pools.notice(&held.entry);
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
        let wanted = self.demand.get(work.as_str()).is_some() || self.pools.wants(work);
        if wanted || self.by_work.contains_key(work) {
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

    fn look(&self, asked: Option<&Asked>) -> Look {
        let under = asked.map(|asked| {
            let in_use = if asked.drop_classes {
                BTreeSet::new()
            } else {
                self.classes_in_use()
            };
            let faults = policy::faults(&asked.policy, &in_use);
            if faults.is_empty() {
                let rules = Arc::new(Rules::of(&asked.policy));
                Ok(Under {
                    snapshot: self.under(&rules),
                    rules,
                })
            } else {
                Err(faults)
            }
        });
        Look {
            under,
            silent: self.silent,
            ..Look::of(&self.snapshot, self.rules.clone())
        }
    }

    /// The fleet as it would be under another policy.
    fn under(&self, rules: &Rules) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.snapshot);
        rules.write(&mut snapshot);
        snapshot.tunables.cycle_ms = self.context.settings.round_max_ms;
        for (_, entry) in self.nodes.iter() {
            let node = translate::node(entry, &self.blocks, snapshot.now, rules);
            snapshot.nodes.insert(entry.node.clone(), node);
        }
        snapshot
    }

    pub(crate) fn set_policy(&mut self, policy: PolicyView) {
        self.rules = Arc::new(Rules::of(&policy.policy));
        let changed = self.under(&self.rules);
        self.snapshot.rework(|snapshot| *snapshot = changed);
        self.policy = policy;
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
        let receipts = store::receipts::load(&mut *tx).await?;
        let usage = store::usage::load(&mut *tx).await?;
        let mut ledger = Self {
            context: context.clone(),
            policy: PolicyView::default(),
            rules: Arc::default(),
            nodes: Followed::default(),
            demand: Followed::default(),
            blocks: Followed::default(),
            containers: Followed::default(),
            allocations: store::allocations::load(&mut *tx).await?,
            by_work: BTreeMap::new(),
            incarnations: store::allocations::load_incarnations(&mut *tx).await?,
            pools: store::pools::load(&mut *tx, pools::rules(&context.settings))
                .await
                .map(Pools::loaded)?,
            verdicts: store::verdicts::load(&mut *tx).await?,
            receipts: Receipts::of(&receipts),
            lines: store::carried::load(&mut *tx).await?,
            accounts_written_ms: moment.monotonic_ms,
            accounts_wait: false,
            snapshot: Tracked::new(translate::empty_snapshot()),
            rounds: Rounds::default(),
            says_all: true,
            unsaid: BTreeMap::new(),
            recorder: Recorder::new(context.settings.inputs()),
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
                let seen = translate::allocation(held);
                ledger.snapshot.set_allocation(&entry.id, Some(seen));
            }
        }
        ledger.snapshot.set_carried(carried::restore(&ledger.lines));
        ledger.set_policy(policy);
        ledger.ask_for_all_workers();
        let mut view = context.view.write();
        view.policy = ledger.policy.clone();
        view.rounds = rounds.into();
        view.receipts = receipts;
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
            Command::Load(reply) => {
                let load = {
                    let view = self.context.view.read();
                    let counted = view.counted.as_ref();
                    counted.map(|counted| load::of(&self.snapshot, counted))
                };
                batch.answer(reply, load);
            }
            Command::Occupancy(wanted, reply) => {
                let page = occupancy::page(&self.snapshot, &self.allocations, &wanted);
                batch.answer(reply, page);
            }
            Command::SetPolicy(change, reply) => {
                let answer = self.change_policy(*change, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Look(policy, reply) => {
                let look = self.informed().then(|| {
                    self.snapshot.set_now(moment.now);
                    lengthy(|| timed(|| self.look(policy.as_deref())))
                });
                batch.answer(reply, look);
            }
            Command::Pools(asked) => asked(self, moment, batch),
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.tend_pools(moment, batch);
        let wake = self.take_round(moment, batch);
        self.tend_pools(moment, batch);
        self.wake_for_pools(wake, moment)
    }

    fn is_empty(rows: &Rows) -> bool {
        rows.is_empty()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        rows.write(tx).await
    }
}
