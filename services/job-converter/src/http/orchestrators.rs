//! `/v1/orchestrators`: programs that put a map of all their work, and follow what it was given.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_job_converter_api::orchestrators::{
    Allotted, MapAnswer, ORCHESTRATED, ORCHESTRATORS, OrchestratorCounts, OrchestratorCreated,
    OrchestratorList, OrchestratorOrder, OrchestratorView, Standing, WorkEntry, WorkMap,
};
use hayward_publication::{Cursor, Update, endpoint};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_service::{Listing, PageQuery};
use hayward_vocabulary::{Timestamp, UserName};
use serde_json::value::RawValue;

use super::amend::etag;
use super::{App, revision};
use crate::command::Command;
use crate::orchestrators::commands::{Act, Limits, Put};
use crate::orchestrators::{MOST, parse};

/// Makes an orchestrator, or says anew whom it may charge; answers with a token for it. What it
/// has stays.
#[utoipa::path(
    post, path = "/v1/orchestrators", operation_id = "create_orchestrator", tag = "orchestrators",
    params(DryRun), request_body = OrchestratorOrder,
    responses(
        (status = 200, description = "with `dry_run`: as it would be, and no token",
            body = OrchestratorView),
        (status = 201, description = "its token is shown here alone", body = OrchestratorCreated,
            headers(
                ("Location" = String, description = "where the orchestrator is"),
                ("ETag" = String, description = "the revision at which it changed last"),
            )),
        (status = 403, description = "not an operator", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "too many orchestrators, or the manager is not enabled",
            body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "it means nothing that can be done", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn create_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Query(trial): Query<DryRun>,
    Json(order): Json<OrchestratorOrder>,
) -> Result<Response, Problem> {
    caller.require(&[Scope::Operator])?;
    parse::order(&order)?;
    let (name, users, anyone) = (order.name.clone(), order.users.clone(), order.anyone);
    let make = |reply| Command::Orchestrator(Box::new(Act::Create(order, reply)));
    let committed = app.handle.ask(make).await?;
    let view = committed.value?;
    if trial.dry_run {
        return Ok((revision(committed.revision), Json(as_of_now(&app, view))).into_response());
    }
    let token = app.runners.for_orchestrator(&name, &users, anyone);
    let place = [
        (header::LOCATION, format!("/v1/orchestrators/{name}")),
        (header::ETAG, format!("\"{}\"", committed.revision)),
    ];
    let created = OrchestratorCreated {
        name,
        token: token.map_err(Problem::internal)?,
        revision: committed.revision,
    };
    Ok((StatusCode::CREATED, place, Json(created)).into_response())
}

/// A fresh token for an orchestrator that still has a good one: it names whom it may act for now.
#[utoipa::path(
    put, path = "/v1/orchestrators/{name}/credentials",
    operation_id = "renew_orchestrator_credentials", tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator")),
    responses(
        (status = 200, description = "its token is shown here alone", body = OrchestratorCreated),
        (status = 403, description = "another orchestrator's", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "there is no such orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn renew_orchestrator_credentials(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
) -> Result<Json<OrchestratorCreated>, Problem> {
    caller.require(&[Scope::Orchestrator(name.clone())])?;
    app.publisher.leading()?;
    let view = look(&app, &name)?;
    let token = app
        .runners
        .for_orchestrator(&name, &view.users, view.anyone);
    Ok(Json(OrchestratorCreated {
        name,
        token: token.map_err(Problem::internal)?,
        revision: app.publisher.revision(),
    }))
}

/// Whoever acts for a user is still listed for them, whatever its token says.
pub fn still_listed(app: &App, caller: &Caller) -> Result<(), Problem> {
    let Some(actor) = &caller.actor else {
        return Ok(());
    };
    let name = actor.strip_prefix("orchestrator-").unwrap_or(actor);
    let view: Option<OrchestratorView> = app.publisher.get(ORCHESTRATORS, "", name);
    let listed = |view: OrchestratorView| {
        view.anyone || view.users.iter().any(|user| user.as_str() == caller.name)
    };
    if view.is_some_and(listed) {
        return Ok(());
    }
    let detail = format!("{actor} is not listed for {} any more", caller.name);
    Err(Problem::forbidden(detail))
}

/// All orchestrators; for one of them, itself.
#[utoipa::path(
    get, path = "/v1/orchestrators", operation_id = "list_orchestrators", tag = "orchestrators",
    params(PageQuery),
    responses(
        (status = 200, description = "a page, in order of name", body = OrchestratorList),
    ),
)]
pub async fn list_orchestrators(
    State(app): State<App>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<OrchestratorList>, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer])?;
    app.publisher.readable()?;
    let list = Listing::new("/v1/orchestrators");
    let (found, revision) = app.publisher.page(ORCHESTRATORS, "", None, MOST);
    let (found, next_cursor) = page.page(&list, found, |(name, _)| name.clone())?;
    let views = found.into_iter().map(|(_, view)| as_of_now(&app, view));
    Ok(Json(OrchestratorList {
        orchestrators: views.collect(),
        next_cursor,
        revision,
    }))
}

