//! Why work is as it is, and what happened to it.

use axum::extract::State;
use hayward_job_converter_api::{Explanation, Timeline, TimelineEvent, WorkState, WorkView};
use hayward_rm_scheduler_api::{VerdictEntry, WaitReason};
use hayward_service::auth::Caller;
use hayward_service::extract::{Json, Path};
use hayward_service::problem::Problem;
use hayward_vocabulary::{Timestamp, WorkId, WorkKind};

use super::App;
use super::work;
use crate::store;

fn explain(
    app: &App,
    caller: &Caller,
    (kind, id): (WorkKind, &WorkId),
) -> Result<Json<Explanation>, Problem> {
    app.publisher.readable()?;
    let (_, user) = work::owner(app, caller, (kind, id))?;
    let view = work::look(app, &user, id)?;
    let verdict = if view.state.is_final() {
        None
    } else {
        verdict(app, id)
    };
    Ok(Json(match verdict {
        Some(verdict) if is_held_back(&view, &verdict) => Explanation {
            reason: word(&WaitReason::BackingOff),
            ..told_by_state(view)
        },
        Some(verdict) => Explanation {
            id: view.id,
            state: view.state,
            reason: word(&verdict.reason),
            detail: verdict.detail,
            numbers: verdict.numbers,
            also: verdict.also.iter().map(word).collect(),
            unblock: verdict.unblock,
            receipts: verdict.receipts,
            work: Some(verdict.work),
            since: Some(verdict.since),
        },
        None => told_by_state(view),
    }))
}

/// It waits, and the scheduler sees that it wants nothing now: the view says why.
fn is_held_back(view: &WorkView, verdict: &VerdictEntry) -> bool {
    let waits = view.state == WorkState::Waiting && view.reason.is_some();
    waits && verdict.reason == WaitReason::Satisfied
}

/// Of a service, the verdict on its first instance that has one.
fn verdict(app: &App, id: &WorkId) -> Option<VerdictEntry> {
    let verdicts = app.room.verdicts.read();
    let instances = format!("{id}.");
    verdicts.get(id.as_str()).cloned().or_else(|| {
        let (key, verdict) = verdicts.range(instances.clone()..).next()?;
        key.starts_with(&instances).then(|| verdict.clone())
    })
}

fn told_by_state(view: WorkView) -> Explanation {
    let reason = match word(&view.state) {
        state if state == "waiting" => "not_yet_considered".to_owned(),
        state => state,
    };
    Explanation {
        detail: view
            .reason
            .unwrap_or_else(|| format!("it is {}", reason.replace('_', " "))),
        id: view.id,
        state: view.state,
        reason,
        numbers: std::collections::BTreeMap::new(),
        also: Vec::new(),
        unblock: None,
        receipts: Vec::new(),
        work: None,
        since: view.ended_at,
    }
}

/// A word of a closed list as it stands on the wire.
fn word<T: serde::Serialize>(of: &T) -> String {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

async fn timeline(
    app: &App,
    caller: &Caller,
    (kind, id): (WorkKind, WorkId),
) -> Result<Json<Timeline>, Problem> {
    app.publisher.leading()?;
    let (uuid, _) = work::owner(app, caller, (kind, &id))?;
    let lost = |error| Problem::unavailable("the history cannot be read now", error);
    let Some(start) = store::work::beginning(&app.pool, uuid)
        .await
        .map_err(lost)?
    else {
        return Err(Problem::not_found(&id));
    };
    let mut events = vec![TimelineEvent {
        at: Timestamp::from_unix_ms(start.submitted_at_ms),
        revision: u64::try_from(start.revision).unwrap_or(0),
        event: "submitted".to_owned(),
    }];
    for row in store::history::of(&app.pool, uuid).await.map_err(lost)? {
        events.push(TimelineEvent {
            at: Timestamp::from_unix_ms(row.at_ms),
            revision: u64::try_from(row.revision).unwrap_or(0),
            event: row.event,
        });
    }
    Ok(Json(Timeline { id, events }))
}

/// Why a job is as it is.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/explain", operation_id = "explain_job", tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_job(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, (WorkKind::Job, &id))
}

/// What happened to a job, oldest first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/timeline",
    operation_id = "show_job_timeline",
    tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the history cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_job_timeline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Timeline>, Problem> {
    timeline(&app, &caller, (WorkKind::Job, id)).await
}

/// Why a service is as it is.
#[utoipa::path(
    get, path = "/v1/services/{id}/explain", operation_id = "explain_service", tag = "services",
    params(("id" = WorkId, Path, description = "id of the service")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_service(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, (WorkKind::Service, &id))
}

/// What happened to a service, oldest first.
#[utoipa::path(
    get, path = "/v1/services/{id}/timeline",
    operation_id = "show_service_timeline",
    tag = "services",
    params(("id" = WorkId, Path, description = "id of the service")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the history cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_service_timeline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Timeline>, Problem> {
    timeline(&app, &caller, (WorkKind::Service, id)).await
}

/// Why a reservation is as it is.
#[utoipa::path(
    get, path = "/v1/reservations/{id}/explain", operation_id = "explain_reservation",
    tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, (WorkKind::Reservation, &id))
}

/// What happened to a reservation, oldest first.
#[utoipa::path(
    get, path = "/v1/reservations/{id}/timeline",
    operation_id = "show_reservation_timeline",
    tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the history cannot be read now", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_reservation_timeline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Timeline>, Problem> {
    timeline(&app, &caller, (WorkKind::Reservation, id)).await
}
