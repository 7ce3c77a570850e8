//! `hayward blocks evidence`: shows the evidence against a node. It consists of state, scores, cost
//! and facts such as failed launches.

use std::fmt::Write as _;

use hayward_blocklist_api::{Cost, Evidence, EvidenceFact};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::commands::operate::block::ROUTE;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_count, format_duration};
use crate::output::{Facts, Renderer, Table, Tone, toned};

/// Reads the evidence from blocklist, as JSON.
pub async fn fetch(session: &Session, node: &NodeName) -> anyhow::Result<Value> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    Ok(client
        .get(&format!("{ROUTE}/nodes/{node}/evidence"))
        .await?)
}

/// Describes the state of a node, and at most `max_facts` of the newest facts.
pub fn render(evidence: &Evidence, max_facts: usize, renderer: &Renderer) -> String {
    let mut lines = Facts::default();
    lines.add("strategy", &evidence.strategy);
    let state = match &evidence.item {
        None => toned("not blocked", Tone::Good),
        Some(view) if view.item.canary => {
            let remaining = view.left_ms.map_or_else(String::new, format_duration);
            toned(format!("on trial for {remaining}"), Tone::Warning)
        }
        Some(view) => {
            let remaining = view
                .left_ms
                .map_or_else(|| "good".to_owned(), format_duration);
            toned(
                format!("blocked for {remaining}: {}", view.item.cause),
                Tone::Bad,
            )
        }
    };
    lines.add("state", state);
    if let Some(reason) = &evidence.withheld {
        lines.add("held back", toned(reason, Tone::Warning));
    }
    for score in &evidence.scores {
        let tone = if score.reached {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let window = format_duration(score.window_ms);
        let jobs = format_count(score.jobs, "job");
        let score_text = format!(
            "{}: {} of {} in {window}, {jobs}",
            score.rule, score.score, score.threshold
        );
        lines.add("score", toned(score_text, tone));
    }
    lines.add("cost", cost_text(&evidence.cost));
    for past in &evidence.past {
        let (ago, duration_text) = (renderer.ago(past.at), format_duration(past.duration_ms));
        lines.add(
            "before",
            format!("blocked {ago} for {duration_text} by {}", past.source),
        );
    }
    let mut text = lines.render(renderer);
    if !evidence.facts.is_empty() {
        text.push('\n');
        text.push_str(&facts_text(evidence.facts.iter().take(max_facts), renderer));
    }
    text
}

fn cost_text(cost: &Cost) -> String {
    let lost = format_count(cost.attempts_lost, "attempt");
    let mut text = format!("{lost} and {} lost", format_duration(cost.lost_ms));
    if cost.quanta_withheld > 0 {
        let since = format_duration(cost.withheld_ms);
        let _ = write!(
            text,
            ", {} quanta withheld for {since}",
            cost.quanta_withheld
        );
    }
    text
}

fn facts_text<'a>(facts: impl Iterator<Item = &'a EvidenceFact>, renderer: &Renderer) -> String {
    let mut table = Table::new(["when", "what", "work", "cause", "counts"]);
    for fact in facts {
        let work = fact.work.as_ref().map(ToString::to_string);
        table.push_row([
            renderer.age(fact.at).into(),
            enum_text(&fact.what).into(),
            work.as_deref().unwrap_or("-").into(),
            fact.cause.as_deref().unwrap_or("-").into(),
            if fact.counted { "yes" } else { "no" }.into(),
        ]);
    }
    table.render(renderer)
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_api::{
        BlockAction, BlockEntry, BlockKind, BlockView, EvacuationPolicy, FactKind, PastBlock,
        RuleScore,
    };
    use hayward_vocabulary::Timestamp;

    use super::*;

    fn block(at: Timestamp) -> BlockView {
        BlockView {
            item: BlockEntry {
                kind: BlockKind::Node,
                identifier: "node-1".into(),
                action: BlockAction::Mark,
                cause: "3 launches failed in 5 min".into(),
                start: at,
                end: Some(at.plus_ms(600_000)),
                sources: ["strategy:start-failures".to_owned()].into(),
                removal_no: 0,
                job: None,
                automatic: true,
                canary: false,
                evacuation: EvacuationPolicy::Immediate,
            },
            left_ms: Some(570_000),
            in_force: None,
            progress: None,
            workers: None,
        }
    }

    #[test]
    fn evidence_has_score_and_cost() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let renderer = Renderer {
            colour: false,
            now: at.plus_ms(30_000),
        };
        let evidence = Evidence {
            node: "node-1".into(),
            strategy: "start-failures".into(),
            scores: vec![RuleScore {
                rule: "start-failures".into(),
                score: 1,
                threshold: 3,
                jobs: 1,
                jobs_needed: 1,
                window_ms: 300_000,
                reached: false,
            }],
            cost: Cost {
                attempts_lost: 4,
                lost_ms: 6_000,
                quanta_withheld: 8,
                withheld_ms: 30_000,
            },
            item: Some(block(at)),
            withheld: None,
            past: vec![PastBlock {
                at,
                duration_ms: 600_000,
                source: "strategy:start-failures".into(),
            }],
            facts: vec![EvidenceFact {
                at,
                what: FactKind::Failed,
                work: Some("job_1".parse().unwrap()),
                cause: Some("runtime_down".into()),
                counted: true,
            }],
        };
        insta::assert_snapshot!(render(&evidence, 1, &renderer));
    }
}
