//! A batch: the changes of one transaction and the callers that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hayward_service::http::request_origin::CommandOrigin;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Committed;
use crate::audit::Attribution;
use crate::published::Body;
use crate::publisher::{Entry, EntryKey, Publisher};
use crate::{CommitError, Cursor};

/// Channel to the caller of a command. [`Batch::answer`] sends the response after the commit.
/// Dropping the reply means that the outcome is unknown.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<Result<Committed<T>, CommitError>>);

impl<T> Reply<T> {
    pub(super) fn new(sender: oneshot::Sender<Result<Committed<T>, CommitError>>) -> Self {
        Self(sender)
    }
}

type CommitCallback = Box<dyn FnOnce(Result<u64, CommitError>) + Send>;

/// Action after the commit.
enum AfterCommit {
    Answer(CommitCallback),
    /// Refresh a view.
    Refresh(CommitCallback),
}

/// New body of an entry, and the actor that sets it.
struct EntryWrite {
    key: EntryKey,
    body: Body,
    actor: usize,
}

/// Collects rows, entries and answers until the commit.
pub struct Batch<R> {
    pub rows: R,
    writes: Vec<EntryWrite>,
    attribution: Attribution,
    /// Positions up to which neighbours were read.
    positions: BTreeMap<&'static str, Cursor>,
    after_commit: Vec<AfterCommit>,
    /// The last committed revision if this is a dry run.
    dry_run_revision: Option<u64>,
}

impl<R: Default> Default for Batch<R> {
    fn default() -> Self {
        Self {
            rows: R::default(),
            writes: Vec::new(),
            attribution: Attribution::default(),
            positions: BTreeMap::new(),
            after_commit: Vec::new(),
            dry_run_revision: None,
        }
    }
}

impl<R: Default> Batch<R> {
    /// Creates a batch for a dry run, which is discarded (A10).
    pub(super) fn for_dry_run(revision: u64) -> Self {
        Self {
            dry_run_revision: Some(revision),
            ..Self::default()
        }
    }
}

impl<R> Batch<R> {
    /// Sets one entry of a publication. An equal entry changes nothing.
    pub fn publish<T: Serialize>(
        &mut self,
        publication: &'static str,
        scope: &str,
        key: &str,
        entry: &T,
    ) {
        match serde_json::value::to_raw_value(entry) {
            Ok(body) => self.write(publication, scope, key, Some(body.into())),
            Err(error) => tracing::error!(%error, publication, key, "an entry cannot be written"),
        }
    }

    pub fn withdraw(&mut self, publication: &'static str, scope: &str, key: &str) {
        self.write(publication, scope, key, None);
    }

    fn write(
        &mut self,
        publication: &'static str,
        scope: &str,
        key: &str,
        body: Option<Arc<RawValue>>,
    ) {
        self.writes.push(EntryWrite {
            key: EntryKey {
                publication,
                scope: scope.to_owned(),
                key: key.to_owned(),
            },
            body,
            actor: self.attribution.current_actor(),
        });
    }

    /// Answers a command once this batch is committed.
    pub fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.after_commit
            .push(AfterCommit::Answer(Box::new(move |outcome| {
                // Sending fails only if the caller no longer waits.
                drop(
                    reply
                        .0
                        .send(outcome.map(|revision| Committed { value, revision })),
                );
            })));
    }

    /// Runs `refresh` after the commit of this batch. It is for views of unpublished state.
    pub fn once_committed(&mut self, refresh: impl FnOnce(u64) + Send + 'static) {
        self.after_commit
            .push(AfterCommit::Refresh(Box::new(move |outcome| {
                if let Ok(revision) = outcome {
                    refresh(revision);
                }
            })));
    }

    /// Records the position up to which a neighbour was read. It is written with the next commit.
    pub fn record_position(&mut self, source: &'static str, cursor: Option<Cursor>) {
        if let Some(cursor) = cursor {
            self.positions.insert(source, cursor);
        }
    }

    /// Returns whether this is a dry run. The command must then not change the working set. It may
    /// change a copy (A10).
    pub fn is_dry_run(&self) -> bool {
        self.dry_run_revision.is_some()
    }

    /// Returns whether an earlier command of the batch has changed this entry of a publication
    /// without scopes.
    pub(super) fn has_changed(&self, publication: &str, key: &str) -> bool {
        let mut writes = self.writes.iter();
        writes.any(|write| write.key.publication == publication && write.key.key == key)
    }

    /// Returns true if no earlier command of the batch has changed an entry.
    pub(super) fn is_unchanged(&self) -> bool {
        self.writes.is_empty()
    }

    /// Attributes the following changes to this request.
    pub(super) fn begin_command(&mut self, request: Option<CommandOrigin>) {
        self.attribution.begin_command(request);
    }

    /// Attributes the following changes to the service. `added_rows` is true if the request added
    /// rows.
    pub(super) fn end_command(&mut self, added_rows: bool) {
        self.attribution.end_command(added_rows);
    }

    /// Returns the entries that differ from the published ones, each once. Attributes them to their
    /// actors.
    pub(super) fn changed_entries(&mut self, publisher: &Publisher) -> Vec<Entry> {
        let mut writes = std::mem::take(&mut self.writes);
        // A stable sort keeps the last change of an entry last.
        writes.sort_by(|one, other| one.key.cmp(&other.key));
        let mut changed = Vec::with_capacity(writes.len());
        let mut writes = writes.into_iter().peekable();
        while let Some(mut write) = writes.next() {
            let published = publisher.entry_body(&write.key);
            let mut before = published.clone();
            loop {
                if !is_same_body(&before, &write.body) {
                    self.attribution
                        .record_change(write.actor, &write.key, &before, &write.body);
                }
                let Some(next) = writes.next_if(|next| next.key == write.key) else {
                    break;
                };
                before = std::mem::replace(&mut write, next).body;
            }
            if !is_same_body(&published, &write.body) {
                changed.push(Entry {
                    key: write.key,
                    body: write.body,
                });
            }
        }
        changed
    }

    /// Answers a dry run with the revision that it has read. Discards everything else.
    pub(super) fn answer_dry_run(self) {
        for action in self.after_commit {
            if let (AfterCommit::Answer(answer), Some(revision)) = (action, self.dry_run_revision) {
                answer(Ok(revision));
            }
        }
    }

    pub(super) fn take_attribution(&mut self) -> Attribution {
        std::mem::take(&mut self.attribution)
    }

    pub(super) fn into_parts(self) -> (R, BTreeMap<&'static str, Cursor>, PendingReplies) {
        (self.rows, self.positions, PendingReplies(self.after_commit))
    }
}

fn is_same_body(one: &Body, other: &Body) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.get() == other.get(),
        (None, None) => true,
        _ => false,
    }
}

/// Replies to the callers of one batch.
pub(super) struct PendingReplies(Vec<AfterCommit>);

impl PendingReplies {
    pub(super) fn send(self, outcome: &Result<u64, CommitError>) {
        for AfterCommit::Answer(callback) | AfterCommit::Refresh(callback) in self.0 {
            callback(outcome.clone());
        }
    }
}
