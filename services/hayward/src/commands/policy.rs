//! `hayward policy`: how the machines are shared, read and replaced as one document.
//!
//! What `show` prints is what `set` reads. It bears the number of the change it was made from, so
//! that a change somebody else made meanwhile is noticed and not undone.

use std::path::PathBuf;

use anyhow::Context as _;
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_service::Client;
use http::Method;
use http::header::IF_MATCH;
use serde_json::Value;

use crate::commands::submit::{named, text_of, typed};
use crate::connection::{Role, Service, Session};

const ROUTE: &str = "/v1/policy";

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Print the policy in force, as `set` reads it
    Show,
    /// Replace the policy by what a file says
    Set(Set),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Set {
    /// YAML or JSON: what `show` printed, changed; or a policy alone. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Check it and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Show => {
            let client = session.client(Service::RmScheduler, Role::Reader)?;
            let answer: Value = client.get(ROUTE).await?;
            if session.out.json {
                return session.out.json(&answer);
            }
            let text = yaml_serde::to_string(&answer).context("cannot write this as YAML")?;
            crate::output::print(&text)
        }
        Command::Set(change) => set(&session, &change).await,
    }
}

async fn set(session: &Session, change: &Set) -> anyhow::Result<()> {
    let text = text_of(&change.file)?;
    let (policy, generation) = read(&text).with_context(|| named(&change.file))?;
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let generation = match generation {
        Some(generation) => generation,
        None => in_force(&client).await?,
    };
    let path = if change.dry_run {
        format!("{ROUTE}?dry_run=true")
    } else {
        ROUTE.to_owned()
    };
    let call = client
        .call(Method::PUT, path)
        .header(IF_MATCH, &format!("\"{generation}\""));
    let answer: Value = call.body(&policy).send().await?;
    session.out.answer(answer, |view: &PolicyView, _| {
        if change.dry_run {
            "nothing is wrong with it; nothing was changed\n".to_owned()
        } else {
            format!("the policy in force is number {}\n", view.generation)
        }
    })
}

async fn in_force(client: &Client) -> anyhow::Result<u64> {
    let view: PolicyView = client.get(ROUTE).await?;
    Ok(view.generation)
}

/// A policy, and the number it was made from when the text says so.
fn read(text: &str) -> anyhow::Result<(Policy, Option<u64>)> {
    let mut value: Value = yaml_serde::from_str(text).context("this is not YAML")?;
    let whole = value.get("policy").is_some();
    let generation = value.get("generation").and_then(Value::as_u64);
    if whole && let Some(inner) = value.get_mut("policy") {
        value = inner.take();
    }
    Ok((typed(value)?, generation.filter(|_| whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        let view = PolicyView {
            generation: 3,
            policy: Policy::default(),
        };
        let shown = yaml_serde::to_string(&serde_json::to_value(&view).unwrap()).unwrap();
        assert_eq!(read(&shown).unwrap(), (view.policy.clone(), Some(3)));
        let alone = serde_json::to_string(&view.policy).unwrap();
        assert_eq!(
            read(&alone).unwrap(),
            (view.policy, None),
            "JSON, and without a number"
        );
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let text = "pools: {}\nclasses:\n  high:\n    policy: FAIR_SHARE\n    priorty: 1\n";
        let fault = read(text).unwrap_err().to_string();
        assert!(
            fault.starts_with("classes.high") && fault.contains("priorty"),
            "{fault}"
        );
    }
}
