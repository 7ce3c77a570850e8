//! Routes that explain the state of work, and show its timeline.

use std::collections::BTreeMap;

use axum::extract::State;
use hayward_job_converter_api::{
    Explanation, NOT_YET_CONSIDERED, OthersLost, Timeline, TimelineEvent, WorkState, WorkView,
};
use hayward_rm_scheduler_api::{VerdictEntry, WaitReason};
use hayward_service::auth::Caller;
use hayward_service::http::extract::{Json, Path};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{Timestamp, UserName, WorkId, WorkKind};

use super::App;
use super::work;
use crate::store;
use crate::work::published_entries::wire_name;

fn explain(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    id: &WorkId,
) -> Result<Json<Explanation>, Problem> {
    app.publisher.readable()?;
    let (_, user) = work::find_readable(app, caller, kind, id)?;
    let view = work::read_view(app, &user, id)?;
    let verdict = if view.state.is_final() {
        None
    } else {
        find_verdict(app, id)
    };
    Ok(Json(match verdict.map(|it| redact_receipts(caller, it)) {
        Some((verdict, _)) if is_held_back(&view, &verdict) => Explanation {
            reason: wire_name(&WaitReason::BackingOff),
            ..explanation_from_view(view)
        },
        Some((verdict, others_lost)) => Explanation {
            id: view.id,
            state: view.state,
            reason: wire_name(&verdict.reason),
            detail: verdict.detail,
            numbers: verdict.numbers,
            also: verdict.also.iter().map(wire_name).collect(),
            unblock: verdict.unblock,
            receipts: verdict.receipts,
            others_lost,
            work: Some(verdict.work),
            since: Some(verdict.since),
        },
        None => explanation_from_view(view),
    }))
}

/// Removes the receipts of users that the caller may not see. Returns the sum of these receipts,
/// without names (S12).
fn redact_receipts(
    caller: &Caller,
    mut verdict: VerdictEntry,
) -> (VerdictEntry, Option<OthersLost>) {
    let mut lost = OthersLost::default();
    verdict.receipts.retain_mut(|receipt| {
        let may_see = |user: &UserName| caller.may_see_user(user.as_str());
        if !receipt.for_user.as_ref().is_some_and(may_see) {
            (receipt.for_user, receipt.beneficiary) = (None, None);
        }
        let is_visible = may_see(&receipt.user);
        if !is_visible {
            lost.processes += 1;
            lost.quanta += receipt.order;
            lost.lost_ms += receipt.lost_ms;
        }
        is_visible
    });
    (verdict, (lost.processes > 0).then_some(lost))
}

/// Returns true if job-converter itself delays the work, for example after failures. The scheduler
/// then sees no demand, and the view of the work has the reason.
fn is_held_back(view: &WorkView, verdict: &VerdictEntry) -> bool {
    let waits = view.state == WorkState::Waiting && view.reason.is_some();
    waits && verdict.reason == WaitReason::Satisfied
}

/// Returns the verdict of the work. For a service, it is that of the first instance that has one.
fn find_verdict(app: &App, id: &WorkId) -> Option<VerdictEntry> {
    let verdicts = app.shared.verdicts.read();
    let instances = format!("{id}.");
    verdicts.get(id.as_str()).cloned().or_else(|| {
        let (key, verdict) = verdicts.range(instances.clone()..).next()?;
        key.starts_with(&instances).then(|| verdict.clone())
    })
}

fn explanation_from_view(view: WorkView) -> Explanation {
    let (reason, numbers) = match view.refusal {
        Some(refusal) => (refusal.reason, refusal.numbers),
        None if view.state == WorkState::Waiting => {
            (NOT_YET_CONSIDERED.to_owned(), BTreeMap::new())
        }
        None => (wire_name(&view.state), BTreeMap::new()),
    };
    Explanation {
        detail: view
            .reason
            .unwrap_or_else(|| format!("it is {}", reason.replace('_', " "))),
        id: view.id,
        state: view.state,
        reason,
        numbers,
        also: Vec::new(),
        unblock: None,
        receipts: Vec::new(),
        others_lost: None,
        work: None,
        since: view.ended_at,
    }
}

async fn load_timeline(
    app: &App,
    caller: &Caller,
    kind: WorkKind,
    id: WorkId,
) -> Result<Json<Timeline>, Problem> {
    app.publisher.readable()?;
    let (uuid, _) = work::find_readable(app, caller, kind, &id)?;
    let unavailable = |error| Problem::unavailable("the history cannot be read now", error);
    let Some(start) = store::work::load_timeline_start(&app.pool, uuid)
        .await
        .map_err(unavailable)?
    else {
        return Err(Problem::not_found(&id));
    };
    let mut events = vec![TimelineEvent {
        at: Timestamp::from_unix_ms(start.submitted_at_ms),
        revision: u64::try_from(start.revision).unwrap_or(0),
        event: "submitted".to_owned(),
    }];
    for row in store::timeline::load_events(&app.pool, uuid)
        .await
        .map_err(unavailable)?
    {
        events.push(TimelineEvent {
            at: Timestamp::from_unix_ms(row.at_ms),
            revision: u64::try_from(row.revision).unwrap_or(0),
            event: row.event,
        });
    }
    Ok(Json(Timeline { id, events }))
}

