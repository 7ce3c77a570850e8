//! A batch: the changes of one transaction and the callers that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hayward_service::http::request_actor::CommandOrigin;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Committed;
use crate::audit::Attribution;
use crate::published::Body;
use crate::publisher::{Entry, EntryKey, Publisher};
use crate::{CommitError, Cursor};

/// Channel to the caller of a command. [`Batch::answer`] answers after the commit. Dropping it
/// means an unknown outcome.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<Result<Committed<T>, CommitError>>);

impl<T> Reply<T> {
    pub(super) fn new(sender: oneshot::Sender<Result<Committed<T>, CommitError>>) -> Self {
        Self(sender)
    }
}

type Waiting = Box<dyn FnOnce(Result<u64, CommitError>) + Send>;

/// Action after the commit.
enum AfterCommit {
    Answer(Waiting),
    /// Refresh a view.
    Refresh(Waiting),
}

/// New body of an entry, and the actor that sets it.
struct Put {
    key: EntryKey,
    body: Body,
    actor: usize,
}

/// Collects rows, entries and answers until the commit.
pub struct Batch<R> {
    pub rows: R,
    puts: Vec<Put>,
    attribution: Attribution,
    followed: BTreeMap<&'static str, Cursor>,
    waiting: Vec<AfterCommit>,
    /// The last committed revision if this is a dry run.
    dry_run_at: Option<u64>,
}

impl<R: Default> Default for Batch<R> {
    fn default() -> Self {
        Self {
            rows: R::default(),
            puts: Vec::new(),
            attribution: Attribution::default(),
            followed: BTreeMap::new(),
            waiting: Vec::new(),
            dry_run_at: None,
        }
    }
}

impl<R: Default> Batch<R> {
    /// Creates a batch for a dry run, which is discarded (A10).
    pub(super) fn discarded(at: u64) -> Self {
        Self {
            dry_run_at: Some(at),
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
            Ok(body) => self.put(publication, scope, key, Some(body.into())),
            Err(error) => tracing::error!(%error, publication, key, "an entry cannot be written"),
        }
    }

    pub fn withdraw(&mut self, publication: &'static str, scope: &str, key: &str) {
        self.put(publication, scope, key, None);
    }

    fn put(
        &mut self,
        publication: &'static str,
        scope: &str,
        key: &str,
        body: Option<Arc<RawValue>>,
    ) {
        self.puts.push(Put {
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
        self.waiting
            .push(AfterCommit::Answer(Box::new(move |outcome| {
                // Sending fails only if the caller no longer waits.
                drop(
                    reply
                        .0
                        .send(outcome.map(|revision| Committed { value, revision })),
                );
            })));
    }

    /// Runs `show` after the commit of this batch. It is for views of unpublished state.
    pub fn once_committed(&mut self, show: impl FnOnce(u64) + Send + 'static) {
        self.waiting
            .push(AfterCommit::Refresh(Box::new(move |outcome| {
                if let Ok(revision) = outcome {
                    show(revision);
                }
            })));
    }

    /// Records the position up to which a neighbour was read. It is written with the next commit.
    pub fn followed(&mut self, source: &'static str, cursor: Option<Cursor>) {
        if let Some(cursor) = cursor {
            self.followed.insert(source, cursor);
        }
    }

    /// Returns whether this is a dry run. The command must then not change the working set. It may
    /// change a copy (A10).
    pub fn is_dry_run(&self) -> bool {
        self.dry_run_at.is_some()
    }

    /// Returns whether an earlier command of the batch has changed this entry of a publication
    /// without scopes.
    pub(super) fn puts_into(&self, publication: &str, key: &str) -> bool {
        let mut puts = self.puts.iter();
        puts.any(|put| put.key.publication == publication && put.key.key == key)
    }

    /// Returns true if no earlier command of the batch has changed an entry.
    pub(super) fn is_unchanged(&self) -> bool {
        self.puts.is_empty()
    }

    /// Attributes the following changes to this request.
    pub(super) fn begin(&mut self, request: Option<CommandOrigin>) {
        self.attribution.begin(request);
    }

    /// Attributes the following changes to the service. `grew` is true if the request added rows.
    pub(super) fn end(&mut self, grew: bool) {
        self.attribution.end(grew);
    }

    /// Returns the entries that differ from the published ones, each once. Attributes them to their
    /// actors.
    pub(super) fn changed_entries(&mut self, publisher: &Publisher) -> Vec<Entry> {
        let mut puts = std::mem::take(&mut self.puts);
        // A stable sort keeps the last change of an entry last.
        puts.sort_by(|one, other| one.key.cmp(&other.key));
        let mut changed = Vec::with_capacity(puts.len());
        let mut puts = puts.into_iter().peekable();
        while let Some(mut put) = puts.next() {
            let published = publisher.body_of(&put.key);
            let mut before = published.clone();
            loop {
                if !same(&before, &put.body) {
                    self.attribution
                        .changed(put.actor, &put.key, &before, &put.body);
                }
                let Some(next) = puts.next_if(|next| next.key == put.key) else {
                    break;
                };
                before = std::mem::replace(&mut put, next).body;
            }
            if !same(&published, &put.body) {
                changed.push(Entry {
                    key: put.key,
                    body: put.body,
                });
            }
        }
        changed
    }

    /// Answers a dry run with the revision that it has read. Discards everything else.
    pub(super) fn answer_dry_run(self) {
        for then in self.waiting {
            if let (AfterCommit::Answer(answer), Some(at)) = (then, self.dry_run_at) {
                answer(Ok(at));
            }
        }
    }

    pub(super) fn attribution(&mut self) -> Attribution {
        std::mem::take(&mut self.attribution)
    }

    pub(super) fn into_parts(self) -> (R, BTreeMap<&'static str, Cursor>, Answers) {
        (self.rows, self.followed, Answers(self.waiting))
    }
}

fn same(one: &Body, other: &Body) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.get() == other.get(),
        (None, None) => true,
        _ => false,
    }
}

/// Replies to the callers of one batch.
pub(super) struct Answers(Vec<AfterCommit>);

impl Answers {
    pub(super) fn give(self, outcome: &Result<u64, CommitError>) {
        for AfterCommit::Answer(then) | AfterCommit::Refresh(then) in self.0 {
            then(outcome.clone());
        }
    }
}
