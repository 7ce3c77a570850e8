//! Handlers of `/v1/policy`: read and replace the policy.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use hayward_rm_scheduler_api::policy::{Policy, PolicyAnswer, PolicyMoves, PolicyView};
use hayward_rm_scheduler_capacity::CompositePlanner;
use hayward_rm_scheduler_domain::forecast::compare;
use hayward_rm_scheduler_policy::{Document, parse, without_names};
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Query, Scope};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use crate::command::{Command, PolicyPreview, PreviewedFleet, SetPolicy};
use crate::context::snapshot_reads::forecast_limit;
use crate::queries::policy_impact::policy_moves;
use crate::queries::what_if::DEFAULT_ROUNDS;

/// Response header with the revision of a write.
const REVISION: HeaderName = HeaderName::from_static("hayward-revision");

/// Reads the policy in force. For callers without full access, the response has no queues, no users
/// that the caller may not know by name, and no classes that are only for such users (S12).
#[utoipa::path(
    get, path = "/v1/policy", operation_id = "show_policy", tag = "policy",
    responses(
        (status = 200, description = "the policy in force", body = PolicyView,
            headers(("ETag" = String, description = "its generation"))),
    ),
)]
pub async fn show_policy(
    State(api): State<Api>,
    caller: Caller,
) -> Result<([(HeaderName, String); 1], Json<PolicyView>), Problem> {
    api.publisher().readable()?;
    let mut policy = api.context.view.read().policy.clone();
    if !caller.sees_all_users() {
        policy.policy = without_names(&policy.policy, |user| caller.may_see_user(user));
    }
    Ok((
        [(header::ETAG, format!("\"{}\"", policy.generation))],
        Json(policy),
    ))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SetPolicyQuery {
    /// Report what would change, and change nothing.
    #[serde(default)]
    #[param(required = false)]
    dry_run: bool,
    /// Allow to remove classes with work in them: their jobs and services end, reservations stay.
    #[serde(default)]
    #[param(required = false)]
    drop_classes: bool,
}

/// Replaces the policy. It is refused as a whole when anything in it is wrong. Running work is not
/// affected by a refused policy.
#[utoipa::path(
    put, path = "/v1/policy", operation_id = "set_policy", tag = "policy",
    params(
        SetPolicyQuery,
        ("If-Match" = String, Header, description = "generation the change is made from",
            pattern = "^\"?[0-9]{1,19}\"?$"),
    ),
    request_body = Policy,
    responses(
        (status = 200, description = "the policy as it is now, or would be", body = PolicyAnswer,
            headers(
                ("ETag" = String, description = "its generation"),
                ("Hayward-Revision" = u64, description = "revision of this write"),
            )),
        (status = 403, description = "for operators only", body = Problem,
            content_type = "application/problem+json"),
        (status = 412, description = "it was changed in the meantime", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "validation failed; all faults are listed", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "the slot for forecasts is in use", body = Problem,
            content_type = "application/problem+json"),
        (status = 428, description = "no If-Match", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn set_policy(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<SetPolicyQuery>,
    headers: HeaderMap,
    Json(document): Json<Document>,
) -> Result<([(HeaderName, String); 2], Json<PolicyAnswer>), Problem> {
    caller.require(&[Scope::Operator])?;
    let change = SetPolicy {
        document: parse(document),
        from_generation: if_match(&headers)?,
        changed_by: caller.name.clone(),
        dry_run: query.dry_run,
        drop_classes: query.drop_classes,
    };
    let (dry_run, drop_classes) = (change.dry_run, change.drop_classes);
    let committed = api
        .handle
        .execute(|reply| Command::SetPolicy(Box::new(change), reply))
        .await?;
    let mut response = committed.value?;
    if dry_run {
        response.moves = preview_moves(&api, &response.view.policy, drop_classes).await?;
    }
    let etag = (header::ETAG, format!("\"{}\"", response.view.generation));
    Ok((
        [etag, (REVISION, committed.revision.to_string())],
        Json(response),
    ))
}

/// Forecasts on a copy of the fleet what would change under the policy. Returns `None` before all
/// neighbours have answered.
async fn preview_moves(
    api: &Api,
    policy: &Policy,
    drop_classes: bool,
) -> Result<Option<PolicyMoves>, Problem> {
    let slot = api.context.snapshot_reads.acquire_slot().await?;
    let policy = policy.clone();
    let preview = PolicyPreview {
        policy,
        drop_classes,
    };
    let copy = match api
        .context
        .snapshot_reads
        .read(&api.handle, Some(preview))
        .await
    {
        Ok((copy, _)) => copy,
        Err(problem) if problem.code == Code::Unavailable => return Ok(None),
        Err(problem) => return Err(problem),
    };
    // A policy with faults was already refused by `Command::SetPolicy`.
    let Some(Ok(PreviewedFleet {
        snapshot: after, ..
    })) = copy.preview
    else {
        return Ok(None);
    };
    let computation = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        let before = copy.snapshot;
        let mut may_continue = forecast_limit(DEFAULT_ROUNDS);
        let forecast = compare(
            &CompositePlanner,
            &before,
            after.clone(),
            &BTreeMap::new(),
            &mut may_continue,
        );
        policy_moves(&before, &after, &forecast)
    });
    computation.await.map(Some).map_err(Problem::internal)
}

/// Returns the generation in the header `If-Match`, which is required.
fn if_match(headers: &HeaderMap) -> Result<u64, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let detail = "send the ETag of the policy you changed as If-Match";
        return Err(Problem::new(Code::PreconditionRequired, detail));
    };
    let text = value.to_str().unwrap_or_default().trim_matches('"');
    text.parse().map_err(|_| {
        let detail = "If-Match is the ETag of the policy, as in \"3\"";
        Problem::new(Code::BadRequest, detail)
    })
}
