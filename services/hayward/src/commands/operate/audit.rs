//! `hayward audit`: exports the audit records of the fleet and verifies their hash chains. (S24)

mod walk;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use hayward_publication::audit::AuditPage;
use hayward_service::Client;
use hayward_vocabulary::Timestamp;

use crate::connection::{Role, Service, Session};
use crate::output::{Renderer, Table, Tone, print, toned};

use walk::Walk;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the records of all services, one page a line as JSON
    Export(Period),
    /// Follow the chains of all services, and name the first record that is not as it should be
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
pub struct Period {
    /// Only records since this instant, such as 2026-11-21T00:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    pub since: Option<Timestamp>,
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    pub period: Period,
    /// Output of `hayward audit export`, instead of the current answers of the services.
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    pub file: Option<PathBuf>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Export(period) => {
            each(&session, period.since, |page| {
                print(&format!("{}\n", serde_json::to_string(&page)?))
            })
            .await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify(verify) => {
            let mut walk = Walk::default();
            match &verify.file {
                Some(file) => read(file, &mut walk)?,
                None => {
                    each(&session, verify.period.since, |page| {
                        walk.take(&page);
                        Ok(())
                    })
                    .await?;
                }
            }
            report(&session, &walk)
        }
    }
}

/// Reads every page of every service in order.
async fn each(
    session: &Session,
    since: Option<Timestamp>,
    mut take: impl FnMut(AuditPage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for service in Service::ALL {
        let client = session.client(service, Role::Operator)?;
        let mut next = None;
        loop {
            let page = page(&client, next.take(), since).await;
            let page = page.with_context(|| format!("the records of {}", service.name()))?;
            next.clone_from(&page.next_cursor);
            take(page)?;
            if next.is_none() {
                break;
            }
        }
    }
    Ok(())
}

async fn page(
    client: &Client,
    cursor: Option<String>,
    since: Option<Timestamp>,
) -> Result<AuditPage, hayward_service::ClientError> {
    let call = client.call(http::Method::GET, "/v1/audit?limit=1000");
    let call = match (cursor, since) {
        (Some(cursor), _) => call.query("cursor", cursor),
        (None, Some(since)) => call.query("since", since.to_string()),
        (None, None) => call,
    };
    call.send().await
}

fn read(file: &Path, walk: &mut Walk) -> anyhow::Result<()> {
    let open = std::fs::File::open(file);
    let open = open.with_context(|| format!("cannot read {}", file.display()))?;
    for (number, line) in BufReader::new(open).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {}", file.display()))?;
        if !line.trim().is_empty() {
            let page = serde_json::from_str(&line);
            let at = || format!("line {} of {}", number + 1, file.display());
            walk.take(&page.with_context(at)?);
        }
    }
    Ok(())
}

fn report(session: &Session, walk: &Walk) -> anyhow::Result<ExitCode> {
    if session.out.json {
        session.out.json(&serde_json::to_value(walk)?)?;
    } else {
        print(&text(walk, &session.out.renderer()))?;
    }
    Ok(if walk.whole() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

pub fn text(walk: &Walk, renderer: &Renderer) -> String {
    if walk.chains.is_empty() {
        return "no audit records\n".to_owned();
    }
    let header = ["service", "records", "refused", "last", "chain"];
    let mut table = Table::new(header).numbers(&[1, 2, 3]);
    for chain in &walk.chains {
        table.row([
            (&chain.service).into(),
            chain.records.into(),
            chain.refused.into(),
            chain.last.into(),
            match &chain.broken {
                None => toned("whole", Tone::Good),
                Some(_) => toned("BROKEN", Tone::Bad),
            },
        ]);
    }
    let mut text = table.text(renderer);
    for chain in &walk.chains {
        if let Some(broken) = &chain.broken {
            let _ = write!(text, "\n{}: {broken}\n", chain.service);
        }
    }
    text
}
