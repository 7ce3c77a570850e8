//! Lists, shows and cancels work, for jobs, services and reservations. The work of other users is
//! reported as not found (S7).

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::{JOBS, WorkList, WorkState, WorkView};
use hayward_service::Listing;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json};
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{UserName, WorkId, WorkKind};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::App;
use super::headers::revision_headers;
use crate::command::{CancelWork, ChangeTarget, Command};
use crate::work::{StopSpeed, parse_work_id};

/// Maximum time to wait until a committed change is readable (A11).
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a state, in seconds.
const MAX_WAIT_SECONDS: u64 = 25;
/// Number of entries that are read from memory at once.
const PAGE_SIZE: usize = 200;
/// Maximum number of entries that one request reads. A page that reaches it ends early and has a
/// cursor.
const MAX_ENTRIES_READ: usize = 5_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only work in this state.
    #[param(required = false, nullable = false, inline)]
    state: Option<WorkState>,
    /// Only work of this user; operators and viewers may name any user.
    #[param(required = false, nullable = false)]
    user: Option<UserName>,
    /// Entries, at most. Default 100, maximum 1000. A page may have fewer entries and still have a
    /// next page.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

impl Filter {
    fn listing(&self, kind: WorkKind) -> Listing {
        let state = self.state.map(|state| format!("{state:?}"));
        Listing::new(kind.prefix())
            .with("state", &state)
            .with("user", &self.user)
    }
}

/// State to wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The work has ended.
    #[default]
    Final,
    /// The work runs or has ended.
    Running,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Seconds to wait for the state in `until`; at most 25. The current view follows in any case.
    #[serde(default)]
    #[serde(rename = "wait")]
    #[param(rename = "wait", required = false, maximum = 25)]
    seconds: u64,
    /// State to wait for. Default `final`.
    #[serde(default)]
    #[param(required = false, inline)]
    until: Until,
}

/// Returns the owner whose work the caller may read. `None` allows any owner.
pub fn readable_user(caller: &Caller) -> Result<Option<&str>, Problem> {
    caller.require(&[Scope::Submitter, Scope::Operator, Scope::Viewer])?;
    let sees_all = caller.has(&Scope::Operator) || caller.has(&Scope::Viewer);
    Ok((!sees_all).then_some(caller.name.as_str()))
}

/// Returns the uuid and the owner of work that the caller may read.
pub fn find_readable(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    id: &WorkId,
) -> Result<(Uuid, UserName), Problem> {
    let readable_user = readable_user(caller)?;
    let missing = || Problem::not_found(id);
    let (id_kind, uuid, instance) = parse_work_id(id).ok_or_else(missing)?;
    let user = app
        .shared
        .owners
        .read()
        .owner(uuid)
        .cloned()
        .ok_or_else(missing)?;
    let is_readable = readable_user.is_none_or(|readable_user| readable_user == user.as_str());
    if id_kind == kind && instance.is_none() && is_readable {
        Ok((uuid, user))
    } else {
        Err(missing())
    }
}

pub fn read_view(app: &App, user: &UserName, id: &WorkId) -> Result<WorkView, Problem> {
    let view = app.publisher.get(JOBS, user.as_str(), id.as_str());
    view.ok_or_else(|| Problem::not_found(id))
}

/// Returns the view when the state is reached or the wait is over.
pub async fn show(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    id: WorkId,
    wait: &Wait,
) -> Result<Json<WorkView>, Problem> {
    if wait.seconds > MAX_WAIT_SECONDS {
        let detail = format!("at most {MAX_WAIT_SECONDS} seconds");
        return Err(Problem::new(Code::BadRequest, "too long a wait").at("/query/wait", detail));
    }
    app.publisher.readable()?;
    let (uuid, user) = find_readable(app, caller, kind, &id)?;
    let timeout = Duration::from_secs(wait.seconds);
    let deadline = tokio::time::Instant::now() + timeout;
    let mut changes = app.shared.views.subscribe(uuid);
    // A notification is sent before its change is committed. A notification may have been sent just
    // before the subscription, so the first pass also waits for the commit in progress.
    let next_revision = app.publisher.revision() + 1;
    loop {
        app.publisher.readable()?;
        // The revision is read before the view, so that a commit between the two is not missed.
        let in_flight = app.publisher.revision() < next_revision;
        let view = read_view(app, &user, &id)?;
        let reached = view.state.is_final()
            || (wait.until == Until::Running && view.state == WorkState::Running);
        if reached || tokio::time::Instant::now() >= deadline {
            return Ok(Json(view));
        }
        let change = async {
            tokio::select! {
                revision = changes.changed() => {
                    app.publisher.wait_for_revision(revision, OWN_WRITE_TIMEOUT).await
                }
                waited = app.publisher.wait_for_revision(next_revision, timeout), if in_flight => {
                    waited
                }
            }
        };
        // After a timeout the view is read once more.
        let _ = tokio::time::timeout_at(deadline, change).await;
    }
}

