//! The one place where the agent acts: news and wishes come in, `reconcile` decides, the journal
//! remembers, the runtime obeys, and the board shows the result to whoever reports it.
//!
//! Invariants: an intent is on disk before the runtime hears of it (I3); an end is in the journal
//! before the board shows it, unless the disk refuses (I6, F29); the board is complete only after
//! the machine and the journal have been looked through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{
    ContainerReport, ContainerState, DesiredEntry, Goal as WireGoal,
};
use hayward_node_agent_domain::{
    Action, Actual, Goal, Past, Phase, Picture, Record, Story, Trace, Verdict, Wanted, journal,
    reconcile,
};
use hayward_service::Shutdown;
use hayward_vocabulary::{AllocationId, Exit, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::follow::Update;
use crate::journal::{Journal, Opened};
use crate::last_words;
use crate::runtime::{Container, Event, Found, News, Runtime};

/// After a refusal of the disk.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// On top of the graces when everything is ended at the exit.
const LAST_MARGIN: Duration = Duration::from_secs(5);
/// News and wishes taken in before acting.
const AT_ONCE: usize = 256;

/// What there is to report. Replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct Board {
    pub cursor: Option<String>,
    pub complete: bool,
    pub containers: Arc<Vec<ContainerReport>>,
}

impl Board {
    pub fn alive(&self) -> usize {
        let ended = |report: &&ContainerReport| report.state != ContainerState::Ended;
        self.containers.iter().filter(ended).count()
    }
}

/// What a container is to the agent.
#[derive(Debug, Clone)]
struct Known {
    actual: Actual,
    pid: Option<u32>,
    started_at: Option<Timestamp>,
    exit: Option<Exit>,
}

impl Known {
    fn new(incarnation: u64, epoch: u64, phase: Phase) -> Self {
        let actual = Actual {
            incarnation,
            epoch,
            phase,
        };
        Self {
            actual,
            pid: None,
            started_at: None,
            exit: None,
        }
    }
}

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
    /// Something was refused and is to be tried again.
    unfinished: bool,
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
            unfinished: false,
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
            tokio::select! {
                Some(update) = ears.updates.recv() => self.absorb(update),
                Some(news) = ears.news.recv() => self.hear(news, &mut ears.news).await,
                () = tokio::time::sleep(TRY_AGAIN), if self.unfinished => {}
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
        if !self.write(records, ends).await {
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
        self.unfinished = false;
        // Forgetting an old incarnation makes room for the next one: one more look.
        for _ in 0..3 {
            let actions = reconcile(&self.picture());
            if actions.is_empty() {
                break;
            }
            if !self.obey(actions).await {
                self.unfinished = true;
                break;
            }
        }
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
        };
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
        }
    }

    /// False when the disk refused: nothing was done then.
    async fn obey(&mut self, actions: Vec<Action>) -> bool {
        let records = actions
            .iter()
            .filter_map(|action| self.record(action))
            .collect();
        if !self.write(records, true).await {
            return false;
        }
        for action in actions {
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
                    let mut known = Known::new(incarnation, epoch, Phase::Ended);
                    known.exit = Some(Exit::of(cause, "it was not started"));
                    self.doubtful.remove(&id);
                    self.known.insert(id, known);
                }
            }
        }
        true
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
                exit: Exit::of(*cause, "it was not started"),
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
            launch: entry.launch.clone(),
        };
        self.known
            .insert(id, Known::new(incarnation, entry.epoch, Phase::Launching));
        self.runtime.launch(container);
    }

    async fn write(&self, records: Vec<Record>, sync: bool) -> bool {
        if records.is_empty() || !self.journal.lock().is_kept() {
            return true;
        }
        let journal = Arc::clone(&self.journal);
        let written =
            tokio::task::spawn_blocking(move || journal.lock().append(&records, sync)).await;
        match written {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the journal cannot be written; nothing new is started");
                false
            }
            Err(_) => false,
        }
    }

    fn show(&self) {
        let report = |(id, known): (&AllocationId, &Known)| ContainerReport {
            id: id.clone(),
            incarnation: known.actual.incarnation,
            state: match known.actual.phase {
                Phase::Launching => ContainerState::Launching,
                Phase::Running => ContainerState::Running,
                Phase::Stopping => ContainerState::Stopping,
                Phase::Ended => ContainerState::Ended,
            },
            pid: known.pid,
            started_at: known.started_at,
            exit: known.exit.clone(),
        };
        let containers = self.known.iter().map(report).collect();
        self.board.send_replace(Board {
            cursor: self.cursor.clone(),
            complete: true,
            containers: Arc::new(containers),
        });
    }
}

fn epoch(desired: &BTreeMap<AllocationId, DesiredEntry>, id: &AllocationId) -> u64 {
    desired.get(id).map_or(0, |entry| entry.epoch)
}
