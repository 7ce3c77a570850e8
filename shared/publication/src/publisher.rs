//! The read side of a service: the last committed maps in memory, and the readers that wait.
//!
//! Readers see a commit completely or not at all. The revision never goes back in this process. A
//! replica that does not lead refuses all readers, because its memory may be old.

mod change_page;
#[cfg(test)]
mod interleaving_tests;
mod role;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{
    FOLLOWER_LAG, FULL_UPDATE_CAUSE, FULL_UPDATES, PUBLICATION, SERVICE, SUBSCRIBERS,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::watch;
use uuid::Uuid;

use crate::locks::{Mutex, RwLock};
use crate::published::{Body, Delta, Published};
use crate::update::WAIT_SECONDS;
use crate::{CommitError, Cursor, WentBack};

pub use change_page::{ChangePage, ReadOwner};
pub use role::PublisherRole;

/// Maximum wait of a reader.
pub const MAX_WAIT: Duration = Duration::from_secs(25);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryKey {
    pub publication: &'static str,
    pub scope: String,
    pub key: String,
}

/// One changed entry of one commit.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: EntryKey,
    pub body: Body,
}

/// One long poll of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Poll<'a> {
    pub publication: &'static str,
    pub scope: &'a str,
    /// Position of the reader. `None` requests a full update.
    pub cursor: Option<&'a str>,
    pub wait: Duration,
    /// Whether the reader is a service or an agent.
    pub trusted: bool,
}

/// The published maps at one revision. They change together.
#[derive(Default)]
struct Maps {
    lineage: Uuid,
    revision: u64,
    /// Removals up to this revision are no longer stored, even in empty publications.
    pruned_to: u64,
    published: BTreeMap<&'static str, Published>,
}

