//! Checks of promises about the fleet as a whole: services, nodes, blocks, drains and audit.

use std::time::Duration;

use anyhow::ensure;
use hayward_node_status_api::drain::{DrainState, DrainView};
use hayward_service::invariants::{Invariants, RuleResult};
use serde_json::Value;

use super::{CheckContext, CheckResult};
use crate::fleet::{TIMEOUT, container_processes, poll_until};
use crate::plan::{Operation, Replica, Work};

/// Kinds of findings that `hayward doctor` reports for every fleet under test. Its clocks can be
/// stepped, which is insecure, and other files may fill the disk.
const EXPECTED_FINDINGS: [&str; 2] = ["insecure", "disk"];

/// Time limit of a drain. It is longer than jobs and gangs run. It is shorter than [`TIMEOUT`],
/// because a drain does not end while its work fits on no other node.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);

/// Checks that each request was acknowledged, or refused with a reason.
pub async fn every_request_was_answered(context: &CheckContext<'_>) -> CheckResult {
    poll_until("all requests to be answered", TIMEOUT * 2, async || {
        let in_flight = context.ledger.borrow().in_flight;
        (in_flight == 0)
            .then_some(())
            .ok_or_else(|| format!("{in_flight} are not"))
    })
    .await?;
    let broken_promises = context.ledger.borrow().broken_promises.clone();
    ensure!(broken_promises.is_empty(), "{broken_promises:?}");
    Ok(())
}

/// Checks that both replicas of each service are alive and one of them leads.
pub async fn every_service_answers(context: &CheckContext<'_>) -> CheckResult {
    for replica in Replica::all() {
        let client = context.fleet.replica_client(replica, "operator")?;
        poll_until(&format!("{replica} to live"), TIMEOUT, async || {
            let response = client.get::<Value>("/livez").await;
            response.map(drop).map_err(|error| format!("{error:?}"))
        })
        .await?;
    }
    context.fleet.wait_for_services().await
}

/// Checks that acknowledged blocks are in force.
pub async fn blocks_are_in_force(context: &CheckContext<'_>) -> CheckResult {
    let operations = context.ledger.borrow().acknowledged_operations.clone();
    for acknowledged in operations {
        let Operation::Block { evacuate, .. } = acknowledged.operation else {
            continue;
        };
        let client = &context.clients.operators[&crate::plan::Service::Blocklist];
        let request = async || {
            let view = client.get::<Value>(&acknowledged.path).await;
            view.map_err(|error| format!("{error:?}"))
        };
        let view = poll_until(&acknowledged.path, TIMEOUT, request).await?;
        let action = view["action"].as_str().unwrap_or_default();
        ensure!(!evacuate || action.contains("EVACUATE"), "{view}");
    }
    Ok(())
}

/// Checks that a drained node has no process of any container (I17). A drain does not end while its
/// work fits on no other node. Such a node must still have processes.
pub async fn drained_nodes_are_empty(context: &CheckContext<'_>) -> CheckResult {
    let operations = context.ledger.borrow().acknowledged_operations.clone();
    for acknowledged in operations {
        let Operation::Drain { agent } = acknowledged.operation else {
            continue;
        };
        let client = &context.clients.operators[&crate::plan::Service::NodeStatus];
        let description = format!("{agent} to be drained");
        let drained = poll_until(&description, DRAIN_TIMEOUT, async || {
            let view = client.get::<DrainView>(&acknowledged.path).await;
            let view = view.map_err(|error| format!("{error:?}"))?;
            let (state, reason) = (view.state, view.why);
            (state == DrainState::Drained)
                .then_some(())
                .ok_or_else(|| format!("{state:?}: {reason}"))
        });
        let result = drained.await;
        let remaining = container_processes::list(context.fleet.agent_folder(agent));
        match result {
            Ok(()) => ensure!(
                remaining.is_empty(),
                "{agent} is reported as drained and has {remaining:?}"
            ),
            Err(reason) => {
                println!("  {reason:#}");
                ensure!(
                    !remaining.is_empty(),
                    "{agent} has no process and is not drained: {reason:#}"
                );
            }
        }
    }
    Ok(())
}

