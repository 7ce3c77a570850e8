//! `hayward policy`: shows, checks and replaces the policy of sharing as one document.
//!
//! The output of `show` is the input of `apply`. It contains the generation of the policy, so that
//! a concurrent change is detected and not undone. `check` and `import` need no fleet.

pub mod document;
mod history;
mod import;
mod shown;

use std::path::PathBuf;

use anyhow::Context as _;
use hayward_rm_scheduler_api::policy::{Policy, PolicyAnswer, PolicyVersion, PolicyView};
use hayward_service::Client;
use http::Method;
use http::header::IF_MATCH;
use serde_json::{Value, json};

use self::document::policy_of;
use crate::connection::{Role, Service, Session};
use crate::output::{note, print, read};

const ROUTE: &str = "/v1/policy";

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Print the policy in force, as `apply` reads it
    Show(Show),
    /// Check a policy without a fleet, and say all that is wrong with it
    Check(File),
    /// Say what a policy would change, and what would move
    Diff(Change),
    /// Replace the policy by what a file says
    #[command(alias = "set")]
    Apply(Apply),
    /// List who changed the policy when, and what
    History(history::Arguments),
    /// Read the class, user, node and property files of DUCC, and print a policy
    Import(import::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Show {
    /// An earlier one, by its number; without the number in it, so that it can be applied again.
    #[arg(long, value_name = "NUMBER")]
    pub generation: Option<u64>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct File {
    /// YAML or JSON: what `show` printed, changed; or a policy alone. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Change {
    #[command(flatten)]
    pub from: File,
    /// Let classes go although work is in them: jobs and services in them end.
    #[arg(long)]
    pub drop_classes: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Apply {
    #[command(flatten)]
    pub change: Change,
    /// Refuse if the policy in force has another number. Default: what the file says, else the
    /// number in force now.
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Say what would move, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Show(show) => print_policy(&session, &show).await,
        Command::Check(file) => check(&session, &file),
        Command::Diff(change) => {
            let (policy, _) = policy_of(&change.from.file)?;
            let client = session.client(Service::RmScheduler, Role::Operator)?;
            let from = in_force(&client).await?;
            put(&session, &change, &policy, from, true).await
        }
        Command::Apply(apply) => {
            let (policy, generation) = policy_of(&apply.change.from.file)?;
            let client = session.client(Service::RmScheduler, Role::Operator)?;
            let from = match apply.from.or(generation) {
                Some(from) => from,
                None => in_force(&client).await?,
            };
            put(&session, &apply.change, &policy, from, apply.dry_run).await
        }
        Command::History(arguments) => history::run(&session, &arguments).await,
        Command::Import(files) => import::run(&session, &files),
    }
}

async fn print_policy(session: &Session, show: &Show) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let answer: Value = match show.generation {
        Some(generation) => client.get(&format!("{ROUTE}/history/{generation}")).await?,
        None => client.get(ROUTE).await?,
    };
    if session.out.json {
        return session.out.json(&answer);
    }
    let text = if show.generation.is_some() {
        let version: PolicyVersion = read(answer)?;
        document::written(&version.policy)?
    } else {
        let view: PolicyView = read(answer)?;
        document::written(&view)?
    };
    print(&text)
}

fn check(session: &Session, file: &File) -> anyhow::Result<()> {
    let (policy, _) = match policy_of(&file.file) {
        Ok(read) => read,
        Err(error) => {
            if session.out.json {
                session
                    .out
                    .json(&json!({ "faults": document::faults_in(&error) }))?;
            }
            return Err(error);
        }
    };
    let notes = hayward_rm_scheduler_policy::notes(&policy);
    if session.out.json {
        return session.out.json(&json!({ "faults": [], "notes": notes }));
    }
    for line in &notes {
        note(line);
    }
    let (pools, classes) = (policy.pools.len(), policy.classes.len());
    print(&format!(
        "nothing is wrong with it: {pools} pool(s), {classes} class(es), {} user(s)\n",
        policy.users.len()
    ))
}

async fn put(
    session: &Session,
    change: &Change,
    policy: &Policy,
    from: u64,
    dry: bool,
) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let query = format!("?dry_run={dry}&drop_classes={}", change.drop_classes);
    let call = client
        .call(Method::PUT, format!("{ROUTE}{query}"))
        .header(IF_MATCH, &format!("\"{from}\""));
    let named = || change.from.file.display().to_string();
    let answer: Value = call.body(policy).send().await.with_context(named)?;
    session
        .out
        .answer(answer, |answer: &PolicyAnswer, renderer| {
            shown::answer(answer, dry, renderer)
        })
}

async fn in_force(client: &Client) -> anyhow::Result<u64> {
    let view: PolicyView = client.get(ROUTE).await?;
    Ok(view.generation)
}
