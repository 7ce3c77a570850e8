//! `hayward blocks`: lists what is blocked or on trial, with the reason, the strategy and the
//! evidence.

pub mod evidence;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use hayward_blocklist_api::{
    BlockAction, BlockOverview, BlockView, Evidence, StrategyOrder, StrategyView,
};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::amounts;
use crate::commands::operate::block::ROUTE;
use crate::connection::{Role, Service, Session};
use crate::output::format::{duration, word};
use crate::output::{Cell, Renderer, Table, Tone, print, read, toned};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Show the strategy by which machines are judged.
    #[arg(long)]
    pub strategy: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Show or choose the strategy by which machines are judged
    Strategy(Strategy),
    /// Show what is on record of a node: score, cost and facts
    Evidence(IdArg),
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Strategy {
    #[command(subcommand)]
    pub command: Option<Choose>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Choose {
    /// Choose a strategy: none, failure-count, cause-class, start-failures, flapping, slow-task,
    /// chain
    Set(Set),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Set {
    /// Its name.
    #[arg(value_name = "STRATEGY")]
    pub name: String,
    /// Parameters, as n=4, window=10m, duration=1h, or JSON: classes={"disk_full":{}}.
    /// Parameters that are left out have their defaults.
    #[arg(value_name = "NAME=VALUE", value_parser = amounts::pair)]
    pub parameters: Vec<(String, String)>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        None if arguments.strategy => show_strategy(&session).await,
        None => list(&session).await,
        Some(Command::Strategy(Strategy { command: None })) => show_strategy(&session).await,
        Some(Command::Strategy(Strategy {
            command: Some(Choose::Set(set)),
        })) => choose(&session, set).await,
        Some(Command::Evidence(arg)) => {
            let answer = evidence::fetch(&session, &arg.node).await?;
            let text = |evidence: &Evidence, renderer: &Renderer| {
                evidence::text(evidence, usize::MAX, renderer)
            };
            session.out.answer(answer, text)
        }
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    let answer: Value = client.get(ROUTE).await?;
    session
        .out
        .answer(answer, |all: &BlockOverview, renderer| table(all, renderer))
}

async fn show_strategy(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    let answer: Value = client.get(&format!("{ROUTE}/strategy")).await?;
    session.out.answer(answer, strategy)
}

async fn choose(session: &Session, set: Set) -> anyhow::Result<()> {
    let order = StrategyOrder {
        name: set.name,
        parameters: parameters(set.parameters)?,
    };
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let answer: Value = client.put(&format!("{ROUTE}/strategy"), &order).await?;
    if session.out.json {
        return session.out.json(&answer);
    }
    let chosen: StrategyView = read(answer)?;
    print(&format!(
        "in force: {}",
        strategy(&chosen, &session.out.renderer())
    ))
}

/// Parses parameters to JSON. Durations with units become milliseconds.
fn parameters(given: Vec<(String, String)>) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut read = BTreeMap::new();
    for (name, text) in given {
        let (name, value) = match name.as_str() {
            "window" | "duration" => {
                let ms = amounts::duration_ms(&text)?;
                (format!("{name}_ms"), ms.into())
            }
            _ => {
                let value = serde_json::from_str(&text);
                let value = value.with_context(|| format!("{name}: {text:?} is not JSON"))?;
                (name, value)
            }
        };
        if read.insert(name.clone(), value).is_some() {
            bail!("{name} is given twice");
        }
    }
    Ok(read)
}

fn strategy(view: &StrategyView, renderer: &Renderer) -> String {
    let mut text = view.name.clone();
    for (name, value) in &view.parameters {
        let parameter = match (name.strip_suffix("_ms"), value.as_u64()) {
            (Some(name), Some(ms)) => format!(" {name}={}", duration(ms)),
            _ => format!(" {name}={value}"),
        };
        text.push_str(&parameter);
    }
    if let (Some(by), Some(at)) = (&view.by, view.at) {
        let _ = write!(text, ", chosen by {by} {}", renderer.ago(at));
    }
    text + "\n"
}

fn table(all: &BlockOverview, renderer: &Renderer) -> String {
    if all.nodes.is_empty() && all.workers.is_empty() {
        return "nothing is blocked\n".to_owned();
    }
    let mut table = Table::new([
        "what", "name", "for", "does", "since", "left", "in force", "moved", "by", "why",
    ]);
    for view in all.nodes.iter().chain(&all.workers) {
        let item = &view.item;
        let left = view.left_ms.map(duration);
        let job = item.job.as_ref().map(ToString::to_string);
        let in_force = view.in_force.as_ref();
        let sources: Vec<&str> = item.sources.iter().map(String::as_str).collect();
        table.row([
            word(&item.kind).into(),
            (&item.identifier).into(),
            job.as_deref().unwrap_or("all").into(),
            does(view),
            renderer.age(item.start).into(),
            left.as_deref().unwrap_or("permanent").into(),
            in_force
                .map_or_else(
                    || "not yet".to_owned(),
                    |it| format!("since {}", it.revision),
                )
                .into(),
            moved(view).into(),
            sources.join(", ").into(),
            (&item.cause).into(),
        ]);
    }
    table.text(renderer)
}

fn does(view: &BlockView) -> Cell {
    match view.item.action {
        _ if view.item.canary => toned("on trial", Tone::Good),
        BlockAction::Mark => toned("nothing new", Tone::Warning),
        BlockAction::Evacuate => toned("is emptied", Tone::Bad),
    }
}

fn moved(view: &BlockView) -> String {
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

    fn at() -> Timestamp {
        Timestamp::from_unix_ms(1_795_257_720_000)
    }

    fn renderer() -> Renderer {
        Renderer {
            colour: false,
            now: at().plus_ms(30_000),
        }
    }

    fn view(identifier: &str, action: BlockAction, end: Option<Timestamp>) -> BlockView {
        BlockView {
            item: BlockEntry {
                kind: BlockKind::Node,
                identifier: identifier.into(),
                action,
                cause: "ECC errors".into(),
                start: at(),
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
    fn a_table_of_blocks() {
        let mut emptied = view("node-1", BlockAction::Evacuate, Some(at().plus_ms(600_000)));
        emptied.in_force = Some(InForce {
            revision: 812,
            since: at(),
        });
        emptied.progress = Some(EvacuationProgress {
            total: 5,
            moved: 2,
            failed: 1,
            remaining: 2,
            ..EvacuationProgress::default()
        });
        let mut tried = view("node-2", BlockAction::Mark, Some(at().plus_ms(90_000)));
        tried.item.canary = true;
        tried.item.cause = "on trial after: disk_full".into();
        tried.item.sources = ["strategy:cause-class".to_owned()].into();
        let mut all = BlockOverview {
            version: 1,
            nodes: vec![emptied, tried],
            workers: vec![],
        };
        let mut scoped = view("alc_1", BlockAction::Mark, None);
        scoped.item.kind = BlockKind::Worker;
        scoped.item.job = Some("job_1".parse().unwrap());
        all.workers.push(scoped);
        insta::assert_snapshot!(table(&all, &renderer()));
        (all.nodes, all.workers) = (vec![], vec![]);
        assert_eq!(table(&all, &renderer()), "nothing is blocked\n");
    }

    #[test]
    fn parameters_are_json_and_durations_have_units() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = parameters(vec![pair("n", "4"), pair("window", "10m")]).unwrap();
        assert_eq!(json!(read), json!({ "n": 4, "window_ms": 600_000 }));
        assert!(parameters(vec![pair("n", "four")]).is_err());
        assert!(parameters(vec![pair("n", "1"), pair("n", "2")]).is_err());
        let view = StrategyView {
            name: "flapping".into(),
            parameters: read,
            by: Some("ada".into()),
            at: Some(at()),
            revision: 3,
        };
        let line = strategy(&view, &renderer());
        assert_eq!(line, "flapping n=4 window=10m 0s, chosen by ada 30s ago\n");
    }
}
