//! The one place where the agent acts: news and wishes come in, `reconcile` decides, the journal
//! remembers, the runtime obeys, and the board shows the result to whoever reports it.
//!
//! Invariants: an intent is on disk before the runtime hears of it (I3); an end is in the journal
//! before the board shows it, unless the disk refuses (I6, F29); the board is complete only after
//! the machine and the journal have been looked through; what must end ends whatever the disk says.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{DesiredEntry, Goal as WireGoal};
use hayward_node_agent_domain::{
    Action, Goal, Past, Phase, Picture, Record, Stage, Story, Tenure, Trace, Verdict, Wanted,
    journal, reconcile, refusal,
};
use hayward_service::Shutdown;
use hayward_vocabulary::{AllocationId, Size};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::follow::Update;
use crate::journal::{Journal, Opened};
use crate::last_words;
use crate::lease::boottime_ms;
use crate::runtime::{Container, Event, Found, News, Runtime};
use known::{Known, concluded};

pub use known::Board;

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
    /// The journal lost records: the first full set is doubtful.
    damaged: bool,
    doubtful: BTreeSet<AllocationId>,
    cursor: Option<String>,
    board: watch::Sender<Board>,
    tenure: watch::Receiver<Option<Tenure>>,
    /// Beginning of the tenure that was seen last.
    leased_since: Option<u64>,
    overtaken: BTreeSet<AllocationId>,
    /// Something is to be tried again.
    again: Option<Duration>,
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
        tenure: watch::Receiver<Option<Tenure>>,
    ) -> anyhow::Result<Self> {
        let found = runtime.recover()?;
        if opened.damaged {
            tracing::error!("the journal lost records; what it may have forgotten is not started");
        }
        let mut agent = Self {
            runtime,
            journal: Arc::new(Mutex::new(opened.journal)),
            boot_id,
            known: BTreeMap::new(),
            desired: BTreeMap::new(),
            seen_in_full: false,
            damaged: opened.damaged,
            doubtful: BTreeSet::new(),
            cursor: None,
            board,
            tenure,
            leased_since: None,
            overtaken: BTreeSet::new(),
            again: None,
        };
        agent.remember(opened.past, found)?;
        agent.show();
        Ok(agent)
    }

    /// Puts journal and machine together.
    fn remember(
        &mut self,
        past: Past,
        mut found: BTreeMap<AllocationId, Found>,
    ) -> anyhow::Result<()> {
        let mut stories = past.stories;
        for (id, found) in &found {
            // What the journal forgot, the directory remembers: it was made for this boot's agent.
            stories.entry(id.clone()).or_insert_with(|| Story {
                boot_id: self.boot_id.clone(),
                ..Story::new(found.incarnation, found.epoch)
            });
        }
        let mut records = Vec::new();
        for (id, mut story) in stories {
            let found = found
                .remove(&id)
                .filter(|found| found.incarnation == story.incarnation);
            if let Some(found) = &found {
                story.pid = story.pid.or(found.pid);
                story.started_at = story.started_at.or(found.started_at);
            }
            let trace = found.map_or(Trace::Untouched, |found| found.trace);
            let verdict = journal::judge(&story, trace, &self.boot_id);
            let Story {
                incarnation, epoch, ..
            } = story;
            let mut known = Known::new(incarnation, epoch, Phase::Launching);
            (known.pid, known.started_at) = (story.pid, story.started_at);
            match verdict {
                Verdict::Live if story.pid.is_some() => known.actual.phase = Phase::Running,
                Verdict::Live => {}
                Verdict::Ended(mut exit) => {
                    known.actual.phase = Phase::Ended;
                    if story.exit.is_none() {
                        last_words::add(self.runtime.as_ref(), &id, &mut exit);
                        records.push(Record::Ended {
                            id: id.clone(),
                            incarnation,
                            epoch,
                            exit: exit.clone(),
                        });
                    }
                    known.exit = Some(exit);
                }
            }
            self.known.insert(id, known);
        }
        self.journal.lock().append(&records, true)?;
        Ok(())
    }

    /// Until the stop; then, if it is so wished, until every container has ended.
    pub async fn run(mut self, mut ears: Ears, stop: Shutdown, end_containers: bool) {
        loop {
            let again = self.again;
            tokio::select! {
                Some(update) = ears.updates.recv() => {
                    // Before it: what is news now was not there when a lease ran out.
                    self.notice_tenure();
                    self.absorb(update);
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
            self.desired.insert(entry.id.clone(), entry);
        }
        if update.full && !self.seen_in_full {
            self.seen_in_full = true;
            if self.damaged {
                let unknown = self
                    .desired
                    .keys()
                    .filter(|id| !self.known.contains_key(*id));
                self.doubtful = unknown.cloned().collect();
            }
        }
        self.cursor = Some(update.cursor);
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
                Some(Record::Started {
                    id,
                    incarnation,
                    pid,
                    at: Some(at),
                })
            }
            Event::Ended(mut exit) => {
                last_words::add(self.runtime.as_ref(), &id, &mut exit);
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
            doubtful: self.doubtful.clone(),
            leased: tenure.is_some_and(|tenure| tenure.may_start(boottime_ms())),
            overtaken: self.overtaken.clone(),
        }
    }

    /// False when the disk refused: then what must end was ended all the same, and what was to be
    /// started has failed.
    async fn obey(&mut self, actions: Vec<Action>) -> bool {
        let is_stop = |action: &Action| matches!(action, Action::Stop { .. });
        let (stops, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_stop);
        for action in stops {
            self.carry_out(action);
        }
        let records = others
            .iter()
            .filter_map(|action| self.record(action))
            .collect();
        let written = self.write(records, true).await;
        let refused = written.is_err();
        for action in others {
            match (&written, action) {
                (Ok(()), action) => self.carry_out(action),
                (Err(error), Action::Start { id, incarnation }) => {
                    // Told from memory alone: whoever hears it takes the order back, and an agent
                    // that comes later and finds it still there has never started it (I3).
                    let why = format!("the journal cannot be written: {error}");
                    let exit = refusal(Stage::Own, error.raw_os_error(), why);
                    let epoch = epoch(&self.desired, &id);
                    self.known
                        .insert(id, Known::ended(incarnation, epoch, exit));
                }
                (Err(_), _) => {}
            }
        }
        !refused
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Start { id, incarnation } => self.start(id, incarnation),
            Action::Stop { id } => {
                if let Some(known) = self.known.get_mut(&id) {
                    known.actual.phase = Phase::Stopping;
                    known.actual.epoch = known.actual.epoch.max(epoch(&self.desired, &id));
                }
                self.runtime.stop(&id);
            }
            Action::Forget { id } => {
                self.known.remove(&id);
                self.runtime.forget(&id);
            }
            Action::Conclude {
                id,
                incarnation,
                cause,
            } => {
                let epoch = epoch(&self.desired, &id);
                self.doubtful.remove(&id);
                self.overtaken.remove(&id);
                self.known
                    .insert(id, Known::ended(incarnation, epoch, concluded(cause)));
            }
        }
    }

    /// What must be on disk before the action.
    fn record(&self, action: &Action) -> Option<Record> {
        match action {
            Action::Start { id, incarnation } => Some(Record::Intent {
                id: id.clone(),
                incarnation: *incarnation,
                epoch: epoch(&self.desired, id),
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
                epoch: epoch(&self.desired, id),
                exit: concluded(*cause),
            }),
        }
    }

    fn start(&mut self, id: AllocationId, incarnation: u64) {
        let Some(entry) = self.desired.get(&id) else {
            return;
        };
        tracing::info!(container = %id, work = %entry.work, incarnation, "starting");
        let container = Container {
            id: id.clone(),
            incarnation,
            epoch: entry.epoch,
            work: entry.work.clone(),
            size: entry.size.clone(),
            exclusive: entry.exclusive,
            launch: entry.launch.clone(),
        };
        self.known
            .insert(id, Known::new(incarnation, entry.epoch, Phase::Launching));
        self.runtime.launch(container);
    }

    async fn write(&self, records: Vec<Record>, sync: bool) -> std::io::Result<()> {
        if records.is_empty() || !self.journal.lock().is_kept() {
            return Ok(());
        }
        let journal = Arc::clone(&self.journal);
        let written =
            tokio::task::spawn_blocking(move || journal.lock().append(&records, sync)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = &written {
            tracing::error!(%error, "the journal cannot be written; nothing new is started");
        }
        written
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
        });
    }
}

fn epoch(desired: &BTreeMap<AllocationId, DesiredEntry>, id: &AllocationId) -> u64 {
    desired.get(id).map_or(0, |entry| entry.epoch)
}
