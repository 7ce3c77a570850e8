//! Promises about the fleet as a whole.

use std::time::Duration;

use anyhow::ensure;
use hayward_node_status_api::drain::{DrainState, DrainView};
use hayward_service::invariants::{Invariants, RuleResult};
use serde_json::Value;

use super::{Outcome, Scene};
use crate::fleet::{PATIENCE, inside, wait};
use crate::plan::{Order, Replica, Work};

/// Findings of the doctor that a healthy fleet under test has: its clocks can be stepped, and other
/// files may fill the disk.
const EXPECTED_NEEDS: [&str; 2] = ["insecure", "disk"];

const A_WHILE: Duration = Duration::from_secs(40);

/// Checks that each request was acknowledged, or refused with a reason.
pub async fn every_request_was_answered(scene: &Scene<'_>) -> Outcome {
    wait("all requests to be answered", PATIENCE * 2, async || {
        let open = scene.ledger.borrow().open;
        (open == 0)
            .then_some(())
            .ok_or_else(|| format!("{open} are not"))
    })
    .await?;
    let broken = scene.ledger.borrow().broken.clone();
    ensure!(broken.is_empty(), "{broken:?}");
    Ok(())
}

/// Checks that both replicas of a service are alive and one of them leads.
pub async fn every_service_answers(scene: &Scene<'_>) -> Outcome {
    for replica in Replica::all() {
        let client = scene.fleet.client_of(replica, "operator")?;
        wait(&format!("{replica} to live"), PATIENCE, async || {
            let alive = client.get::<Value>("/livez").await;
            alive.map(drop).map_err(|error| format!("{error:?}"))
        })
        .await?;
    }
    scene.fleet.services_answer().await
}

/// Checks that acknowledged blocks are in force.
pub async fn blocks_are_in_force(scene: &Scene<'_>) -> Outcome {
    let given = scene.ledger.borrow().given.clone();
    for given in given {
        let Order::Block { evacuate, .. } = given.order else {
            continue;
        };
        let client = &scene.doors.operators[&crate::plan::Service::Blocklist];
        let ask = async || {
            let view = client.get::<Value>(&given.path).await;
            view.map_err(|error| format!("{error:?}"))
        };
        let view = wait(&given.path, PATIENCE, ask).await?;
        let action = view["action"].as_str().unwrap_or_default();
        ensure!(!evacuate || action.contains("EVACUATE"), "{view}");
    }
    Ok(())
}

/// Checks that a drained node has no process of any container (I17). Work without another place may
/// prevent the end of a drain, so the wait is not much longer than the work.
pub async fn drained_means_empty(scene: &Scene<'_>) -> Outcome {
    let given = scene.ledger.borrow().given.clone();
    for given in given {
        let Order::Drain { agent } = given.order else {
            continue;
        };
        let client = &scene.doors.operators[&crate::plan::Service::NodeStatus];
        let what = format!("{agent} to be drained");
        let drained = wait(&what, A_WHILE, async || {
            let view = client.get::<DrainView>(&given.path).await;
            let view = view.map_err(|error| format!("{error:?}"))?;
            let (state, why) = (view.state, view.why);
            (state == DrainState::Drained)
                .then_some(())
                .ok_or_else(|| format!("{state:?}: {why}"))
        });
        let called = drained.await;
        let left = inside::all(scene.fleet.agent_folder(agent));
        match called {
            Ok(()) => ensure!(left.is_empty(), "{agent} is called drained: {left:?}"),
            Err(why) => {
                println!("  {why:#}");
                ensure!(
                    !left.is_empty(),
                    "{agent} is empty and not drained: {why:#}"
                );
            }
        }
    }
    Ok(())
}

pub async fn every_node_takes_work(scene: &Scene<'_>) -> Outcome {
    scene.fleet.nodes_take_work().await
}

/// Checks that no service sees a broken invariant in its state, after it had time to repair it.
pub async fn invariants_hold(scene: &Scene<'_>) -> Outcome {
    for (service, client) in &scene.doors.operators {
        wait(
            &format!("invariants of {}", service.name()),
            PATIENCE,
            async || {
                let all = client.get::<Invariants>("/v1/invariants").await;
                let all = all.map_err(|error| format!("{error:?}"))?;
                let broken = all.rules.iter();
                let broken: Vec<String> = broken
                    .filter(|rule| rule.result == RuleResult::Violated)
                    .map(|rule| format!("{} {} {:?}", rule.id, rule.title, rule.evidence))
                    .collect();
                broken
                    .is_empty()
                    .then_some(())
                    .ok_or_else(|| broken.join("; "))
            },
        )
        .await?;
    }
    Ok(())
}

pub async fn audit_chains_verify(scene: &Scene<'_>) -> Outcome {
    let (status, output) = scene.fleet.operator(&["audit", "verify"]).await?;
    ensure!(status == Some(0), "{output}");
    Ok(())
}

/// Checks that each acknowledged submission has exactly one audit record, however often it was
/// sent. Records of gangs are of PUTs, and those of pools have no id (I19).
pub async fn each_submission_has_one_audit_record(scene: &Scene<'_>) -> Outcome {
    let (status, output) = scene.fleet.operator(&["audit", "export"]).await?;
    ensure!(status == Some(0), "{output}");
    let pages = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let records: Vec<Value> = pages
        .flat_map(|page| page["records"].as_array().cloned().unwrap_or_default())
        .collect();
    for item in scene.ledger.borrow().items.clone() {
        let unnamed = matches!(item.work, Work::Gang { .. } | Work::Pool { .. });
        let (Some(id), false) = (item.id, unnamed) else {
            continue;
        };
        let named = |record: &&Value| {
            let entry = record["entry"].as_str().unwrap_or_default();
            record["method"] == "POST" && record["outcome"] == "committed" && entry.contains(&id)
        };
        let submissions = records.iter().filter(named).filter(|record| {
            let route = record["route"].as_str().unwrap_or_default();
            ["/v1/jobs", "/v1/services", "/v1/reservations"].contains(&route)
        });
        let count = submissions.count();
        ensure!(count == 1, "{} ({id}) has {count} audit records", item.key);
    }
    Ok(())
}

pub async fn the_doctor_finds_nothing(scene: &Scene<'_>) -> Outcome {
    let ask = async || {
        let answer = scene.fleet.operator(&["doctor", "--json"]).await;
        let (_, output) = answer.map_err(|error| error.to_string())?;
        let findings: Value =
            serde_json::from_str(&output).map_err(|error| format!("{error}: {output}"))?;
        let needs = findings["needs"].as_array().cloned().unwrap_or_default();
        let needs: Vec<String> = needs
            .iter()
            .filter(|need| {
                let kind = need["kind"].as_str().unwrap_or_default();
                !EXPECTED_NEEDS.contains(&kind)
            })
            .map(ToString::to_string)
            .collect();
        needs
            .is_empty()
            .then_some(())
            .ok_or_else(|| needs.join("\n"))
    };
    wait("a fleet that is well", PATIENCE, ask).await
}
