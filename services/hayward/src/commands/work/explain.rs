//! `hayward explain ID`: shows the verdict of a piece of work, with its numbers.

use std::fmt::Write as _;

use hayward_job_converter_api::{Explanation, OthersLost, WorkState};
use hayward_rm_scheduler_api::VerdictEntry;
use hayward_vocabulary::plural;
use serde_json::Value;

use crate::commands::work::{IdArg, state_cell};
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, sanitize};
use crate::output::{Facts, Renderer, Tone, preemption_text, toned, unblock_text};

/// Prefix of ids of pool workers (`wp_….N`), which only rm-scheduler knows.
const WORKER_PREFIX: &str = "wp_";
/// Prefix of ids of tasks of applications.
const TASK_PREFIX: &str = "app_";

pub async fn run(session: Session, arg: IdArg) -> anyhow::Result<()> {
    let id = arg.id.as_str();
    // Ids with a dot name a worker or a task. The verdict is the scheduler's.
    let has_scheduler_verdict = [WORKER_PREFIX, TASK_PREFIX]
        .iter()
        .any(|prefix| id.starts_with(prefix));
    if has_scheduler_verdict && id.contains('.') {
        let client = session.client(Service::RmScheduler, Role::Reader)?;
        let response = client.get(&format!("/v1/verdicts/{id}")).await?;
        return session
            .out
            .print_response(response, |verdict: &VerdictEntry, renderer| {
                worker_or_task_text(verdict, renderer)
            });
    }
    let route = route_of_work(&arg.id)?;
    let client = session.client(Service::JobConverter, Role::User)?;
    let mut response: Value = client.get(&format!("{route}/explain")).await?;
    replace_with_newest_verdict(&session, &mut response).await;
    session
        .out
        .print_response(response, |explanation: &Explanation, renderer| {
            render(explanation, renderer)
        })
}

/// Replaces the published numbers by those of the scheduler's newest round. If the scheduler does
/// not answer, the published numbers stay.
async fn replace_with_newest_verdict(session: &Session, response: &mut Value) {
    let Some(work) = response.get("work").and_then(Value::as_str) else {
        return;
    };
    let path = format!("/v1/verdicts/{work}");
    let Ok(client) = session.client(Service::RmScheduler, Role::Reader) else {
        return;
    };
    let Ok(newest) = client.get::<Value>(&path).await else {
        return;
    };
    if newest.get("reason") != response.get("reason") {
        // The two responses come from different rounds. The published one is consistent in itself.
        return;
    }
    for field in ["detail", "numbers", "also", "unblock", "receipts"] {
        match newest.get(field) {
            Some(value) => response[field] = value.clone(),
            None => drop(response.as_object_mut().and_then(|all| all.remove(field))),
        }
    }
}

/// Describes the verdict of a worker or a task. The state is unknown, because the scheduler does
/// not know whether the process runs.
fn worker_or_task_text(verdict: &VerdictEntry, renderer: &Renderer) -> String {
    let explanation = Explanation {
        id: verdict.work.clone(),
        state: WorkState::Unknown,
        reason: enum_text(&verdict.reason),
        detail: verdict.detail.clone(),
        numbers: verdict.numbers.clone(),
        also: verdict.also.iter().map(enum_text).collect(),
        unblock: verdict.unblock.clone(),
        receipts: verdict.receipts.clone(),
        others_lost: None,
        work: None,
        since: Some(verdict.since),
    };
    render(&explanation, renderer)
}

pub fn render(explanation: &Explanation, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    if explanation.state != WorkState::Unknown {
        facts.add("state", state_cell(explanation.state));
    }
    facts.add("reason", explanation.reason.replace('_', " "));
    if let Some(since) = explanation.since {
        facts.add("since", format!("{since}, {}", renderer.ago(since)));
    }
    let mut text = facts.render(renderer);
    let _ = writeln!(text, "\n{}", sanitize(&explanation.detail));
    text.push_str(&remedies_text(explanation, renderer));
    // The sentence about a quota has the amounts already, each in the unit of its type.
    let numbers = explanation.numbers.iter();
    let numbers = numbers.filter(|(name, _)| !name.starts_with("quota_"));
    let numbers: Vec<(&String, &u64)> = numbers.collect();
    if !numbers.is_empty() {
        text.push('\n');
        let width = numbers
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        for (name, number) in numbers {
            let _ = writeln!(
                text,
                "  {:<width$}  {number}",
                sanitize(name).replace('_', " ")
            );
        }
    }
    let work = explanation.work.as_ref().unwrap_or(&explanation.id);
    let preemptions = preemption_text::describe_preemptions_of_work(&explanation.receipts, work);
    if !preemptions.is_empty() {
        let _ = write!(text, "\n{}\n", preemptions.join("\n"));
    }
    if let Some(lost) = explanation.others_lost {
        let OthersLost {
            processes, quanta, ..
        } = lost;
        let _ = writeln!(
            text,
            "\nothers lost {}, {}, to it",
            plural::processes(processes),
            plural::quanta(quanta)
        );
    }
    text
}

/// Describes what would end the wait, and which other reasons would remain.
fn remedies_text(explanation: &Explanation, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    if let Some(change) = &explanation.unblock {
        facts.add(
            "would help",
            toned(unblock_text::describe_unblock(change), Tone::Good),
        );
    }
    if !explanation.also.is_empty() {
        facts.add("blocks too", explanation.also.join(", ").replace('_', " "));
    }
    match facts.render(renderer) {
        text if text.is_empty() => text,
        text => format!("\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{
        AllocationId, NodeName, Outcome, Receipt, Timestamp, Unblock, UserName, WorkId,
    };

    use super::*;

    #[test]
    fn an_explanation_has_its_numbers_below_its_sentence() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let explanation = Explanation {
            id: WorkId::new("job_1").unwrap(),
            state: WorkState::Waiting,
            reason: "insufficient_resources".into(),
            detail: "needs 4 quanta on one node, the largest free room is 2".into(),
            numbers: [("largest_free".to_owned(), 2), ("order".to_owned(), 4)].into(),
            also: vec!["zero_share".into(), "waiting_for_preemption".into()],
            unblock: Some(Unblock::FreeRoom {
                node: NodeName::new("n1").unwrap(),
                quanta: 2,
            }),
            receipts: vec![Receipt {
                round: 17,
                at,
                allocation: AllocationId::new("alc_1").unwrap(),
                work: WorkId::new("job_1").unwrap(),
                user: UserName::new("ann").unwrap(),
                node: NodeName::new("n1").unwrap(),
                order: 1,
                lost_ms: 3_200,
                beneficiary: Some(WorkId::new("job_2").unwrap()),
                for_user: Some(UserName::new("bob").unwrap()),
                outcome: Outcome::Started {
                    allocation: AllocationId::new("alc_2").unwrap(),
                    at,
                    after_ms: 400,
                },
            }],
            others_lost: None,
            work: None,
            since: Some(at),
        };
        let renderer = Renderer {
            colour: false,
            now: at.plus_ms(65_000),
        };
        insta::assert_snapshot!(render(&explanation, &renderer));
    }
}
