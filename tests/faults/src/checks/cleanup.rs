//! Checks that nothing is left after the cancellation of all work.

use hayward_job_converter_api::{WorkState, WorkView};
use serde_json::Value;

use super::{CheckContext, CheckResult};
use crate::fleet::{TIMEOUT, container_processes, poll_until};
use crate::plan::{Service, Work};
use crate::work::Cancellation;

/// Checks that work has ended if its cancellation was acknowledged.
pub async fn cancelled_work_has_ended(context: &CheckContext<'_>) -> CheckResult {
    let items = context.ledger.borrow().items.clone();
    for item in items {
        let (Some(path), Cancellation::Acknowledged) = (item.path(), item.cancellation) else {
            continue;
        };
        let client = context.clients.for_work(item.work);
        poll_until(&item.key, TIMEOUT, async || match item.work {
            Work::Pool { .. } => {
                let view = client.get::<Value>(&path).await;
                let view = view.map_err(|error| format!("{error:?}"))?;
                let is_stopped = view["status"] == "STOPPED";
                is_stopped.then_some(()).ok_or_else(|| view.to_string())
            }
            Work::Gang { .. } => match client.get::<Value>(&path).await {
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => Err(format!("{error:?}")),
                Ok(view) => Err(format!("it still exists: {}", view["state"])),
            },
            _ => {
                let view = client.get::<WorkView>(&path).await;
                let view = view.map_err(|error| format!("{error:?}"))?;
                let (state, service) = (view.state, item.is_service());
                let is_done = match state {
                    WorkState::Cancelled => true,
                    other => other.is_final() && !service,
                };
                is_done
                    .then_some(())
                    .ok_or_else(|| format!("it is {state:?}"))
            }
        })
        .await?;
    }
    Ok(())
}

/// Checks that no process runs in any container, whatever services report.
pub async fn no_process_is_left(context: &CheckContext<'_>) -> CheckResult {
    poll_until("all processes to be gone", TIMEOUT, async || {
        let remaining = container_processes::list(&context.fleet.dir);
        remaining
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{remaining:?}"))
    })
    .await
}

/// Checks that all allocations and all containers have ended (I24).
pub async fn no_allocation_is_held(context: &CheckContext<'_>) -> CheckResult {
    let queries = [
        (Service::RmScheduler, "/v1/allocations", "allocations"),
        (Service::ContainerManager, "/v1/containers", "containers"),
    ];
    for (service, path, field) in queries {
        let client = &context.clients.operators[&service];
        let path = format!("{path}?limit=1000");
        poll_until(field, TIMEOUT, async || {
            let list = client.get::<Value>(&path).await;
            let list = list.map_err(|error| format!("{error:?}"))?;
            let entries = list[field].as_array().into_iter().flatten();
            let not_ended: Vec<String> = entries
                .filter(|entry| entry["state"] != "ended")
                .map(ToString::to_string)
                .collect();
            not_ended
                .is_empty()
                .then_some(())
                .ok_or_else(|| not_ended.join("\n"))
        })
        .await?;
    }
    Ok(())
}