/// Explains the state of a job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/explain", operation_id = "explain_job", tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_job(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, WorkKind::Job, &id)
}

/// Timeline of a job, oldest entry first.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/timeline",
    operation_id = "show_job_timeline",
    tag = "jobs",
    params(("id" = WorkId, Path, description = "id of the job")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
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
    load_timeline(&app, &caller, WorkKind::Job, id).await
}

/// Explains the state of a service.
#[utoipa::path(
    get, path = "/v1/services/{id}/explain", operation_id = "explain_service", tag = "services",
    params(("id" = WorkId, Path, description = "id of the service")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_service(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, WorkKind::Service, &id)
}

/// Timeline of a service, oldest entry first.
#[utoipa::path(
    get, path = "/v1/services/{id}/timeline",
    operation_id = "show_service_timeline",
    tag = "services",
    params(("id" = WorkId, Path, description = "id of the service")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
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
    load_timeline(&app, &caller, WorkKind::Service, id).await
}

/// Explains the state of a reservation.
#[utoipa::path(
    get, path = "/v1/reservations/{id}/explain", operation_id = "explain_reservation",
    tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation")),
    responses(
        (status = 200, description = "the reason and its numbers", body = Explanation),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn explain_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<Json<Explanation>, Problem> {
    explain(&app, &caller, WorkKind::Reservation, &id)
}

/// Timeline of a reservation, oldest entry first.
#[utoipa::path(
    get, path = "/v1/reservations/{id}/timeline",
    operation_id = "show_reservation_timeline",
    tag = "reservations",
    params(("id" = WorkId, Path, description = "id of the reservation")),
    responses(
        (status = 200, description = "its history", body = Timeline),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
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
    load_timeline(&app, &caller, WorkKind::Reservation, id).await
}

#[cfg(test)]
mod tests {
    use hayward_service::Scope;
    use hayward_service::auth::{Caller, Principal, Tenant};
    use serde_json::{Value, json};

    use super::*;

    /// Returns a verdict on a job of ann. Her job was preempted for ben's job, and two jobs of cy
    /// for her job.
    fn verdict() -> VerdictEntry {
        let receipt = |user: &str, quanta: u64, for_user: &str| {
            json!({"round": 1, "at": "2026-01-01T00:00:00.000Z", "allocation": "alc_1",
                   "work": format!("job_{user}"), "user": user, "node": "n1", "order": quanta,
                   "lost_ms": 10 * quanta, "beneficiary": format!("job_{for_user}"),
                   "for_user": for_user, "outcome": {"state": "open"}})
        };
        let verdict: Value = json!({"work": "job_ann", "reason": "satisfied", "detail": "",
            "since": "2026-01-01T00:00:00.000Z", "counted": 1, "granted": 1,
            "receipts": [receipt("ann", 1, "ben"), receipt("cy", 3, "ann"),
                         receipt("cy", 4, "ann")]});
        serde_json::from_value(verdict).unwrap()
    }

    fn redact_for(principal: Principal) -> (String, Option<OthersLost>) {
        let (verdict, lost) = redact_receipts(&Caller(principal.into()), verdict());
        (serde_json::to_string(&verdict.receipts).unwrap(), lost)
    }

    /// Users of other tenants appear only in a sum (S12).
    #[test]
    fn receipts_name_only_users_the_caller_may_see() {
        let ann = Principal::new("ann", [Scope::Submitter]);
        let (text, lost) = redact_for(ann.clone());
        assert!(!text.contains("ben") && !text.contains("cy"), "{text}");
        assert!(text.contains("\"ann\""), "her own loss is listed: {text}");
        let all = OthersLost {
            processes: 2,
            quanta: 7,
            lost_ms: 70,
        };
        assert_eq!(lost, Some(all));
        let tenant_users = ["ann", "ben"].map(str::to_owned);
        let acme = Tenant::new("acme".parse().unwrap(), tenant_users);
        let (text, lost) = redact_for(ann.with_tenant(Some(acme.into())));
        assert!(text.contains("job_ben") && !text.contains("cy"), "{text}");
        assert_eq!(lost, Some(all));
        let (text, lost) = redact_for(Principal::new("boss", [Scope::Viewer]));
        assert!(text.contains("job_ben") && text.contains("cy") && lost.is_none());
    }
}