/// One orchestrator: its last map, and what it has.
#[utoipa::path(
    get, path = "/v1/orchestrators/{name}", operation_id = "show_orchestrator",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator")),
    responses(
        (status = 200, description = "the orchestrator", body = OrchestratorView,
            headers(("ETag" = String, description = "the revision at which it changed last"))),
        (status = 404, description = "not there", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
) -> Result<(HeaderMap, Json<OrchestratorView>), Problem> {
    let itself = Scope::Orchestrator(name.clone());
    caller.require(&[Scope::Operator, Scope::Viewer, itself])?;
    app.publisher.readable()?;
    let version = app.publisher.generation(ORCHESTRATORS, name.as_str());
    let version = version.map(|it| (header::ETAG, etag(it)));
    let view = as_of_now(&app, look(&app, &name)?);
    Ok((version.into_iter().collect(), Json(view)))
}

/// Ends all work of an orchestrator and forgets it; its token is good for nothing then, until one
/// of the same name is made: it names nothing else.
#[utoipa::path(
    delete, path = "/v1/orchestrators/{name}", operation_id = "remove_orchestrator",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator"), DryRun),
    responses(
        (status = 204, description = "all its work ends"),
        (status = 404, description = "not there", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn remove_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(trial): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator, Scope::Orchestrator(name.clone())])?;
    let act = name.clone();
    let remove = |reply| Command::Orchestrator(Box::new(Act::Remove(act, reply)));
    let committed = app.handle.ask(remove).await?;
    committed.value?;
    if !trial.dry_run {
        app.room.heard.write().remove(&name);
    }
    Ok((StatusCode::NO_CONTENT, revision(committed.revision)))
}

/// Takes the map of all work of an orchestrator in place of the one before. An entry that is bad
/// is refused with its reason, and harms no other.
#[utoipa::path(
    put, path = "/v1/orchestrators/{name}/publication", operation_id = "put_work_map",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator"), DryRun),
    request_body = WorkMap<WorkEntry>,
    responses(
        (status = 200, description = "what became of it, also where it was not applied",
            body = MapAnswer),
        (status = 403, description = "another orchestrator's", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "there is no such orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "no map", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn put_work_map(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(trial): Query<DryRun>,
    Json(map): Json<WorkMap<Box<RawValue>>>,
) -> Result<(HeaderMap, Json<MapAnswer>), Problem> {
    caller.require(&[Scope::Orchestrator(name.clone())])?;
    let ours = |cursor: &Cursor| cursor.lineage == app.publisher.lineage();
    let seen = |text: &str| Cursor::parse(text).filter(ours).map(|it| it.revision);
    let mut map = parse::map(map, seen)?;
    map.tenant.clone_from(&caller.tenant);
    let put = Put {
        name: name.clone(),
        map,
        limits: Limits::default(),
    };
    let put = |reply| Command::Orchestrator(Box::new(Act::Put(put, reply)));
    let committed = app.handle.ask(put).await?;
    let mut answer = committed.value?;
    answer.revision = committed.revision;
    if answer.applied && !trial.dry_run {
        app.room.heard.write().insert(name, app.clock.now());
    }
    Ok((revision(committed.revision), Json(answer)))
}

/// What an orchestrator was given: its shares, and how each piece of its work stands, since a
/// cursor, or all of it.
#[utoipa::path(
    get, path = "/v1/orchestrators/{name}/allocations/publication",
    operation_id = "follow_orchestrated", tag = "publication",
    params(
        ("name" = UserName, Path, description = "name of the orchestrator"),
        endpoint::Since,
    ),
    responses(
        (status = 200, description = "news, or nothing after the wait", body = Update<Allotted>),
        (status = 403, description = "another orchestrator's", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "there is no such orchestrator", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_orchestrated(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(since): Query<endpoint::Since>,
) -> Result<Response, Problem> {
    let itself = Scope::Orchestrator(name.clone());
    caller.require(&[Scope::Operator, Scope::Viewer, itself])?;
    app.publisher.leading()?;
    look(&app, &name)?;
    endpoint::answer(&app.publisher, ORCHESTRATED, name.as_str(), &since, false).await
}

fn look(app: &App, name: &UserName) -> Result<OrchestratorView, Problem> {
    let view = app.publisher.get(ORCHESTRATORS, "", name.as_str());
    view.ok_or_else(|| Problem::not_found(name))
}

/// What is of the moment is not published.
fn as_of_now(app: &App, mut view: OrchestratorView) -> OrchestratorView {
    view.counts = counts(app, &view.name);
    let heard = app.room.heard.read().get(&view.name).copied();
    let last: Option<Timestamp> = heard.max(view.accepted_at);
    let age = last.map(|last| app.clock.now().unix_ms() - last.unix_ms());
    view.age_ms = age.map(|age| u64::try_from(age).unwrap_or(0));
    let limit = app.room.settings.orchestrator_silent_ms;
    view.silent = view.age_ms.is_some_and(|age| age > limit);
    view.note = match view.age_ms {
        None => Some("it has put no map yet".to_owned()),
        Some(age) if view.silent => Some(format!(
            "no map for {} s: its work stays as it is, and its shares are kept",
            age / 1000
        )),
        Some(_) => None,
    };
    view
}

fn counts(app: &App, name: &UserName) -> OrchestratorCounts {
    const PAGE: usize = 1_000;
    let (mut counts, mut after) = (OrchestratorCounts::default(), None);
    loop {
        let (found, _) =
            app.publisher
                .page::<Allotted>(ORCHESTRATED, name.as_str(), after.as_deref(), PAGE);
        let full = found.len() == PAGE;
        after = found.last().map(|(key, _)| key.clone());
        for (_, entry) in &found {
            count(&mut counts, entry);
        }
        if !full {
            return counts;
        }
    }
}

fn count(counts: &mut OrchestratorCounts, entry: &Allotted) {
    match entry {
        Allotted::Share(share) if share.exit.is_some() => {}
        Allotted::Share(share) => {
            counts.shares += 1;
            counts.leaving += u64::from(share.vacate.is_some());
        }
        Allotted::Work(work) => match work.state {
            Standing::Waiting => counts.waiting += 1,
            Standing::Held => counts.held += 1,
            Standing::Over | Standing::Unknown => counts.over += 1,
            Standing::Refused => counts.refused += 1,
        },
    }
}
