//! `/v1/what-if`

use axum::extract::State;
use hayward_rm_scheduler_api::what_if::{Forecast, WhatIf};
use hayward_rm_scheduler_capacity::ByPool;
use hayward_rm_scheduler_domain::forecast::compare;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Scope};
use hayward_vocabulary::UserName;

use super::Api;
use crate::command::{Command, FleetCopy, PolicyQuestion, ProcessOnNode};
use crate::context::snapshot_reads::within_time;
use crate::policy::Fault;
use crate::queries::drain_preview::drains;
use crate::queries::what_if::{Requester, answer, not_theirs, question};

/// Forecasts what would happen. The planner runs round after round on a copy of the fleet; nothing
/// is changed. Operators and viewers may ask anything, submitters about their own work.
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
    Json(ask): Json<WhatIf>,
) -> Result<Json<Forecast>, Problem> {
    let requester = requester(&caller)?;
    let not_theirs = not_theirs(&ask, &requester);
    refused(
        Code::Forbidden,
        "parts of this question are not permitted",
        not_theirs,
    )?;
    let place = api.context.snapshot_reads.slot().await?;
    let policy_question = ask.policy.clone().map(|policy| PolicyQuestion {
        policy,
        drop_classes: false,
    });
    let (copy, revision) = api
        .context
        .snapshot_reads
        .read(&api.handle, policy_question)
        .await?;
    let processes = drained_processes(&api, &ask).await?;
    let computed = tokio::task::spawn_blocking(move || {
        let _place = place;
        forecast(&ask, &requester, &copy, &processes)
    });
    let mut forecast = computed.await.map_err(Problem::internal)??;
    forecast.revision = revision;
    Ok(Json(forecast))
}

/// Processes on the nodes to drain. They are read after the copy of the fleet, so a process that
/// came in between has no destination.
async fn drained_processes(api: &Api, ask: &WhatIf) -> Result<Vec<ProcessOnNode>, Problem> {
    if ask.drain.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = ask.drain.iter().cloned().collect();
    let policy_question = |reply| Command::ProcessesOn(nodes, reply);
    Ok(api.handle.ask(policy_question).await?.value)
}

fn forecast(
    ask: &WhatIf,
    requester: &Requester,
    copy: &FleetCopy,
    processes: &[ProcessOnNode],
) -> Result<Forecast, Problem> {
    let question = question(ask, requester, copy)
        .map_err(|faults| problem(Code::Invalid, "invalid question", faults))?;
    let mut go_on = within_time(question.rounds);
    let seen = compare(
        &ByPool,
        &copy.snapshot,
        question.changed,
        &question.task_ms,
        &mut go_on,
    );
    Ok(Forecast {
        at: copy.snapshot.now,
        silent: copy.silent.map(str::to_owned),
        drains: drains(&ask.drain, processes, &seen),
        ..answer(&seen, requester)
    })
}

fn requester(caller: &Caller) -> Result<Requester, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer, Scope::Submitter])?;
    Ok(Requester {
        user: UserName::new(caller.name.as_str()).ok(),
        groups: caller.groups.names().to_vec(),
        sees_all: caller.sees_all_users(),
        tenant: caller.tenant.clone(),
    })
}

fn refused(code: Code, detail: &str, faults: Vec<Fault>) -> Result<(), Problem> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(problem(code, detail, faults))
}

fn problem(code: Code, detail: &str, faults: Vec<Fault>) -> Problem {
    let problem = Problem::new(code, detail);
    let add = |problem: Problem, fault: Fault| problem.at(fault.pointer, fault.detail);
    faults.into_iter().fold(problem, add)
}
