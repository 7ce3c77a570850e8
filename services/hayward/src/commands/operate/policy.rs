//! `hayward policy`: shows, checks and replaces the policy as one document.
//!
//! The output of `show` is the input of `apply`. It contains the generation, which is the number of
//! the version of the policy. With it, a concurrent change is detected and not undone. `check` and
//! `import` need no fleet.

pub mod document;
mod effects;
mod history;
mod import;

use std::path::PathBuf;

use anyhow::Context as _;
use hayward_rm_scheduler_api::policy::{Policy, PolicyAnswer, PolicyVersion, PolicyView};
use hayward_service::Client;
use http::Method;
use http::header::IF_MATCH;
use serde_json::{Value, json};

use self::document::read_policy;
use crate::connection::{Role, Service, Session};
use crate::output::{note, parse_response, print};

const ROUTE: &str = "/v1/policy";

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Print the policy in force, as `apply` reads it
    Show(ShowArguments),
    /// Check a policy without a fleet, and show all faults
    Check(PolicyFile),
    /// Show what a policy would change, and which work would move
    Diff(ChangeArguments),
    /// Replace the policy by the policy in a file
    #[command(alias = "set")]
    Apply(ApplyArguments),
    /// List the changes of the policy, with author and time
    History(history::Arguments),
    /// Read the class, user, node and property files of DUCC, and print a policy
    Import(import::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct ShowArguments {
    /// Number of an earlier policy. The output has no number, so that it can be applied again.
    #[arg(long, value_name = "NUMBER")]
    pub generation: Option<u64>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct PolicyFile {
    /// File with a policy or a changed output of `show`, as YAML or JSON. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, clap::Args)]
pub struct ChangeArguments {
    #[command(flatten)]
    pub source: PolicyFile,
    /// Remove classes even if they have work. Their jobs and services end.
    #[arg(long)]
    pub drop_classes: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub struct ApplyArguments {
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Refuse if the policy in force has another number. Default: the number in the file, else the
    /// number in force now.
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Show which work would move, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Show(show) => print_policy(&session, &show).await,
        Command::Check(file) => check(&session, &file),
        Command::Diff(change) => {
            let (policy, _) = read_policy(&change.source.file)?;
            let client = session.client(Service::RmScheduler, Role::Operator)?;
            let generation = current_generation(&client).await?;
            put_policy(&session, &change, &policy, generation, true).await
        }
        Command::Apply(apply) => {
            let (policy, generation) = read_policy(&apply.change.source.file)?;
            let client = session.client(Service::RmScheduler, Role::Operator)?;
            let generation = match apply.from.or(generation) {
                Some(generation) => generation,
                None => current_generation(&client).await?,
            };
            put_policy(&session, &apply.change, &policy, generation, apply.dry_run).await
        }
        Command::History(arguments) => history::run(&session, &arguments).await,
        Command::Import(files) => import::run(&session, &files),
    }
}

/// Prints the policy in force, or an earlier version.
async fn print_policy(session: &Session, show: &ShowArguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response: Value = match show.generation {
        Some(generation) => client.get(&format!("{ROUTE}/history/{generation}")).await?,
        None => client.get(ROUTE).await?,
    };
    if session.out.json {
        return session.out.json(&response);
    }
    let text = if show.generation.is_some() {
        let version: PolicyVersion = parse_response(response)?;
        document::to_yaml(&version.policy)?
    } else {
        let view: PolicyView = parse_response(response)?;
        document::to_yaml(&view)?
    };
    print(&text)
}

/// Checks a policy file and prints its faults, or notes about fields without effect.
fn check(session: &Session, file: &PolicyFile) -> anyhow::Result<()> {
    let (policy, _) = match read_policy(&file.file) {
        Ok(policy) => policy,
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

/// Replaces the policy if its current version is `generation`.
async fn put_policy(
    session: &Session,
    change: &ChangeArguments,
    policy: &Policy,
    generation: u64,
    dry_run: bool,
) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let query = format!("?dry_run={dry_run}&drop_classes={}", change.drop_classes);
    let call = client
        .call(Method::PUT, format!("{ROUTE}{query}"))
        .header(IF_MATCH, &format!("\"{generation}\""));
    let file_name = || change.source.file.display().to_string();
    let response: Value = call.body(policy).send().await.with_context(file_name)?;
    session
        .out
        .print_response(response, |response: &PolicyAnswer, renderer| {
            effects::render(response, dry_run, renderer)
        })
}

async fn current_generation(client: &Client) -> anyhow::Result<u64> {
    let view: PolicyView = client.get(ROUTE).await?;
    Ok(view.generation)
}
