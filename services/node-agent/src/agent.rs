//! The one place where the agent acts: news and wishes come in, `reconcile` decides, the journal
//! remembers, the runtime obeys, and the board shows the result to whoever reports it.
//!
//! Invariants: an intent is on disk before the runtime hears of it (I3); an end is in the journal
//! before the board shows it, unless the disk refuses (I6, F29); the board is complete only after
//! the machine and the journal have been looked through; what must end ends whatever the disk says.

mod actions;
mod containers;
mod recovery;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{DesiredEntry, Goal as WireGoal};
use hayward_node_agent_domain::{Doubt, Goal, Phase, Picture, Record, Tenure, Wanted, reconcile};
use hayward_service::Shutdown;
use hayward_vocabulary::{AllocationId, Size};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::fault_points::{self, Point};
use crate::follow::{Position, Update};
use crate::journal::{Journal, Opened};
use crate::lease::boottime_ms;
use crate::output_tail;
use crate::runtime::{Event, News, Runtime};
use containers::Known;

pub use containers::Board;
pub use traces::Lives;

/// After a refusal of the disk.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// While exclusive work waits for the lease of the node.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// On top of the graces when everything is ended at the exit.
const LAST_MARGIN: Duration = Duration::from_secs(5);
/// News and wishes taken in before acting.
const AT_ONCE: usize = 256;

pub struct Agent {
    runtime: Arc<dyn Runtime>,
    journal: Arc<Mutex<Journal>>,
    boot_id: String,
    known: BTreeMap<AllocationId, Known>,
    desired: BTreeMap<AllocationId, DesiredEntry>,
    seen_in_full: bool,
    /// Why the first full set is doubtful, if it is.
    doubt: Option<Doubt>,
    doubtful: BTreeMap<AllocationId, Doubt>,
    cursor: Option<String>,
    /// Newest position obeyed by this agent or one before it, to tell another history by.
    obeyed: Option<Position>,
    /// The journal refuses, for this reason.
    trouble: Option<String>,
    board: watch::Sender<Board>,
    tenure: watch::Receiver<Option<Tenure>>,
    /// Beginning of the tenure that was seen last.
    leased_since: Option<u64>,
    overtaken: BTreeSet<AllocationId>,
    /// Something is to be tried again.
    again: Option<Duration>,
    lives: Lives,
}

/// Where the agent hears from.
pub struct Ears {
    pub updates: mpsc::Receiver<Update>,
    pub news: mpsc::Receiver<News>,
}

