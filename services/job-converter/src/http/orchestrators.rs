//! `/v1/orchestrators`: programs that put a map of all their work and follow its allocations. The
//! API calls such an allocation a share.

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

use super::App;
use super::headers::{etag, revision_headers};
use crate::command::Command;
use crate::orchestrators::commands::{Limits, OrchestratorCommand, PutMap};
use crate::orchestrators::{MAX_ORCHESTRATORS, parse_map};

/// Creates an orchestrator, or replaces the users it may charge. The answer has a token. Existing
/// work continues.
#[utoipa::path(
    post, path = "/v1/orchestrators", operation_id = "create_orchestrator", tag = "orchestrators",
    params(DryRun), request_body = OrchestratorOrder,
    responses(
        (status = 200, description = "with `dry_run`: the resulting view, without a token",
            body = OrchestratorView),
        (status = 201, description = "the token is shown only here", body = OrchestratorCreated,
            headers(
                ("Location" = String, description = "where the orchestrator is"),
                ("ETag" = String, description = "revision of the last change"),
            )),
        (status = 403, description = "not an operator", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "too many orchestrators, or the manager is not enabled",
            body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "validation failed; all faults are listed", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn create_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Query(options): Query<DryRun>,
    Json(request): Json<OrchestratorOrder>,
) -> Result<Response, Problem> {
    caller.require(&[Scope::Operator])?;
    parse_map::check_request(&request)?;
    let (name, users, anyone) = (request.name.clone(), request.users.clone(), request.anyone);
    let create =
        |reply| Command::Orchestrator(Box::new(OrchestratorCommand::Create(request, reply)));
    let committed = app.handle.execute(create).await?;
    let view = committed.value?;
    if options.dry_run {
        return Ok((
            revision_headers(committed.revision),
            Json(with_current_state(&app, view)),
        )
            .into_response());
    }
    let token = app.token_issuer.for_orchestrator(&name, &users, anyone);
    let headers = [
        (header::LOCATION, format!("/v1/orchestrators/{name}")),
        (header::ETAG, format!("\"{}\"", committed.revision)),
    ];
    let created = OrchestratorCreated {
        name,
        token: token.map_err(Problem::internal)?,
        revision: committed.revision,
    };
    Ok((StatusCode::CREATED, headers, Json(created)).into_response())
}

/// A new token for an orchestrator with a valid one. It lists the users that may be charged now.
#[utoipa::path(
    put, path = "/v1/orchestrators/{name}/credentials",
    operation_id = "renew_orchestrator_credentials", tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator")),
    responses(
        (status = 200, description = "the token is shown only here", body = OrchestratorCreated),
        (status = 403, description = "belongs to another orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "unknown orchestrator", body = Problem,
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
    let view = read_view(&app, &name)?;
    let token = app
        .token_issuer
        .for_orchestrator(&name, &view.users, view.anyone);
    Ok(Json(OrchestratorCreated {
        name,
        token: token.map_err(Problem::internal)?,
        revision: app.publisher.revision(),
    }))
}

/// Lists orchestrators; an orchestrator sees itself only.
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
    let (found, revision) = app
        .publisher
        .page(ORCHESTRATORS, "", None, MAX_ORCHESTRATORS);
    let (found, next_cursor) = page.page(&list, found, |(name, _)| name.clone())?;
    let views = found
        .into_iter()
        .map(|(_, view)| with_current_state(&app, view));
    Ok(Json(OrchestratorList {
        orchestrators: views.collect(),
        next_cursor,
        revision,
    }))
}

/// One orchestrator: its last map and its shares.
#[utoipa::path(
    get, path = "/v1/orchestrators/{name}", operation_id = "show_orchestrator",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator")),
    responses(
        (status = 200, description = "the orchestrator", body = OrchestratorView,
            headers(("ETag" = String, description = "revision of the last change"))),
        (status = 404, description = "not found", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
) -> Result<(HeaderMap, Json<OrchestratorView>), Problem> {
    let own_scope = Scope::Orchestrator(name.clone());
    caller.require(&[Scope::Operator, Scope::Viewer, own_scope])?;
    app.publisher.readable()?;
    let version = app.publisher.generation(ORCHESTRATORS, name.as_str());
    let version = version.map(|it| (header::ETAG, etag(it)));
    let view = with_current_state(&app, read_view(&app, &name)?);
    Ok((version.into_iter().collect(), Json(view)))
}

/// Ends all work of an orchestrator and removes it. Its token stops working until an orchestrator
/// of the same name is created.
#[utoipa::path(
    delete, path = "/v1/orchestrators/{name}", operation_id = "remove_orchestrator",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator"), DryRun),
    responses(
        (status = 204, description = "all its work ends"),
        (status = 404, description = "not found", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn remove_orchestrator(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(options): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator, Scope::Orchestrator(name.clone())])?;
    let target = name.clone();
    let remove =
        |reply| Command::Orchestrator(Box::new(OrchestratorCommand::Remove(target, reply)));
    let committed = app.handle.execute(remove).await?;
    committed.value?;
    if !options.dry_run {
        app.shared.last_maps.write().remove(&name);
    }
    Ok((StatusCode::NO_CONTENT, revision_headers(committed.revision)))
}

/// Replaces the map of all work of an orchestrator. A faulty entry is refused with a reason; other
/// entries are accepted.
#[utoipa::path(
    put, path = "/v1/orchestrators/{name}/publication", operation_id = "put_work_map",
    tag = "orchestrators",
    params(("name" = UserName, Path, description = "name of the orchestrator"), DryRun),
    request_body = WorkMap<WorkEntry>,
    responses(
        (status = 200, description = "the result, also when the map was not applied",
            body = MapAnswer),
        (status = 403, description = "belongs to another orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "unknown orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid map", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn put_work_map(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(options): Query<DryRun>,
    Json(map): Json<WorkMap<Box<RawValue>>>,
) -> Result<(HeaderMap, Json<MapAnswer>), Problem> {
    caller.require(&[Scope::Orchestrator(name.clone())])?;
    let is_own = |cursor: &Cursor| cursor.lineage == app.publisher.lineage();
    let own_revision = |text: &str| Cursor::parse(text).filter(is_own).map(|it| it.revision);
    let mut map = parse_map::parse_map(map, own_revision)?;
    map.tenant.clone_from(&caller.tenant);
    let put = PutMap {
        name: name.clone(),
        map,
        limits: Limits::default(),
    };
    let put = |reply| Command::Orchestrator(Box::new(OrchestratorCommand::PutMap(put, reply)));
    let committed = app.handle.execute(put).await?;
    let mut answer = committed.value?;
    answer.revision = committed.revision;
    if answer.applied && !options.dry_run {
        app.shared.last_maps.write().insert(name, app.clock.now());
    }
    Ok((revision_headers(committed.revision), Json(answer)))
}

/// Shares of an orchestrator and the state of its work: all, or the changes since a cursor.
#[utoipa::path(
    get, path = "/v1/orchestrators/{name}/allocations/publication",
    operation_id = "follow_orchestrated", tag = "publication",
    params(
        ("name" = UserName, Path, description = "name of the orchestrator"),
        endpoint::SinceQuery,
    ),
    responses(
        (status = 200, description = "changes, or none after the wait", body = Update<Allotted>),
        (status = 403, description = "belongs to another orchestrator", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "unknown orchestrator", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_orchestrated(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<UserName>,
    Query(since): Query<endpoint::SinceQuery>,
) -> Result<Response, Problem> {
    let own_scope = Scope::Orchestrator(name.clone());
    caller.require(&[Scope::Operator, Scope::Viewer, own_scope])?;
    app.publisher.leading()?;
    read_view(&app, &name)?;
    endpoint::respond(&app.publisher, ORCHESTRATED, name.as_str(), &since, false).await
}

fn read_view(app: &App, name: &UserName) -> Result<OrchestratorView, Problem> {
    let view = app.publisher.get(ORCHESTRATORS, "", name.as_str());
    view.ok_or_else(|| Problem::not_found(name))
}

/// Adds the fields that are not published, because they change with every map and with time.
fn with_current_state(app: &App, mut view: OrchestratorView) -> OrchestratorView {
    view.counts = count_entries(app, &view.name);
    let last_map = app.shared.last_maps.read().get(&view.name).copied();
    let last: Option<Timestamp> = last_map.max(view.accepted_at);
    let age = last.map(|last| app.clock.now().unix_ms() - last.unix_ms());
    view.age_ms = age.map(|age| u64::try_from(age).unwrap_or(0));
    let limit = app.shared.settings.orchestrator_silent_ms;
    view.silent = view.age_ms.is_some_and(|age| age > limit);
    view.note = match view.age_ms {
        None => Some("it has put no map yet".to_owned()),
        Some(age) if view.silent => Some(format!(
            "no map for {} s; its work continues and its shares are retained",
            age / 1000
        )),
        Some(_) => None,
    };
    view
}

fn count_entries(app: &App, name: &UserName) -> OrchestratorCounts {
    const PAGE_SIZE: usize = 1_000;
    let (mut counts, mut after) = (OrchestratorCounts::default(), None);
    loop {
        let (found, _) = app.publisher.page::<Allotted>(
            ORCHESTRATED,
            name.as_str(),
            after.as_deref(),
            PAGE_SIZE,
        );
        let is_full = found.len() == PAGE_SIZE;
        after = found.last().map(|(key, _)| key.clone());
        for (_, entry) in &found {
            count_entry(&mut counts, entry);
        }
        if !is_full {
            return counts;
        }
    }
}

fn count_entry(counts: &mut OrchestratorCounts, entry: &Allotted) {
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