/// Lists a page of work of one kind, by user, then by age.
pub fn list(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    filter: &Filter,
) -> Result<Json<WorkList>, Problem> {
    let limit = pagination::limit(filter.limit, pagination::DEFAULT_LIMIT)?;
    if filter.state == Some(WorkState::Unknown) {
        let problem = Problem::new(Code::Invalid, "invalid list filter");
        let detail = "must be waiting, running, stopping, completed, failed, cancelled or refused";
        return Err(problem.at("/query/state", detail));
    }
    app.publisher.readable()?;
    let listing = filter.listing(kind);
    let last = filter
        .cursor
        .as_deref()
        .map(|cursor| listing.last_key(cursor));
    let last = last.transpose()?;
    let (first_user, after) = match last.as_deref().and_then(|last| last.split_once('~')) {
        None => ("", None),
        Some((user, id)) => (user, Some(id)),
    };
    let users = listed_users(app, caller, filter, first_user)?;
    let mut page = Page {
        kind,
        state: filter.state,
        limit,
        entries_read: 0,
        items: Vec::new(),
    };
    let mut next_cursor = None;
    for user in users.iter().filter(|user| user.as_str() >= first_user) {
        let after = after.filter(|_| user == first_user);
        next_cursor = page
            .fill(app, user, after)
            .map(|last| listing.cursor(format_args!("{user}~{last}")));
        if next_cursor.is_some() {
            break;
        }
    }
    let revision = app.publisher.revision();
    Ok(Json(WorkList {
        items: page.items,
        next_cursor,
        revision,
    }))
}

/// Returns the users whose work is listed, starting with `first_user`.
fn listed_users(
    app: &App,
    caller: &Caller,
    filter: &Filter,
    first_user: &str,
) -> Result<Vec<String>, Problem> {
    Ok(match (readable_user(caller)?, &filter.user) {
        (Some(own), Some(user)) if user.as_str() != own => {
            return Err(Problem::forbidden(
                "only operators and viewers may see work of other users",
            ));
        }
        (Some(own), _) => vec![own.to_owned()],
        (None, Some(user)) => vec![user.to_string()],
        (None, None) => {
            let owners = app.shared.owners.read();
            let users = owners.users_from(first_user).into_iter();
            users.map(String::from).collect()
        }
    })
}

/// A page that is being filled with work of one or several users.
struct Page {
    kind: WorkKind,
    state: Option<WorkState>,
    limit: usize,
    entries_read: usize,
    items: Vec<WorkView>,
}

impl Page {
    /// Adds work of one user. Returns the last key if the page is full.
    fn fill(&mut self, app: &App, user: &str, after: Option<&str>) -> Option<String> {
        let prefix = format!("{}_", self.kind.prefix());
        let mut after = after.unwrap_or(&prefix).to_owned();
        loop {
            let (found, _) = app
                .publisher
                .page::<WorkView>(JOBS, user, Some(&after), PAGE_SIZE);
            if found.is_empty() {
                return None;
            }
            for (key, view) in found {
                if !key.starts_with(&prefix) {
                    return None;
                }
                self.entries_read += 1;
                if self.state.is_none_or(|state| state == view.state) {
                    self.items.push(view);
                }
                if self.items.len() >= self.limit || self.entries_read >= MAX_ENTRIES_READ {
                    return Some(key);
                }
                after = key;
            }
        }
    }
}

/// Returns work of this kind, as the target of a caller that may change work.
pub fn change_target(
    caller: &Caller,
    kind: WorkKind,
    id: &WorkId,
) -> Result<ChangeTarget, Problem> {
    caller.require(&[Scope::Submitter, Scope::Operator])?;
    let missing = || Problem::not_found(id);
    let (id_kind, _, instance) = parse_work_id(id).ok_or_else(missing)?;
    if id_kind != kind || instance.is_some() {
        return Err(missing());
    }
    let is_operator = caller.has(&Scope::Operator);
    Ok(ChangeTarget {
        id: id.clone(),
        user: (!is_operator).then(|| caller.name.clone()),
        caller: caller.display_name(),
    })
}

/// Query of a cancellation of a job.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CancelOptions {
    /// Evaluates the change and reports its result, without changing anything.
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
    /// Running tasks get SIGKILL at once, without the stop signal.
    #[serde(default)]
    #[param(required = false)]
    now: bool,
}

impl From<DryRun> for CancelOptions {
    fn from(DryRun { dry_run }: DryRun) -> Self {
        Self {
            dry_run,
            now: false,
        }
    }
}

pub fn stop_speed(now: bool) -> StopSpeed {
    if now {
        StopSpeed::AtOnce
    } else {
        StopSpeed::Graceful
    }
}

/// Cancels work. Cancelling again, or cancelling ended work, changes nothing.
pub async fn cancel(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    id: WorkId,
    CancelOptions { dry_run, now }: CancelOptions,
) -> Result<(StatusCode, HeaderMap, Json<WorkView>), Problem> {
    let command = CancelWork {
        target: change_target(caller, kind, &id)?,
        speed: stop_speed(now),
    };
    let missing = || Problem::not_found(&id);
    let (_, uuid, _) = parse_work_id(&id).ok_or_else(missing)?;
    let committed = app
        .handle
        .execute(|reply| Command::Cancel(command, reply))
        .await?;
    committed.value?;
    let owner = app
        .shared
        .owners
        .read()
        .owner(uuid)
        .cloned()
        .ok_or_else(missing)?;
    let mut view = read_view(app, &owner, &id)?;
    if dry_run && !view.state.is_final() {
        let ends_at_once = view.processes.is_empty();
        view.state = if ends_at_once {
            WorkState::Cancelled
        } else {
            WorkState::Stopping
        };
    }
    let status = if view.state.is_final() || dry_run {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, revision_headers(committed.revision), Json(view)))
}
