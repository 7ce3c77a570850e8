//! Handler of `/v1/what-if`: forecasts of changes to the fleet.

use axum::extract::State;
use hayward_rm_scheduler_api::what_if::{Forecast, WhatIf};
use hayward_rm_scheduler_capacity::CompositePlanner;
use hayward_rm_scheduler_domain::forecast::compare;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Scope};
use hayward_vocabulary::UserName;

use super::Api;
use crate::command::{Command, FleetCopy, PolicyPreview, ProcessOnNode};
use crate::context::snapshot_reads::forecast_limit;
use crate::policy_check::Fault;
use crate::queries::drain_preview::preview_drains;
use crate::queries::what_if::{Requester, forbidden_fields, forecast_input, to_response};

/// Forecasts the effects of changes. The planner plans several rounds on a copy of the fleet, and
/// the fleet itself is not changed. Operators and viewers may forecast any change, submitters only
/// changes of their own work.
#[utoipa::path(
    post, path = "/v1/what-if", operation_id = "forecast_changes", tag = "what-if",
    request_body = WhatIf,
    responses(
        (status = 200, description = "the forecast", body = Forecast),
        (status = 422, description = "validation failed; all faults are listed", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "the slot for forecasts is in use", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "not all neighbours have answered yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn forecast_changes(
    State(api): State<Api>,
    caller: Caller,
    Json(query): Json<WhatIf>,
) -> Result<Json<Forecast>, Problem> {
    let requester = requester_of(&caller)?;
    let faults = forbidden_fields(&query, &requester);
    require_no_faults(
        Code::Forbidden,
        "parts of this question are not permitted",
        faults,
    )?;
    let slot = api.context.snapshot_reads.acquire_slot().await?;
    let preview = query.policy.clone().map(|policy| PolicyPreview {
        policy,
        drop_classes: false,
    });
    let (copy, revision) = api
        .context
        .snapshot_reads
        .read(&api.handle, preview)
        .await?;
    let processes = drained_processes(&api, &query).await?;
    let computation = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        forecast(&query, &requester, &copy, &processes)
    });
    let mut forecast = computation.await.map_err(Problem::internal)??;
    forecast.revision = revision;
    Ok(Json(forecast))
}

/// Returns the processes on the nodes to drain. The processes are read after the copy of the fleet
/// was made. The preview shows no destination for a process that started in between.
async fn drained_processes(api: &Api, query: &WhatIf) -> Result<Vec<ProcessOnNode>, Problem> {
    if query.drain.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = query.drain.iter().cloned().collect();
    let command = |reply| Command::ProcessesOnNodes(nodes, reply);
    Ok(api.handle.execute(command).await?.value)
}

fn forecast(
    query: &WhatIf,
    requester: &Requester,
    copy: &FleetCopy,
    processes: &[ProcessOnNode],
) -> Result<Forecast, Problem> {
    let input = forecast_input(query, requester, copy)
        .map_err(|faults| problem_with_faults(Code::Invalid, "invalid question", faults))?;
    let mut may_continue = forecast_limit(input.rounds);
    let forecast = compare(
        &CompositePlanner,
        &copy.snapshot,
        input.changed,
        &input.task_ms,
        &mut may_continue,
    );
    Ok(Forecast {
        at: copy.snapshot.now,
        silent: copy.silent.map(str::to_owned),
        drains: preview_drains(&query.drain, processes, &forecast),
        ..to_response(&forecast, requester)
    })
}

/// Returns the caller as the queries need it. Refuses callers without one of the roles.
fn requester_of(caller: &Caller) -> Result<Requester, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer, Scope::Submitter])?;
    Ok(Requester {
        user: UserName::new(caller.name.as_str()).ok(),
        groups: caller.groups.names().to_vec(),
        sees_all_users: caller.sees_all_users(),
        tenant: caller.tenant.clone(),
    })
}

fn require_no_faults(code: Code, detail: &str, faults: Vec<Fault>) -> Result<(), Problem> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(problem_with_faults(code, detail, faults))
}

/// Returns a problem with one entry for each fault.
fn problem_with_faults(code: Code, detail: &str, faults: Vec<Fault>) -> Problem {
    let problem = Problem::new(code, detail);
    let add = |problem: Problem, fault: Fault| problem.at(fault.pointer, fault.detail);
    faults.into_iter().fold(problem, add)
}
