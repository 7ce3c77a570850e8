//! `hayward audit`: exports the audit records of the fleet and verifies their hash chains. Each
//! record has the hash of its predecessor, so that a changed or missing record is detected. (S24)

mod verification;

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

use verification::Verification;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the records of all services as JSON, one page in each line
    Export(Period),
    /// Verify the chains of all services, and name the first wrong record
    Verify(VerifyArguments),
}

#[derive(Debug, clap::Args)]
pub struct Period {
    /// Only records since this time, such as 2026-11-21T00:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    pub since: Option<Timestamp>,
}

#[derive(Debug, clap::Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    pub period: Period,
    /// Verify this output of `hayward audit export`, instead of the records of the services.
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    pub file: Option<PathBuf>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Export(period) => {
            for_each_page(&session, period.since, |page| {
                print(&format!("{}\n", serde_json::to_string(&page)?))
            })
            .await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify(verify) => {
            let mut verification = Verification::default();
            match &verify.file {
                Some(file) => read_file(file, &mut verification)?,
                None => {
                    for_each_page(&session, verify.period.since, |page| {
                        verification.add_page(&page);
                        Ok(())
                    })
                    .await?;
                }
            }
            print_verification(&session, &verification)
        }
    }
}

/// Reads every page of every service in order.
async fn for_each_page(
    session: &Session,
    since: Option<Timestamp>,
    mut visit: impl FnMut(AuditPage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for service in Service::ALL {
        let client = session.client(service, Role::Operator)?;
        let mut next = None;
        loop {
            let page = read_page(&client, next.take(), since).await;
            let page = page.with_context(|| format!("the records of {}", service.name()))?;
            next.clone_from(&page.next_cursor);
            visit(page)?;
            if next.is_none() {
                break;
            }
        }
    }
    Ok(())
}

async fn read_page(
    client: &Client,
    cursor: Option<String>,
    since: Option<Timestamp>,
) -> Result<AuditPage, hayward_service::ClientError> {
    let call = client.call(http::Method::GET, "/v1/audit?limit=1000");
    let call = match (cursor, since) {
        // The cursor continues a list that began at the time.
        (Some(cursor), _) => call.query("cursor", cursor),
        (None, Some(since)) => call.query("since", since.to_string()),
        (None, None) => call,
    };
    call.send().await
}

fn read_file(file: &Path, verification: &mut Verification) -> anyhow::Result<()> {
    let opened = std::fs::File::open(file);
    let opened = opened.with_context(|| format!("cannot read {}", file.display()))?;
    for (number, line) in BufReader::new(opened).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {}", file.display()))?;
        if !line.trim().is_empty() {
            let page = serde_json::from_str(&line);
            let location = || format!("line {} of {}", number + 1, file.display());
            verification.add_page(&page.with_context(location)?);
        }
    }
    Ok(())
}

fn print_verification(session: &Session, verification: &Verification) -> anyhow::Result<ExitCode> {
    if session.out.json {
        session.out.json(&serde_json::to_value(verification)?)?;
    } else {
        print(&render(verification, &session.out.renderer()))?;
    }
    Ok(if verification.is_valid() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

pub fn render(verification: &Verification, renderer: &Renderer) -> String {
    if verification.chains.is_empty() {
        return "no audit records\n".to_owned();
    }
    let header = ["service", "records", "refused", "last", "chain"];
    let mut table = Table::new(header).align_right(&[1, 2, 3]);
    for chain in &verification.chains {
        table.push_row([
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
    let mut text = table.render(renderer);
    for chain in &verification.chains {
        if let Some(broken) = &chain.broken {
            let _ = write!(text, "\n{}: {broken}\n", chain.service);
        }
    }
    text
}
