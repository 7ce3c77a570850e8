//! Routes that submit work. The handlers validate and prepare the work, and the ledger accepts it.
//! A repeated idempotency key gets the stored response (A4).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::orchestrators::{ORCHESTRATORS, OrchestratorView};
use hayward_job_converter_api::submission::{
    BulkSubmission, BulkSubmitted, JobSubmission, ReservationSubmission, ServiceSubmission,
    Submitted,
};
use hayward_service::auth::{Caller, Requester, Scope};
use hayward_service::http::extract::{Json, Query};
use hayward_service::http::idempotency::{Key, REPLAYED, digest};
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::IntoParams;
use uuid::Uuid;

use super::App;
use super::headers::{etag, revision_headers, traceparent};
use crate::command::Command;
use crate::command::RequestKey;
use crate::command::{SubmissionResponse, SubmitWork};
use crate::work::WorkSpec;
use crate::work::prepared_work::{Origin, PreparedWork, job_spec, prepare};
use crate::work::validate;

/// Maximum number of jobs in one bulk request.
pub const MAX_IN_BULK: usize = 1_000;

/// Options of a submission.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SubmitOptions {
    /// Validates and answers with the view the work would have, without accepting it (A10).
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
}

/// Options of a bulk submission.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BulkOptions {
    /// Validates without accepting any job. Results without an error would be accepted (A10).
    #[serde(default)]
    #[param(required = false)]
    pub dry_run: bool,
    /// All or nothing: one fault refuses all jobs (A16).
    #[serde(default)]
    #[param(required = false)]
    pub atomic: bool,
}