impl Agent {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        opened: Opened,
        boot_id: String,
        board: watch::Sender<Board>,
        (tenure, lives): (watch::Receiver<Option<Tenure>>, Lives),
    ) -> anyhow::Result<Self> {
        let found = runtime.recover()?;
        let obeyed = opened.obeyed();
        let mut agent = Self {
            runtime,
            journal: Arc::new(Mutex::new(opened.journal)),
            boot_id,
            known: BTreeMap::new(),
            desired: BTreeMap::new(),
            seen_in_full: false,
            doubt: opened.doubt,
            doubtful: BTreeMap::new(),
            cursor: None,
            obeyed,
            trouble: None,
            board,
            tenure,
            leased_since: None,
            overtaken: BTreeSet::new(),
            again: None,
            lives,
        };
        agent.remember(opened.past, found)?;
        if let Some(doubt) = agent.doubt {
            tracing::warn!(?doubt, "what the journal may have forgotten is not started");
        }
        agent.show();
        Ok(agent)
    }

    /// Until the stop; then, if it is so wished, until every container has ended.
    pub async fn run(mut self, mut ears: Ears, stop: Shutdown, end_containers: bool) {
        loop {
            let again = self.again;
            tokio::select! {
                Some(update) = ears.updates.recv() => {
                    // Before it: what is news now was not there when a lease ran out.
                    self.notice_tenure();
                    fault_points::pass(Point::AbsorbBefore);
                    self.absorb(update);
                    fault_points::pass(Point::AbsorbAfter);
                }
                Some(news) = ears.news.recv() => self.hear(news, &mut ears.news).await,
                Ok(()) = self.tenure.changed() => self.notice_tenure(),
                () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
                () = stop.wait() => break,
            }
            self.act().await;
            self.show();
        }
        if end_containers {
            self.end_all(ears).await;
        }
    }

    async fn end_all(&mut self, mut ears: Ears) {
        let live: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| known.actual.phase.is_live())
            .map(|(id, _)| id.clone())
            .collect();
        let grace = live
            .iter()
            .filter_map(|id| Some(self.desired.get(id)?.launch.stop_grace_ms))
            .max()
            .unwrap_or(10_000);
        for id in &live {
            self.runtime.stop(id);
        }
        let limit = Duration::from_millis(grace) + LAST_MARGIN;
        let all_gone = async {
            while self
                .known
                .values()
                .any(|known| known.actual.phase.is_live())
            {
                let Some(news) = ears.news.recv().await else {
                    return;
                };
                self.hear(news, &mut ears.news).await;
                self.show();
            }
        };
        if tokio::time::timeout(limit, all_gone).await.is_err() {
            tracing::error!("some containers did not end in time");
        }
    }

    fn absorb(&mut self, update: Update) {
        if update.full {
            self.desired.clear();
        }
        for key in &update.removed {
            self.desired.remove(key.as_str());
        }
        for entry in update.changed.into_values() {
            self.lives.heard(&entry);
            self.desired.insert(entry.id.clone(), entry);
        }
        if update.full {
            let position = Position::parse(&update.cursor);
            let moved = position.as_ref().zip(self.obeyed.as_ref());
            if moved.is_some_and(|(now, obeyed)| !now.same_history(obeyed)) {
                self.doubt = Some(Doubt::OtherHistory);
            }
            self.obeyed = position.or(self.obeyed.take());
            self.seen_in_full = true;
            if let Some(doubt) = self.doubt.take() {
                let unknown = self
                    .desired
                    .keys()
                    .filter(|id| !self.known.contains_key(*id));
                self.doubtful = unknown.map(|id| (id.clone(), doubt)).collect();
            }
        }
        self.cursor = Some(update.cursor);
        let (desired, known) = (&self.desired, &self.known);
        self.lives
            .keep(|id| desired.contains_key(id) || known.contains_key(id));
    }

    /// After a gap between leases, what was ordered before it is not started any more.
    fn notice_tenure(&mut self) {
        let since = self
            .tenure
            .borrow_and_update()
            .map(|tenure| tenure.since_ms);
        if self.leased_since.is_some() && since != self.leased_since {
            self.overtaken = self.waiting().cloned().collect();
        }
        self.leased_since = since;
    }

    /// Exclusive work that is not started.
    fn waiting(&self) -> impl Iterator<Item = &AllocationId> {
        let waits = |(id, entry): &(&AllocationId, &DesiredEntry)| {
            entry.exclusive && entry.goal == WireGoal::Run && !self.known.contains_key(*id)
        };
        self.desired.iter().filter(waits).map(|(id, _)| id)
    }

    async fn hear(&mut self, first: News, more: &mut mpsc::Receiver<News>) {
        let mut batch = vec![first];
        while batch.len() < AT_ONCE
            && let Ok(news) = more.try_recv()
        {
            batch.push(news);
        }
        let records: Vec<Record> = batch
            .into_iter()
            .filter_map(|news| self.take_in(news))
            .collect();
        let ends = records
            .iter()
            .any(|record| matches!(record, Record::Ended { .. }));
        if self.write(records, ends).await.is_err() {
            tracing::error!("an end is reported without being journalled; its directory keeps it");
        }
    }

    fn take_in(&mut self, news: News) -> Option<Record> {
        let News {
            id,
            incarnation,
            event,
        } = news;
        let known = self.known.get_mut(&id)?;
        if known.actual.incarnation != incarnation || known.exit.is_some() {
            return None;
        }
        match event {
            Event::Started { pid, at } => {
                (known.pid, known.started_at) = (Some(pid).filter(|pid| *pid > 0), Some(at));
                if known.actual.phase == Phase::Launching {
                    known.actual.phase = Phase::Running;
                }
                self.lives.started(&id);
                Some(Record::Started {
                    id,
                    incarnation,
                    pid,
                    at: Some(at),
                })
            }
            Event::Stuck(why) => {
                // F31: it keeps its room, and is not called ended.
                tracing::error!(container = %id, %why, "it cannot be ended");
                known.actual.phase = Phase::Stopping;
                known.reason = Some(why);
                None
            }
            Event::Ended(mut exit) => {
                output_tail::add(self.runtime.as_ref(), &id, &mut exit);
                self.lives.ended(&id, &exit);
                let _here = self.lives.place(&id).map(|place| place.enter());
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

    async fn act(&mut self) {
        self.again = None;
        // Forgetting an old incarnation makes room for the next one: one more look.
        for _ in 0..3 {
            let actions = reconcile(&self.picture());
            if actions.is_empty() {
                break;
            }
            if !self.obey(actions).await {
                self.again = Some(TRY_AGAIN);
                return;
            }
        }
        if self.trouble.is_some() {
            self.probe().await;
            self.again = self.trouble.is_some().then_some(TRY_AGAIN);
            return;
        }
        let waits = self.waiting().next().is_some();
        self.again = waits.then_some(LOOK_AGAIN);
    }

    fn picture(&self) -> Picture {
        let wanted = |entry: &DesiredEntry| Wanted {
            incarnation: entry.incarnation,
            epoch: entry.epoch,
            goal: match entry.goal {
                WireGoal::Run => Goal::Run,
                WireGoal::Stop => Goal::Stop,
                WireGoal::Unknown => Goal::Hold,
            },
            exclusive: entry.exclusive,
        };
        let tenure = *self.tenure.borrow();
        Picture {
            desired: self
                .desired
                .iter()
                .map(|(id, entry)| (id.clone(), wanted(entry)))
                .collect(),
            seen_in_full: self.seen_in_full,
            actual: self
                .known
                .iter()
                .map(|(id, known)| (id.clone(), known.actual))
                .collect(),
            doubtful: self.doubtful.keys().cloned().collect(),
            leased: tenure.is_some_and(|tenure| tenure.may_start(boottime_ms())),
            overtaken: self.overtaken.clone(),
        }
    }

    /// A machine that cannot end what it has should not be given more.
    fn stuck(&self) -> Option<String> {
        let mut live = self.known.iter().filter(|(_, known)| known.exit.is_none());
        let (id, why) = live.find_map(|(id, known)| Some((id, known.reason.as_ref()?)))?;
        Some(format!("{id} cannot be ended: {why}"))
    }

    fn show(&self) {
        let containers = self.known.iter().map(|(id, known)| known.report(id));
        let mut granted = Size::default();
        for (id, known) in &self.known {
            if let Some(entry) = self
                .desired
                .get(id)
                .filter(|_| known.actual.phase.is_live())
            {
                granted.add(&entry.size);
            }
        }
        self.board.send_replace(Board {
            cursor: self.cursor.clone(),
            complete: true,
            containers: Arc::new(containers.collect()),
            granted,
            trouble: self.trouble.clone().or_else(|| self.stuck()),
        });
    }
}