/// The published state of one service, and its waiting readers.
pub struct Publisher {
    maps: RwLock<Maps>,
    role: watch::Sender<PublisherRole>,
    revision: watch::Sender<u64>,
    /// Senders that wake waiting readers, by publication and scope. The value is the revision.
    subscriptions: Mutex<HashMap<(&'static str, String), watch::Sender<u64>>>,
    /// Positions up to which neighbours had been read at the last commit.
    positions: Mutex<BTreeMap<String, Cursor>>,
    neighbours: Mutex<BTreeMap<&'static str, Neighbour>>,
    /// Name of the service, for telemetry.
    service: OnceLock<&'static str>,
    /// Functions that read the owner of an entry, by publication. They are for publications that
    /// need the owner after a removal.
    owner_readers: RwLock<BTreeMap<&'static str, ReadOwner>>,
}

/// Last contact with a followed neighbour.
#[derive(Debug, Clone, Default)]
pub(crate) struct Neighbour {
    /// Start of a pending request, across retries. `None` without a pending request.
    pub requested_at: Option<Instant>,
    /// Arrival of the last response.
    pub responded_at: Option<Instant>,
    pub cursor: Option<String>,
    pub fault: Option<String>,
}

impl Neighbour {
    /// Returns how long a response is overdue. Within the wait of a long poll it is not overdue.
    pub fn lag(&self) -> Duration {
        let waiting = self.requested_at.map_or(Duration::ZERO, |at| at.elapsed());
        if self.fault.is_some() {
            return waiting;
        }
        waiting.saturating_sub(Duration::from_secs(WAIT_SECONDS))
    }
}

impl Publisher {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            maps: RwLock::default(),
            role: watch::Sender::new(PublisherRole::Standby),
            revision: watch::Sender::new(0),
            subscriptions: Mutex::default(),
            positions: Mutex::default(),
            neighbours: Mutex::default(),
            service: OnceLock::new(),
            owner_readers: RwLock::default(),
        })
    }

    pub fn revision(&self) -> u64 {
        self.maps.read().revision
    }

    pub fn lineage(&self) -> Uuid {
        self.maps.read().lineage
    }

    /// Waits until `min_revision` is visible. Returns false if `limit` passed first (A11).
    pub async fn wait_for_revision(&self, min_revision: u64, limit: Duration) -> bool {
        let mut revision = self.revision.subscribe();
        tokio::time::timeout(limit, revision.wait_for(|current| *current >= min_revision))
            .await
            .is_ok_and(|result| result.is_ok())
    }

    /// Returns one entry. Returns `None` also for an entry that cannot be parsed, which is logged
    /// as a defect.
    pub fn get<T: DeserializeOwned>(&self, publication: &str, scope: &str, key: &str) -> Option<T> {
        let body = self
            .maps
            .read()
            .published
            .get(publication)?
            .get(scope, key)?
            .clone();
        parse_body(&body)
    }

    /// Returns up to `limit` entries after `after`, in order of key, with their revision.
    pub fn page<T: DeserializeOwned>(
        &self,
        publication: &str,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<(String, T)>, u64) {
        let (bodies, revision) = {
            let maps = self.maps.read();
            let bodies: Vec<_> = maps
                .published
                .get(publication)
                .into_iter()
                .flat_map(|map| map.page(scope, after))
                .take(limit)
                .map(|(key, body)| (key.to_owned(), body.clone()))
                .collect();
            (bodies, maps.revision)
        };
        (
            bodies
                .into_iter()
                .filter_map(|(key, body)| Some((key, parse_body(&body)?)))
                .collect(),
            revision,
        )
    }

    pub fn len(&self, publication: &str, scope: &str) -> usize {
        self.maps
            .read()
            .published
            .get(publication)
            .map_or(0, |map| map.len(scope))
    }

    /// Returns the changes since the cursor. Waits for the first change.
    ///
    /// A cursor from the future of a trusted reader is evidence that the database went back in
    /// time. The service then stops writing (R9).
    ///
    /// # Errors
    /// If this replica does not lead.
    pub async fn updates(&self, poll: Poll<'_>) -> Result<(Delta, Cursor), CommitError> {
        let deadline = tokio::time::Instant::now() + poll.wait.min(MAX_WAIT);
        let mut subscription = self.subscribe(poll.publication, poll.scope);
        let mut roles = self.role.subscribe();
        loop {
            self.leading()?;
            subscription.mark_unchanged();
            let (delta, current) = self.read_updates(poll)?;
            if !delta.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok((delta, current));
            }
            tokio::select! {
                _ = subscription.changed() => {}
                _ = roles.wait_for(|role| !matches!(role, PublisherRole::Leading { .. })) => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }

    /// Returns the changes since the cursor of the reader, without waiting.
    fn read_updates(&self, poll: Poll<'_>) -> Result<(Delta, Cursor), CommitError> {
        let Poll {
            publication,
            scope,
            cursor,
            trusted,
            ..
        } = poll;
        let maps = self.maps.read();
        let current = Cursor {
            lineage: maps.lineage,
            revision: maps.revision,
        };
        let position = cursor
            .and_then(Cursor::parse)
            .filter(|position| position.lineage == current.lineage);
        if let Some(position) = position
            && position.revision > current.revision
            && trusted
        {
            let evidence = format!(
                "a reader of {publication} has seen revision {}, the database holds {}",
                position.revision, current.revision
            );
            drop(maps);
            let lineage = current.lineage;
            let found = WentBack { lineage, evidence };
            self.stop_writing(found.clone());
            return Err(CommitError::WentBack(found));
        }
        let since = position
            .map(|position| position.revision)
            .filter(|at| *at <= current.revision);
        // Why a reader with a cursor gets a full update, if it does.
        let cause = match (cursor, position) {
            (None, _) => None,
            (Some(_), None) => Some("other_history"),
            (Some(_), Some(_)) => Some("forgotten"),
        };
        let delta = match maps.published.get(publication) {
            Some(map) => map.since(scope, since),
            None => Delta {
                full: since.is_none_or(|at| at < maps.pruned_to),
                ..Delta::default()
            },
        };
        if let (true, Some(cause)) = (delta.full, cause) {
            self.count_full_read(publication, cause);
        }
        Ok((delta, current))
    }

    pub(crate) fn set_service(&self, service: &'static str) {
        let _ = self.service.set(service);
    }

    pub(crate) fn count_full_read(&self, publication: &'static str, cause: &'static str) {
        let service = self.service.get().copied().unwrap_or("unnamed");
        let attributes = [
            SERVICE.with(service),
            PUBLICATION.with(publication),
            FULL_UPDATE_CAUSE.with(cause),
        ];
        FULL_UPDATES.add(1, &attributes);
    }

    /// Returns gauges of waiting readers and of followed neighbours (T6).
    pub(crate) fn readings(&self, service: &'static str) -> Vec<Reading> {
        let attributes = |name: &'static str| vec![SERVICE.with(service), PUBLICATION.with(name)];
        let mut readers: BTreeMap<&'static str, u64> = BTreeMap::new();
        for ((publication, _), sender) in self.subscriptions.lock().iter() {
            let count = u64::try_from(sender.receiver_count()).unwrap_or(u64::MAX);
            *readers.entry(publication).or_default() += count;
        }
        let mut readings: Vec<Reading> = readers
            .into_iter()
            .map(|(name, count)| SUBSCRIBERS.count_reading(count, attributes(name)))
            .collect();
        for (name, neighbour) in self.neighbours() {
            let lag = neighbour.lag().as_secs_f64();
            readings.push(FOLLOWER_LAG.reading(lag, attributes(name)));
        }
        readings
    }

    pub(crate) fn subscribe(&self, publication: &'static str, scope: &str) -> watch::Receiver<u64> {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions
            .entry((publication, scope.to_owned()))
            .or_insert_with(|| watch::Sender::new(0))
            .subscribe()
    }

    /// Returns the position up to which a neighbour had been read at the last commit.
    pub fn position(&self, source: &str) -> Option<Cursor> {
        self.positions.lock().get(source).copied()
    }

    /// Returns the position up to which a neighbour was read, in this process or before.
    pub(crate) fn read_position(&self, source: &str) -> Option<Cursor> {
        let cursor = self.neighbours.lock();
        let cursor = cursor.get(source).and_then(|it| it.cursor.as_deref());
        let cursor = cursor.and_then(Cursor::parse);
        cursor.or_else(|| self.position(source))
    }

    pub(crate) fn update_neighbour(
        &self,
        source: &'static str,
        update: impl FnOnce(&mut Neighbour),
    ) {
        update(self.neighbours.lock().entry(source).or_default());
    }

    pub(crate) fn neighbours(&self) -> BTreeMap<&'static str, Neighbour> {
        self.neighbours.lock().clone()
    }

    pub(crate) fn set_positions(&self, positions: BTreeMap<String, Cursor>) {
        *self.positions.lock() = positions;
    }

    /// Replaces all maps, at the start of a term.
    pub(crate) fn replace(
        &self,
        cursor: Cursor,
        entries: impl IntoIterator<Item = (u64, Entry)>,
        pruned_to: u64,
    ) {
        let mut published: BTreeMap<&'static str, Published> = BTreeMap::new();
        for (revision, entry) in entries {
            let EntryKey {
                publication,
                scope,
                key,
            } = entry.key;
            let map = published.entry(publication).or_default();
            map.set(&scope, &key, revision, entry.body);
        }
        for map in published.values_mut() {
            map.prune_removals(pruned_to);
        }
        if self.lineage() != cursor.lineage {
            for neighbour in self.neighbours.lock().values_mut() {
                neighbour.cursor = None;
            }
        }
        {
            let mut maps = self.maps.write();
            *maps = Maps {
                lineage: cursor.lineage,
                revision: cursor.revision,
                pruned_to,
                published,
            };
        }
        self.revision.send_replace(cursor.revision);
        for sender in self.subscriptions.lock().values() {
            sender.send_replace(cursor.revision);
        }
    }

    /// Makes one commit visible.
    pub(crate) fn advance(&self, revision: u64, entries: Vec<Entry>, prune_to: Option<u64>) {
        let mut changed_scopes: Vec<(&'static str, String)> = Vec::new();
        {
            let owner_readers = self.owner_readers.read();
            let mut maps = self.maps.write();
            maps.revision = revision;
            for Entry { key, body } in entries {
                let EntryKey {
                    publication,
                    scope,
                    key,
                } = key;
                let map = maps.published.entry(publication).or_default();
                let owner = match (&body, owner_readers.get(publication)) {
                    (None, Some(read_owner)) => {
                        map.get(&scope, &key).and_then(|body| read_owner(body))
                    }
                    _ => None,
                };
                map.set(&scope, &key, revision, body);
                if let Some(owner) = owner {
                    map.set_owner(&scope, &key, &owner);
                }
                if changed_scopes
                    .last()
                    .is_none_or(|(last_publication, last_scope)| {
                        *last_publication != publication || *last_scope != scope
                    })
                {
                    changed_scopes.push((publication, scope));
                }
            }
            if let Some(revision) = prune_to {
                maps.pruned_to = maps.pruned_to.max(revision);
                for map in maps.published.values_mut() {
                    map.prune_removals(revision);
                }
            }
        }
        self.revision.send_replace(revision);
        let mut subscriptions = self.subscriptions.lock();
        for scope in changed_scopes {
            if let Some(sender) = subscriptions.get(&scope) {
                sender.send_replace(revision);
            }
        }
        if prune_to.is_some() {
            subscriptions.retain(|_, sender| sender.receiver_count() > 0);
        }
    }

    /// Returns the body of the published entry.
    pub(crate) fn entry_body(&self, key: &EntryKey) -> Body {
        let maps = self.maps.read();
        let map = maps.published.get(key.publication)?;
        map.get(&key.scope, &key.key).cloned()
    }
}

fn parse_body<T: DeserializeOwned>(body: &RawValue) -> Option<T> {
    match serde_json::from_str(body.get()) {
        Ok(entry) => Some(entry),
        Err(error) => {
            tracing::error!(%error, "a published entry cannot be parsed as its own type");
            None
        }
    }
}