/// Submits a job.
#[utoipa::path(
    post, path = "/v1/jobs", operation_id = "submit_job", tag = "jobs",
    params(("Idempotency-Key" = String, Header, description = "a repeated key returns the same \
        job"), SubmitOptions),
    request_body = JobSubmission,
    responses(
        (status = 200, description = "with `dry_run`: the resulting view", body = WorkView),
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the job is"),
                ("ETag" = String, description = "its version"))),
        (status = 422, description = "validation failed, or the key was used \
            for another request", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn submit_job(
    State(app): State<App>,
    requester: Requester,
    key: Key,
    Query(options): Query<SubmitOptions>,
    Json(job): Json<JobSubmission>,
) -> Result<Response, Problem> {
    submit(&app, &requester, &key, options, job).await
}

/// Submits up to 1,000 jobs; each is accepted or refused on its own.
#[utoipa::path(
    post, path = "/v1/jobs/bulk", operation_id = "submit_jobs", tag = "jobs",
    params(("Idempotency-Key" = String, Header, description = "a repeated key returns the same \
        jobs"),
        BulkOptions),
    request_body = BulkSubmission,
    responses(
        (status = 200, description = "with `dry_run`: the same, without accepting anything",
            body = BulkSubmitted),
        (status = 201, description = "one result per job, in order", body = BulkSubmitted),
        (status = 422, description = "too many jobs, or the key was used for another request",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn submit_jobs(
    State(app): State<App>,
    requester: Requester,
    key: Key,
    Query(options): Query<BulkOptions>,
    Json(bulk): Json<BulkSubmission>,
) -> Result<Response, Problem> {
    let origin = request_origin(&app, &requester)?;
    let (items, content_digest) = prepare_jobs(&app, &origin, bulk, options.atomic)?;
    // The route is part of the request's digest, so an atomic request never repeats a plain one.
    let route = if options.atomic {
        "/v1/jobs/bulk?atomic"
    } else {
        "/v1/jobs/bulk"
    };
    let submit = Box::new(SubmitWork {
        request_key: request_key(&origin, &key, route, &content_digest),
        items,
        is_bulk: true,
        is_dry_run: options.dry_run,
    });
    let committed = app
        .handle
        .execute(|reply| Command::Submit(submit, reply))
        .await?;
    let accepted = committed.value?;
    let status = if options.dry_run {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let headers = revision_headers(committed.revision);
    Ok(stored_response(status, headers, &accepted))
}

/// Jobs in request order, each prepared or with the text of its faults.
type Items = Vec<Result<Box<PreparedWork>, String>>;

/// Returns the prepared jobs or their faults, and a digest of the whole request.
fn prepare_jobs(
    app: &App,
    origin: &Origin,
    bulk: BulkSubmission,
    atomic: bool,
) -> Result<(Items, String), Problem> {
    if !(1..=MAX_IN_BULK).contains(&bulk.jobs.len()) {
        let detail = format!("must be 1 to {MAX_IN_BULK} jobs");
        return Err(Problem::new(Code::Invalid, "invalid bulk request").at("/jobs", detail));
    }
    let mut refusal = Problem::new(Code::Invalid, "some items cannot be accepted");
    let mut hasher = Sha256::new();
    let mut items = Vec::with_capacity(bulk.jobs.len());
    for (index, job) in bulk.jobs.into_iter().enumerate() {
        let text = to_json(&job)?;
        hasher.update(&text);
        hasher.update([0]);
        items.push(match validate::check_job(&job) {
            Ok(()) => Ok(Box::new(prepare_submission(app, origin, job, text)?)),
            Err(faults) => {
                for fault in &faults {
                    let pointer = format!("/jobs/{index}{}", fault.pointer);
                    refusal = refusal.at(pointer, &*fault.detail);
                }
                Err(validate::faults_text(&faults))
            }
        });
    }
    if atomic && !refusal.errors.is_empty() {
        return Err(refusal);
    }
    Ok((items, format!("{:x?}", hasher.finalize())))
}

/// Submits a service.
#[utoipa::path(
    post, path = "/v1/services", operation_id = "submit_service", tag = "services",
    params(("Idempotency-Key" = String, Header, description = "a repeated key returns the same \
        service"),
        SubmitOptions),
    request_body = ServiceSubmission,
    responses(
        (status = 200, description = "with `dry_run`: the resulting view", body = WorkView),
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the service is"),
                ("ETag" = String, description = "for If-Match"))),
        (status = 422, description = "validation failed, or the key was used \
            for another request", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn submit_service(
    State(app): State<App>,
    requester: Requester,
    key: Key,
    Query(options): Query<SubmitOptions>,
    Json(service): Json<ServiceSubmission>,
) -> Result<Response, Problem> {
    submit(&app, &requester, &key, options, service).await
}

/// Submits a reservation.
#[utoipa::path(
    post, path = "/v1/reservations", operation_id = "submit_reservation", tag = "reservations",
    params(("Idempotency-Key" = String, Header, description = "a repeated key returns the same \
        reservation"), SubmitOptions),
    request_body = ReservationSubmission,
    responses(
        (status = 200, description = "with `dry_run`: the resulting view", body = WorkView),
        (status = 201, description = "accepted and durable", body = Submitted,
            headers(("Location" = String, description = "where the reservation is"),
                ("ETag" = String, description = "its version"))),
        (status = 422, description = "validation failed, or the key was used \
            for another request", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn submit_reservation(
    State(app): State<App>,
    requester: Requester,
    key: Key,
    Query(options): Query<SubmitOptions>,
    Json(reservation): Json<ReservationSubmission>,
) -> Result<Response, Problem> {
    submit(&app, &requester, &key, options, reservation).await
}

/// One kind of work that users submit.
trait Submission: Serialize + Sized {
    const ROUTE: &'static str;
    const KIND: WorkKind;

    fn validate(&self) -> Result<(), Vec<FieldFault>>;

    fn into_work(self, app: &App, user: &UserName, id: &WorkId) -> Result<WorkSpec, Problem>;
}

impl Submission for JobSubmission {
    const ROUTE: &'static str = "/v1/jobs";
    const KIND: WorkKind = WorkKind::Job;

    fn validate(&self) -> Result<(), Vec<FieldFault>> {
        validate::check_job(self)
    }

    fn into_work(self, app: &App, user: &UserName, id: &WorkId) -> Result<WorkSpec, Problem> {
        let runner = app.token_issuer.for_job(user, id)?;
        Ok(job_spec(self, runner))
    }
}

impl Submission for ServiceSubmission {
    const ROUTE: &'static str = "/v1/services";
    const KIND: WorkKind = WorkKind::Service;

    fn validate(&self) -> Result<(), Vec<FieldFault>> {
        validate::check_service(self)
    }

    fn into_work(self, _: &App, _: &UserName, _: &WorkId) -> Result<WorkSpec, Problem> {
        Ok(WorkSpec::Service(Box::new(self)))
    }
}

impl Submission for ReservationSubmission {
    const ROUTE: &'static str = "/v1/reservations";
    const KIND: WorkKind = WorkKind::Reservation;

    fn validate(&self) -> Result<(), Vec<FieldFault>> {
        validate::check_reservation(self)
    }

    fn into_work(self, _: &App, _: &UserName, _: &WorkId) -> Result<WorkSpec, Problem> {
        Ok(WorkSpec::Reservation(Box::new(self)))
    }
}

async fn submit<S: Submission>(
    app: &App,
    requester: &Requester,
    key: &Key,
    options: SubmitOptions,
    submission: S,
) -> Result<Response, Problem> {
    let origin = request_origin(app, requester)?;
    in_validation_span(|| submission.validate()).map_err(validate::into_problem)?;
    let text = to_json(&submission)?;
    let request_key = request_key(&origin, key, S::ROUTE, &text);
    let prepared = prepare_submission(app, &origin, submission, text)?;
    accept(app, S::ROUTE, request_key, prepared, options).await
}

/// Sends prepared work to the ledger. A dry run is answered with the view of the work.
async fn accept(
    app: &App,
    route: &str,
    request_key: RequestKey,
    prepared: PreparedWork,
    options: SubmitOptions,
) -> Result<Response, Problem> {
    let view = options.dry_run.then(|| prepared.view.clone());
    let submit = Box::new(SubmitWork {
        request_key,
        items: vec![Ok(Box::new(prepared))],
        is_bulk: false,
        is_dry_run: options.dry_run,
    });
    let committed = app
        .handle
        .execute(|reply| Command::Submit(submit, reply))
        .await?;
    let accepted = committed.value?;
    let mut headers = revision_headers(committed.revision);
    if let Some(view) = view {
        return Ok((StatusCode::OK, headers, Json(view)).into_response());
    }
    let submitted: Submitted = serde_json::from_str(&accepted.body).map_err(Problem::internal)?;
    let location = format!("{route}/{}", submitted.id);
    let location = HeaderValue::try_from(location).map_err(Problem::internal)?;
    headers.insert(header::LOCATION, location);
    // The first generation; only services have later ones (A3).
    headers.insert(header::ETAG, etag(1));
    Ok(stored_response(StatusCode::CREATED, headers, &accepted))
}

fn stored_response(
    status: StatusCode,
    mut headers: HeaderMap,
    accepted: &SubmissionResponse,
) -> Response {
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if accepted.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    (status, headers, accepted.body.to_string()).into_response()
}

/// Returns the user that the token names, or the user that an orchestrator acts for (S10).
fn request_origin(app: &App, requester: &Requester) -> Result<Origin, Problem> {
    let Requester { caller, headers } = requester;
    caller.require(&[Scope::Submitter])?;
    check_actor(app, caller)?;
    let user = UserName::new(caller.name.as_str())
        .map_err(|error| Problem::forbidden(format!("this token names no user: {error}")))?;
    let traceparent = traceparent(headers);
    let stop_grace_ms = app.shared.settings.stop_grace_ms;
    Ok(Origin {
        account: app.shared.accounts.known(&user),
        user,
        actor: caller.actor.clone(),
        groups: caller.groups.clone(),
        at: app.clock.now(),
        traceparent,
        stop_grace_ms,
    })
}

/// Refuses a token that acts for a user if its orchestrator may no longer charge that user.
fn check_actor(app: &App, caller: &Caller) -> Result<(), Problem> {
    let Some(actor) = &caller.actor else {
        return Ok(());
    };
    let name = actor.strip_prefix("orchestrator-").unwrap_or(actor);
    let view: Option<OrchestratorView> = app.publisher.get(ORCHESTRATORS, "", name);
    let is_listed = |view: OrchestratorView| {
        view.anyone || view.users.iter().any(|user| user.as_str() == caller.name)
    };
    if view.is_some_and(is_listed) {
        return Ok(());
    }
    let detail = format!("{actor} is not listed for {} any more", caller.name);
    Err(Problem::forbidden(detail))
}

/// Returns a submission as JSON.
pub fn to_json<T: Serialize>(submission: &T) -> Result<String, Problem> {
    serde_json::to_string(submission).map_err(Problem::internal)
}

/// Traces the validation as a span of its own (T5).
fn in_validation_span<T>(check: impl FnOnce() -> T) -> T {
    tracing::info_span!("validate").in_scope(check)
}

fn prepare_submission<S: Submission>(
    app: &App,
    origin: &Origin,
    submission: S,
    text: String,
) -> Result<PreparedWork, Problem> {
    let uuid = fresh_uuid();
    let id = WorkId::from_uuid(S::KIND, uuid);
    let spec = submission.into_work(app, &origin.user, &id)?;
    prepare(uuid, origin, spec, text)
}

/// Returns the stored form of an idempotency key. Keys are separate for each user and each actor.
fn request_key(origin: &Origin, key: &Key, route: &str, text: &str) -> RequestKey {
    let user = &origin.user;
    let caller = match &origin.actor {
        Some(actor) => format!("{actor} for {user}"),
        None => user.to_string(),
    };
    let caller_and_key = digest(&Method::POST, &caller, key.as_str().as_bytes());
    let request = digest(&Method::POST, route, text.as_bytes());
    RequestKey {
        key: first_half(&caller_and_key),
        request: first_half(&request),
    }
}

/// Returns the first 16 bytes of a digest.
fn first_half(digest: &[u8; 32]) -> Uuid {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(first)
}
