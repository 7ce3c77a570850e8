//! One reader of the changes: its requested kinds, visible objects and position.

use std::sync::Arc;
use std::time::Duration;

use hayward_service::auth::TokenValidity;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Shutdown};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Feed, Kind, Visibility, gone_problem, sees_everything};
use crate::publisher::PublisherRole;
use crate::{Cursor, Publisher, min_revision};

/// Changes examined in one batch. A batch may be larger, because a commit is never split.
const BATCH_SIZE: usize = 1_000;
/// Interval of the check whether the token is still valid. A revoked token ends the stream (S8).
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Name of these readers in metrics (T6).
const READER_NAME: &str = "changes";

/// Start position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Now,
    Revision(u64),
    Cursor(Cursor),
}

impl Since {
    /// Parses the query parameter `since`.
    ///
    /// # Errors
    /// 400 for an invalid text.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        if text == "now" {
            return Ok(Self::Now);
        }
        let revision = text.parse().ok().map(Self::Revision);
        let since = revision.or_else(|| Cursor::parse(text).map(Self::Cursor));
        since.ok_or_else(|| {
            let detail = "takes a revision, a cursor of an earlier answer, or `now`";
            Problem::new(Code::BadRequest, "the query cannot be understood")
                .at("/query/since", detail)
        })
    }
}

/// Returns the requested kinds among those that the caller may see.
///
/// # Errors
/// 422 for an unknown kind, 403 for a kind that the caller may not see.
pub fn select_kinds(
    feed: Feed,
    caller: &Caller,
    requested: Option<&str>,
) -> Result<Vec<&'static Kind>, Problem> {
    let is_permitted =
        |kind: &Kind| kind.visible_to != Visibility::Operators || sees_everything(caller);
    let Some(requested) = requested else {
        return Ok(feed
            .kinds
            .iter()
            .filter(|kind| is_permitted(kind))
            .collect());
    };
    let kinds = requested.split(',').map(|name| {
        let kind = feed.kinds.iter().find(|kind| kind.name == name);
        let Some(kind) = kind else {
            let known: Vec<_> = feed.kinds.iter().map(|kind| kind.name).collect();
            let detail = format!("takes some of {}, with commas between", known.join(", "));
            return Err(
                Problem::new(Code::Invalid, "there is no such kind").at("/query/kinds", detail)
            );
        };
        if is_permitted(kind) {
            return Ok(kind);
        }
        let detail = format!("only operators and viewers may see changes of kind {name}");
        Err(Problem::forbidden(detail))
    });
    kinds.collect()
}

/// Why a reader ends.
#[derive(Debug)]
pub enum EndReason {
    ShuttingDown,
    Unauthenticated,
    /// This replica no longer leads. Another replica continues.
    Standby(Problem),
    /// The changes after this position are not stored any more, or belong to another history.
    TooOld(Problem),
}

impl EndReason {
    /// Returns the reason as the stream reports it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ShuttingDown => "shutting_down",
            Self::Unauthenticated => "unauthenticated",
            Self::Standby(_) => "standby",
            Self::TooOld(_) => "gone",
        }
    }

    pub fn problem(self) -> Problem {
        match self {
            Self::ShuttingDown => Problem::new(Code::Unavailable, "this replica is shutting down"),
            Self::Unauthenticated => {
                Problem::new(Code::Unauthenticated, "this token is no longer valid")
            }
            Self::Standby(problem) | Self::TooOld(problem) => problem,
        }
    }
}

/// One change that the reader may see.
pub struct VisibleChange {
    pub revision: u64,
    pub kind: &'static str,
    pub id: Arc<str>,
    pub object: Option<Arc<RawValue>>,
}

/// Rights of a reader, and the conditions that end it.
pub struct ReaderContext {
    pub caller: Caller,
    pub kinds: Vec<&'static Kind>,
    pub token: Option<TokenValidity>,
    pub shutdown: Shutdown,
}

pub struct Reader {
    publisher: Arc<Publisher>,
    pub context: ReaderContext,
    pub position: Cursor,
    revisions: watch::Receiver<u64>,
    roles: watch::Receiver<PublisherRole>,
    /// Receiver that counts this reader while it exists.
    _subscription: watch::Receiver<u64>,
}

