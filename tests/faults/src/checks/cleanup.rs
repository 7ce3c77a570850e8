//! Checks that nothing is left after the cancellation of all work.

use hayward_job_converter_api::{WorkState, WorkView};
use serde_json::Value;

use super::{Outcome, Scene};
use crate::fleet::{PATIENCE, inside, wait};
use crate::plan::{Service, Work};
use crate::work::Cancelled;

/// Checks that work that was acknowledged as cancelled has ended in a terminal state.
pub async fn cancelled_work_has_ended(scene: &Scene<'_>) -> Outcome {
    let items = scene.ledger.borrow().items.clone();
    for item in items {
        let (Some(path), Cancelled::Acknowledged) = (item.path(), item.cancelled) else {
            continue;
        };
        let client = scene.doors.of_work(item.work);
        wait(&item.key, PATIENCE, async || match item.work {
            Work::Pool { .. } => {
                let view = client.get::<Value>(&path).await;
                let view = view.map_err(|error| format!("{error:?}"))?;
                let ended = view["status"] == "STOPPED";
                ended.then_some(()).ok_or_else(|| view.to_string())
            }
            Work::Gang { .. } => match client.get::<Value>(&path).await {
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => Err(format!("{error:?}")),
                Ok(view) => Err(format!("it is there: {}", view["state"])),
            },
            _ => {
                let view = client.get::<WorkView>(&path).await;
                let view = view.map_err(|error| format!("{error:?}"))?;
                let (state, service) = (view.state, item.is_service());
                let good = match state {
                    WorkState::Cancelled => true,
                    other => other.is_final() && !service,
                };
                good.then_some(()).ok_or_else(|| format!("it is {state:?}"))
            }
        })
        .await?;
    }
    Ok(())
}

/// Checks that no process runs in any container, whatever services report.
pub async fn no_process_is_left(scene: &Scene<'_>) -> Outcome {
    wait("all processes to be gone", PATIENCE, async || {
        let left = inside::all(&scene.fleet.dir);
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:?}"))
    })
    .await
}

/// Checks that no allocation is alive and no container is in a transitional state (I24).
pub async fn no_place_is_held(scene: &Scene<'_>) -> Outcome {
    let lists = [
        (Service::RmScheduler, "/v1/allocations", "allocations"),
        (Service::ContainerManager, "/v1/containers", "containers"),
    ];
    for (service, path, field) in lists {
        let client = &scene.doors.operators[&service];
        let path = format!("{path}?limit=1000");
        wait(field, PATIENCE, async || {
            let list = client.get::<Value>(&path).await;
            let list = list.map_err(|error| format!("{error:?}"))?;
            let all = list[field].as_array().into_iter().flatten();
            let held: Vec<String> = all
                .filter(|it| it["state"] != "ended")
                .map(ToString::to_string)
                .collect();
            held.is_empty().then_some(()).ok_or_else(|| held.join("\n"))
        })
        .await?;
    }
    Ok(())
}
