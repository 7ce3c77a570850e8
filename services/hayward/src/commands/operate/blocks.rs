//! `hayward blocks`: lists what is blocked or on trial, with the reason. A strategy decides which
//! nodes are blocked automatically, from the evidence against each node.

pub mod evidence;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use hayward_blocklist_api::{
    BlockAction, BlockOverview, BlockView, Evidence, StrategyOrder, StrategyView,
};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::commands::operate::block::ROUTE;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_duration};
use crate::output::{Cell, Renderer, Table, Tone, parse_response, print, toned};
use crate::value_parsers;

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Show the strategy for automatic blocks of nodes.
    #[arg(long)]
    pub strategy: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Show or choose the strategy for automatic blocks of nodes
    Strategy(StrategyArguments),
    /// Show the evidence about a node: score, cost and facts
    Evidence(IdArg),
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
}

#[derive(Debug, Clone, clap::Args)]
pub struct StrategyArguments {
    #[command(subcommand)]
    pub command: Option<StrategyCommand>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum StrategyCommand {
    /// Choose a strategy: none, failure-count, cause-class, start-failures, flapping, slow-task,
    /// chain
    Set(SetArguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct SetArguments {
    /// Name of the strategy.
    #[arg(value_name = "STRATEGY")]
    pub name: String,
    /// Parameters, as n=4, window=10m, duration=1h, or JSON: classes={"disk_full":{}}.
    /// Absent parameters have their defaults.
    #[arg(value_name = "NAME=VALUE", value_parser = value_parsers::parse_pair)]
    pub parameters: Vec<(String, String)>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        None if arguments.strategy => show_strategy(&session).await,
        None => list(&session).await,
        Some(Command::Strategy(StrategyArguments { command: None })) => {
            show_strategy(&session).await
        }
        Some(Command::Strategy(StrategyArguments {
            command: Some(StrategyCommand::Set(set)),
        })) => set_strategy(&session, set).await,
        Some(Command::Evidence(arg)) => {
            let response = evidence::fetch(&session, &arg.node).await?;
            let text = |evidence: &Evidence, renderer: &Renderer| {
                evidence::render(evidence, usize::MAX, renderer)
            };
            session.out.print_response(response, text)
        }
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    let response: Value = client.get(ROUTE).await?;
    session
        .out
        .print_response(response, |all: &BlockOverview, renderer| {
            render_table(all, renderer)
        })
}

async fn show_strategy(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    let response: Value = client.get(&format!("{ROUTE}/strategy")).await?;
    session.out.print_response(response, strategy_text)
}

async fn set_strategy(session: &Session, set: SetArguments) -> anyhow::Result<()> {
    let request = StrategyOrder {
        name: set.name,
        parameters: parse_parameters(set.parameters)?,
    };
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let response: Value = client.put(&format!("{ROUTE}/strategy"), &request).await?;
    if session.out.json {
        return session.out.json(&response);
    }
    let chosen: StrategyView = parse_response(response)?;
    print(&format!(
        "in force: {}",
        strategy_text(&chosen, &session.out.renderer())
    ))
}

/// Parses parameters to JSON. Durations with units become milliseconds.
fn parse_parameters(pairs: Vec<(String, String)>) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut parsed = BTreeMap::new();
    for (name, text) in pairs {
        let (name, value) = match name.as_str() {
            "window" | "duration" => {
                let ms = value_parsers::parse_duration_ms(&text)?;
                (format!("{name}_ms"), ms.into())
            }
            _ => {
                let value = serde_json::from_str(&text);
                let value = value.with_context(|| format!("{name}: {text:?} is not JSON"))?;
                (name, value)
            }
        };
        if parsed.insert(name.clone(), value).is_some() {
            bail!("{name} is given twice");
        }
    }
    Ok(parsed)
}

fn strategy_text(view: &StrategyView, renderer: &Renderer) -> String {
    let mut text = view.name.clone();
    for (name, value) in &view.parameters {
        let parameter = match (name.strip_suffix("_ms"), value.as_u64()) {
            (Some(name), Some(ms)) => format!(" {name}={}", format_duration(ms)),
            _ => format!(" {name}={value}"),
        };
        text.push_str(&parameter);
    }
    if let (Some(author), Some(at)) = (&view.by, view.at) {
        let _ = write!(text, ", chosen by {author} {}", renderer.ago(at));
    }
    text + "\n"
}

fn render_table(all: &BlockOverview, renderer: &Renderer) -> String {
    if all.nodes.is_empty() && all.workers.is_empty() {
        return "nothing is blocked\n".to_owned();
    }
    let mut table = Table::new([
        "what", "name", "for", "does", "since", "left", "in force", "moved", "by", "why",
    ]);
    for view in all.nodes.iter().chain(&all.workers) {
        let item = &view.item;
        let left = view.left_ms.map(format_duration);
        let job = item.job.as_ref().map(ToString::to_string);
        let in_force = view.in_force.as_ref();
        let sources: Vec<&str> = item.sources.iter().map(String::as_str).collect();
        table.push_row([
            enum_text(&item.kind).into(),
            (&item.identifier).into(),
            job.as_deref().unwrap_or("all").into(),
            effect_cell(view),
            renderer.age(item.start).into(),
            left.as_deref().unwrap_or("permanent").into(),
            in_force
                .map_or_else(
                    || "not yet".to_owned(),
                    |it| format!("since {}", it.revision),
                )
                .into(),
            progress_text(view).into(),
            sources.join(", ").into(),
            (&item.cause).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the effect of a block on its node.
fn effect_cell(view: &BlockView) -> Cell {
    match view.item.action {
        _ if view.item.canary => toned("on trial", Tone::Good),
        BlockAction::Mark => toned("nothing new", Tone::Warning),
        BlockAction::Evacuate => toned("is emptied", Tone::Bad),
    }
}

/// Describes how much work an evacuation has moved.
fn progress_text(view: &BlockView) -> String {
    let Some(progress) = &view.progress else {
        return "-".to_owned();
    };
    // Work that has only left does not count as moved, because it may have no successor yet.
    let mut text = format!("{} of {}", progress.moved, progress.total);
    if progress.failed > 0 {
        let _ = write!(text, ", {} without a successor", progress.failed);
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_api::{
        BlockEntry, BlockKind, EvacuationPolicy, EvacuationProgress, InForce,
    };
    use hayward_vocabulary::Timestamp;
    use serde_json::json;

    use super::*;

    fn start_time() -> Timestamp {
        Timestamp::from_unix_ms(1_795_257_720_000)
    }

    fn renderer() -> Renderer {
        Renderer {
            colour: false,
            now: start_time().plus_ms(30_000),
        }
    }

    fn view(identifier: &str, action: BlockAction, end: Option<Timestamp>) -> BlockView {
        BlockView {
            item: BlockEntry {
                kind: BlockKind::Node,
                identifier: identifier.into(),
                action,
                cause: "ECC errors".into(),
                start: start_time(),
                end,
                sources: ["manual:ada".to_owned()].into(),
                removal_no: 0,
                job: None,
                automatic: false,
                canary: false,
                evacuation: EvacuationPolicy::Immediate,
            },
            left_ms: end.map(|end| end.ms_since(renderer().now)),
            in_force: None,
            progress: None,
            workers: None,
        }
    }

    #[test]
    fn blocks_are_listed_in_a_table() {
        let mut emptied = view(
            "node-1",
            BlockAction::Evacuate,
            Some(start_time().plus_ms(600_000)),
        );
        emptied.in_force = Some(InForce {
            revision: 812,
            since: start_time(),
        });
        emptied.progress = Some(EvacuationProgress {
            total: 5,
            moved: 2,
            failed: 1,
            remaining: 2,
            ..EvacuationProgress::default()
        });
        let mut on_trial = view(
            "node-2",
            BlockAction::Mark,
            Some(start_time().plus_ms(90_000)),
        );
        on_trial.item.canary = true;
        on_trial.item.cause = "on trial after: disk_full".into();
        on_trial.item.sources = ["strategy:cause-class".to_owned()].into();
        let mut all = BlockOverview {
            version: 1,
            nodes: vec![emptied, on_trial],
            workers: vec![],
        };
        let mut scoped = view("alc_1", BlockAction::Mark, None);
        scoped.item.kind = BlockKind::Worker;
        scoped.item.job = Some("job_1".parse().unwrap());
        all.workers.push(scoped);
        insta::assert_snapshot!(render_table(&all, &renderer()));
        (all.nodes, all.workers) = (vec![], vec![]);
        assert_eq!(render_table(&all, &renderer()), "nothing is blocked\n");
    }

    #[test]
    fn parameters_are_json_and_durations_have_units() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let parsed = parse_parameters(vec![pair("n", "4"), pair("window", "10m")]).unwrap();
        assert_eq!(json!(parsed), json!({ "n": 4, "window_ms": 600_000 }));
        assert!(parse_parameters(vec![pair("n", "four")]).is_err());
        assert!(parse_parameters(vec![pair("n", "1"), pair("n", "2")]).is_err());
        let view = StrategyView {
            name: "flapping".into(),
            parameters: parsed,
            by: Some("ada".into()),
            at: Some(start_time()),
            revision: 3,
        };
        let line = strategy_text(&view, &renderer());
        assert_eq!(line, "flapping n=4 window=10m 0s, chosen by ada 30s ago\n");
    }
}