pub async fn every_node_takes_work(context: &CheckContext<'_>) -> CheckResult {
    context.fleet.wait_for_nodes().await
}

/// Checks that all invariants hold in the state of each service. A service has time to repair its
/// state first.
pub async fn invariants_hold(context: &CheckContext<'_>) -> CheckResult {
    for (service, client) in &context.clients.operators {
        poll_until(
            &format!("invariants of {}", service.name()),
            TIMEOUT,
            async || {
                let invariants = client.get::<Invariants>("/v1/invariants").await;
                let invariants = invariants.map_err(|error| format!("{error:?}"))?;
                let violated = invariants.rules.iter();
                let violated: Vec<String> = violated
                    .filter(|rule| rule.result == RuleResult::Violated)
                    .map(|rule| format!("{} {} {:?}", rule.id, rule.title, rule.evidence))
                    .collect();
                violated
                    .is_empty()
                    .then_some(())
                    .ok_or_else(|| violated.join("; "))
            },
        )
        .await?;
    }
    Ok(())
}

pub async fn audit_chains_verify(context: &CheckContext<'_>) -> CheckResult {
    let (status, output) = context.fleet.run_hayward(&["audit", "verify"]).await?;
    ensure!(status == Some(0), "{output}");
    Ok(())
}

/// Checks that each acknowledged submission has exactly one audit record, however often it was sent
/// (I19). Gangs and worker pools are not checked: gangs are submitted by PUT, and the records of
/// worker pools contain no id.
pub async fn each_submission_has_one_audit_record(context: &CheckContext<'_>) -> CheckResult {
    let (status, output) = context.fleet.run_hayward(&["audit", "export"]).await?;
    ensure!(status == Some(0), "{output}");
    let pages = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let records: Vec<Value> = pages
        .flat_map(|page| page["records"].as_array().cloned().unwrap_or_default())
        .collect();
    for item in context.ledger.borrow().items.clone() {
        if matches!(item.work, Work::Gang { .. } | Work::Pool { .. }) {
            continue;
        }
        let Some(id) = item.id else {
            continue;
        };
        let is_submission_of = |record: &&Value| {
            let entry = record["entry"].as_str().unwrap_or_default();
            record["method"] == "POST" && record["outcome"] == "committed" && entry.contains(&id)
        };
        let submissions = records.iter().filter(is_submission_of).filter(|record| {
            let route = record["route"].as_str().unwrap_or_default();
            ["/v1/jobs", "/v1/services", "/v1/reservations"].contains(&route)
        });
        let count = submissions.count();
        ensure!(count == 1, "{} ({id}) has {count} audit records", item.key);
    }
    Ok(())
}

/// Checks that `hayward doctor` finds nothing but the expected findings.
pub async fn the_doctor_finds_nothing(context: &CheckContext<'_>) -> CheckResult {
    let request = async || {
        let result = context.fleet.run_hayward(&["doctor", "--json"]).await;
        let (_, output) = result.map_err(|error| error.to_string())?;
        let report: Value =
            serde_json::from_str(&output).map_err(|error| format!("{error}: {output}"))?;
        let findings = report["needs"].as_array().cloned().unwrap_or_default();
        let unexpected: Vec<String> = findings
            .iter()
            .filter(|finding| {
                let kind = finding["kind"].as_str().unwrap_or_default();
                !EXPECTED_FINDINGS.contains(&kind)
            })
            .map(ToString::to_string)
            .collect();
        unexpected
            .is_empty()
            .then_some(())
            .ok_or_else(|| unexpected.join("\n"))
    };
    poll_until("a doctor without unexpected findings", TIMEOUT, request).await
}
