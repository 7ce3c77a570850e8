//! `hayward policy history`: lists the authors, times and contents of policy changes.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::policy::{PolicyHistory, PolicyVersion};

use super::ROUTE;
use crate::connection::{Role, Service, Session};
use crate::output::format::sanitize;
use crate::output::{Renderer, Table};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Show this version with all its changes.
    #[arg(value_name = "NUMBER")]
    pub generation: Option<u64>,
    /// Maximum number of versions, the newest first.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = limit_parser())]
    pub limit: u64,
}

fn limit_parser() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1000)
}

pub async fn run(session: &Session, arguments: &Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    if let Some(generation) = arguments.generation {
        let response = client.get(&format!("{ROUTE}/history/{generation}")).await?;
        return session.out.print_response(response, version_text);
    }
    let path = format!("{ROUTE}/history?limit={}", arguments.limit);
    let response = client.get(&path).await?;
    session
        .out
        .print_response(response, |history: &PolicyHistory, renderer| {
            render_table(&history.versions, renderer)
        })
}

fn version_text(version: &PolicyVersion, renderer: &Renderer) -> String {
    let mut text = format!(
        "policy {}, by {}, {}\n",
        version.generation,
        sanitize(&version.changed_by),
        renderer.ago(version.changed_at)
    );
    for line in &version.changes {
        // Writing to a string never fails.
        let _ = writeln!(text, "  {}", sanitize(line));
    }
    let _ = writeln!(
        text,
        "To restore it: hayward policy show --generation {} > FILE; hayward policy apply FILE",
        version.generation
    );
    text
}

fn render_table(versions: &[PolicyVersion], renderer: &Renderer) -> String {
    if versions.is_empty() {
        return "the policy has not been changed yet\n".to_owned();
    }
    let mut table =
        Table::new(["number", "age", "by", "changes", "the first"]).align_right(&[0, 3]);
    for version in versions {
        table.push_row([
            version.generation.into(),
            renderer.age(version.changed_at).into(),
            sanitize(&version.changed_by).into(),
            version.changes.len().into(),
            version
                .changes
                .first()
                .map(String::as_str)
                .unwrap_or_default()
                .into(),
        ]);
    }
    table.render(renderer)
}
