//! Submissions: checked and made ready here, accepted by the ledger, answered once per key (A4).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_job_converter_api::submission::{
    BulkSubmission, BulkSubmitted, JobSubmission, ReservationSubmission, ServiceSubmission,
    Submitted,
};
use hayward_service::auth::{Caller, Scope};
use hayward_service::clock::fresh_uuid;
use hayward_service::extract::Json;
use hayward_service::idempotency::{Key, REPLAYED, digest};
use hayward_service::problem::{Code, FieldFault, Problem};
use hayward_service::trace::Place;
use hayward_vocabulary::{UserName, WorkId, WorkKind};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::orchestrators::still_listed;
use super::{App, revision};
use crate::intake::{Origin, Prepared, job_of, prepare};
use crate::ledger::Command;
use crate::ledger::commands::Submit;
use crate::ledger::keys::Once;
use crate::validate;
use crate::work::What;

/// Jobs in one bulk request at most.
const MOST_IN_BULK: usize = 1_000;

/// Submits a job: tasks to run.
#[utoipa::path(
    post, path = "/v1/jobs", operation_id = "submit_job", tag = "jobs",
    params(("Idempotency-Key" = String, Header, description = "the same key, the same job")),
    request_body = JobSubmission,
    responses(
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the job is"))),
        (status = 400, description = "not understood", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "it means nothing that can be done, or the key was used \
            for something else", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn submit_job(
    State(app): State<App>,
    (caller, key, headers): (Caller, Key, HeaderMap),
    Json(job): Json<JobSubmission>,
) -> Result<Response, Problem> {
    let origin = origin(&app, &caller, &headers)?;
    checked(|| validate::job(&job)).map_err(validate::problem)?;
    let text = written(&job)?;
    let once = once(&origin, &key, "/v1/jobs", &text);
    let prepared = prepared_job(&app, &origin, job, text)?;
    accept(&app, "/v1/jobs", (once, prepared)).await
}

/// Submits up to 1,000 jobs; each is accepted or not for itself.
#[utoipa::path(
    post, path = "/v1/jobs/bulk", operation_id = "submit_jobs", tag = "jobs",
    params(("Idempotency-Key" = String, Header, description = "the same key, the same jobs")),
    request_body = BulkSubmission,
    responses(
        (status = 201, description = "one result per job, in order", body = BulkSubmitted),
        (status = 400, description = "not understood", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "too many, or the key was used for something else",
            body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn submit_jobs(
    State(app): State<App>,
    (caller, key, headers): (Caller, Key, HeaderMap),
    Json(bulk): Json<BulkSubmission>,
) -> Result<Response, Problem> {
    let origin = origin(&app, &caller, &headers)?;
    if !(1..=MOST_IN_BULK).contains(&bulk.jobs.len()) {
        let detail = format!("must be 1 to {MOST_IN_BULK} jobs");
        return Err(Problem::new(Code::Invalid, "this is no bulk").at("/jobs", detail));
    }
    let mut hash = Sha256::new();
    let mut items = Vec::with_capacity(bulk.jobs.len());
    for job in bulk.jobs {
        let text = written(&job)?;
        hash.update(&text);
        hash.update([0]);
        items.push(match validate::job(&job) {
            Ok(()) => Ok(Box::new(prepared_job(&app, &origin, job, text)?)),
            Err(faults) => Err(in_words(&faults)),
        });
    }
    let whole = format!("{:x?}", hash.finalize());
    let once = once(&origin, &key, "/v1/jobs/bulk", &whole);
    let submit = Box::new(Submit {
        once,
        items,
        bulk: true,
    });
    let committed = app
        .handle
        .ask(|reply| Command::Submit(submit, reply))
        .await?;
    let accepted = committed.value?;
    let body = accepted.answer.to_string();
    Ok(created(
        revision(committed.revision),
        accepted.replayed,
        body,
    ))
}

/// Submits a service: instances of a program to keep up.
#[utoipa::path(
    post, path = "/v1/services", operation_id = "submit_service", tag = "services",
    params(("Idempotency-Key" = String, Header, description = "the same key, the same service")),
    request_body = ServiceSubmission,
    responses(
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the service is"))),
        (status = 400, description = "not understood", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "it means nothing that can be done, or the key was used \
            for something else", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn submit_service(
    State(app): State<App>,
    (caller, key, headers): (Caller, Key, HeaderMap),
    Json(service): Json<ServiceSubmission>,
) -> Result<Response, Problem> {
    let origin = origin(&app, &caller, &headers)?;
    checked(|| validate::service(&service)).map_err(validate::problem)?;
    let text = written(&service)?;
    let once = once(&origin, &key, "/v1/services", &text);
    let what = What::Service(Box::new(service));
    let prepared = prepare(fresh_uuid(), &origin, what, text)?;
    accept(&app, "/v1/services", (once, prepared)).await
}

/// Submits a reservation: a machine to hold.
#[utoipa::path(
    post, path = "/v1/reservations", operation_id = "submit_reservation", tag = "reservations",
    params(("Idempotency-Key" = String, Header, description = "the same key, the same one")),
    request_body = ReservationSubmission,
    responses(
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the reservation is"))),
        (status = 400, description = "not understood", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "it means nothing that can be done, or the key was used \
            for something else", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "not the leader", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn submit_reservation(
    State(app): State<App>,
    (caller, key, headers): (Caller, Key, HeaderMap),
    Json(reservation): Json<ReservationSubmission>,
) -> Result<Response, Problem> {
    let origin = origin(&app, &caller, &headers)?;
    checked(|| validate::reservation(&reservation)).map_err(validate::problem)?;
    let text = written(&reservation)?;
    let once = once(&origin, &key, "/v1/reservations", &text);
    let what = What::Reservation(Box::new(reservation));
    let prepared = prepare(fresh_uuid(), &origin, what, text)?;
    accept(&app, "/v1/reservations", (once, prepared)).await
}

async fn accept(
    app: &App,
    route: &str,
    (once, prepared): (Once, Prepared),
) -> Result<Response, Problem> {
    let submit = Box::new(Submit {
        once,
        items: vec![Ok(Box::new(prepared))],
        bulk: false,
    });
    let committed = app
        .handle
        .ask(|reply| Command::Submit(submit, reply))
        .await?;
    let accepted = committed.value?;
    let told: Submitted = serde_json::from_str(&accepted.answer).map_err(Problem::internal)?;
    let mut headers = revision(committed.revision);
    let place = HeaderValue::try_from(format!("{route}/{}", told.id)).map_err(Problem::internal)?;
    headers.insert(header::LOCATION, place);
    Ok(created(
        headers,
        accepted.replayed,
        accepted.answer.to_string(),
    ))
}

fn created(mut headers: HeaderMap, replayed: bool, body: String) -> Response {
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    (StatusCode::CREATED, headers, body).into_response()
}

/// The user is whom the token names, or whom it may act for, and nobody else (D11, S10).
fn origin(app: &App, caller: &Caller, headers: &HeaderMap) -> Result<Origin, Problem> {
    caller.require(&[Scope::Submitter])?;
    still_listed(app, caller)?;
    let user = UserName::new(caller.name.as_str())
        .map_err(|error| Problem::forbidden(format!("this token names no user: {error}")))?;
    let traceparent = traceparent(headers);
    let stop_grace_ms = app.room.settings.stop_grace_ms;
    Ok(Origin {
        user,
        actor: caller.actor.clone(),
        groups: caller.groups.clone(),
        at: app.clock.now(),
        traceparent,
        stop_grace_ms,
    })
}

/// T5: the check as a part of the trace of its submission.
fn checked<T>(check: impl FnOnce() -> T) -> T {
    tracing::info_span!("validate").in_scope(check)
}

/// Where this request is traced; where nobody keeps that, what its sender says of a trace.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    if let Some(here) = Place::here() {
        return Some(here.to_string());
    }
    let given = headers.get("traceparent");
    given
        .and_then(|value| value.to_str().ok())
        .filter(|text| text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic()))
        .map(str::to_owned)
}

fn prepared_job(
    app: &App,
    origin: &Origin,
    job: JobSubmission,
    text: String,
) -> Result<Prepared, Problem> {
    let uuid = fresh_uuid();
    let id = WorkId::fresh(WorkKind::Job, uuid);
    let runner = app.runners.for_job(&origin.user, &id)?;
    prepare(uuid, origin, job_of(job, runner), text)
}

pub fn written<T: Serialize>(submission: &T) -> Result<String, Problem> {
    serde_json::to_string(submission).map_err(Problem::internal)
}

/// A key is its caller's own: of the user, or of whoever acts for them.
fn once(origin: &Origin, key: &Key, route: &str, text: &str) -> Once {
    let user = &origin.user;
    let caller = match &origin.actor {
        Some(actor) => format!("{actor} for {user}"),
        None => user.to_string(),
    };
    let whose = digest(&Method::POST, &caller, key.as_str().as_bytes());
    let request = digest(&Method::POST, route, text.as_bytes());
    Once {
        key: half(&whose),
        request: half(&request),
    }
}

fn half(digest: &[u8; 32]) -> Uuid {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(first)
}

fn in_words(faults: &[FieldFault]) -> String {
    let words: Vec<String> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.pointer, fault.detail))
        .collect();
    words.join("; ")
}