impl Reader {
    /// Opens a reader at this position.
    ///
    /// # Errors
    /// 410 if the position is too old or from another history. 409 if it is from the future. 503 if
    /// this replica does not lead.
    pub async fn new(
        publisher: Arc<Publisher>,
        since: Since,
        context: ReaderContext,
    ) -> Result<Self, Problem> {
        publisher.leading()?;
        let (current, oldest) = publisher.history_range();
        let position = match since {
            Since::Now => current,
            Since::Revision(revision) => Cursor {
                revision,
                ..current
            },
            Since::Cursor(cursor) => cursor,
        };
        if position.lineage != current.lineage {
            publisher.count_full_read(READER_NAME, "other_history");
            let detail = "this position belongs to a history that an operator has given up";
            return Err(gone_problem(detail.to_owned(), oldest));
        }
        min_revision::wait_until_visible(&publisher, position.revision).await?;
        let reader = Self {
            revisions: publisher.watch_revision(),
            roles: publisher.watch_role(),
            _subscription: publisher.subscribe(READER_NAME, ""),
            publisher,
            context,
            position,
        };
        reader.check().map_err(EndReason::problem)?;
        Ok(reader)
    }

    /// Checks whether the reader may continue.
    fn check(&self) -> Result<(), EndReason> {
        if self.context.shutdown.has_begun() {
            return Err(EndReason::ShuttingDown);
        }
        let token = self.context.token.as_ref();
        if token.is_some_and(|token| !token.is_valid()) {
            return Err(EndReason::Unauthenticated);
        }
        let leading = self.publisher.leading();
        leading.map_err(|error| EndReason::Standby(error.into()))?;
        let (current, oldest) = self.publisher.history_range();
        if current.lineage != self.position.lineage {
            let detail = "another history has begun".to_owned();
            return Err(EndReason::TooOld(gone_problem(detail, oldest)));
        }
        if self.position.revision < oldest {
            self.publisher.count_full_read(READER_NAME, "forgotten");
            let revision = self.position.revision;
            let detail = format!("changes after revision {revision} are not known any more");
            return Err(EndReason::TooOld(gone_problem(detail, oldest)));
        }
        Ok(())
    }

    /// Returns the next batch of visible changes, and whether more are available.
    pub fn next_batch(&mut self) -> Result<(Vec<VisibleChange>, bool), EndReason> {
        self.check()?;
        let ReaderContext { caller, kinds, .. } = &self.context;
        let own_user = (!sees_everything(caller)).then_some(caller.name.as_str());
        let mut selections: Vec<(&'static str, Option<&str>)> = Vec::new();
        for kind in kinds {
            let scope = own_user.filter(|_| kind.visible_to == Visibility::ScopeOwner);
            if !selections.contains(&(kind.publication, scope)) {
                selections.push((kind.publication, scope));
            }
        }
        let page = self
            .publisher
            .changes_after(&selections, self.position.revision, BATCH_SIZE);
        let mut changes = Vec::new();
        for (publication, change) in page.changes {
            let mut covering = kinds
                .iter()
                .filter(|it| it.covers(publication, &change.key));
            let Some(kind) = covering.next() else {
                continue;
            };
            match own_user.map_or(Some(true), |user| kind.is_visible_to(user, &change)) {
                Some(true) => {}
                Some(false) => continue,
                None => return Err(self.unknown_owner(change.revision)),
            }
            let object = change.body.as_ref().map(kind.show);
            // An entry that cannot be parsed as its type is a defect. It is not shown.
            if object.as_ref().is_some_and(Option::is_none) {
                tracing::error!(kind = kind.name, "a published entry cannot be parsed");
                continue;
            }
            changes.push(VisibleChange {
                revision: change.revision,
                kind: kind.name,
                id: change.key,
                object: object.flatten(),
            });
        }
        self.position.revision = page.until;
        Ok((changes, page.more))
    }

    /// Ends the reader. An object was removed before this process led, so its owner is not known.
    fn unknown_owner(&self, revision: u64) -> EndReason {
        self.publisher.count_full_read(READER_NAME, "forgotten");
        let detail =
            format!("the owner of an object removed at revision {revision} is not known any more");
        EndReason::TooOld(gone_problem(detail, revision))
    }

    /// Waits for a commit after the last batch, until `deadline` at the latest.
    pub async fn wait(&mut self, deadline: Instant) -> Result<(), EndReason> {
        let revision = self.position.revision;
        while self.publisher.revision() <= revision && Instant::now() < deadline {
            self.check()?;
            let next_check = deadline.min(Instant::now() + TOKEN_CHECK_INTERVAL);
            let leads = |role: &PublisherRole| matches!(role, PublisherRole::Leading { .. });
            tokio::select! {
                _ = self.revisions.wait_for(|current| *current > revision) => {}
                _ = self.roles.wait_for(|role| !leads(role)) => {}
                () = self.context.shutdown.wait() => {}
                () = tokio::time::sleep_until(next_check) => {}
            }
        }
        self.check()
    }
}
