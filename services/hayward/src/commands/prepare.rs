//! `hayward prepare`: keys, tokens, database roles and schemas for a fleet of separate processes.

use std::path::PathBuf;
use std::process::ExitCode;

use hayward_service::auth::Groups;
use hayward_vocabulary::{NodeName, UserName};

use crate::prepare;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Directory for keys and tokens; made with mode 0700.
    #[arg(long, value_name = "DIR")]
    pub keys: PathBuf,
    /// Address of the database as somebody who may create roles in it. Without it only keys and
    /// tokens are made.
    #[arg(
        long,
        env = "HAYWARD_ADMIN_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub admin_url: Option<String>,
    /// Make a token for the agent of this node. May be repeated.
    #[arg(long = "agent", value_name = "NODE")]
    pub agents: Vec<NodeName>,
    /// Make a token for this person. May be repeated.
    #[arg(long = "user", value_name = "NAME")]
    pub users: Vec<UserName>,
    /// Make a token for this person to read audit records, and nothing else. May be repeated.
    #[arg(long = "auditor", value_name = "NAME")]
    pub auditors: Vec<UserName>,
    /// These people are in this group: lists of who may submit, limits and placement rules of
    /// queues name it. May be repeated. Without it they stay in the groups of their last token.
    #[arg(
        long = "group",
        value_name = "NAME",
        requires = "users",
        conflicts_with = "no_groups"
    )]
    pub groups: Vec<String>,
    /// These people are in no group any more.
    #[arg(long, requires = "users")]
    pub no_groups: bool,
}

pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let given = arguments.no_groups || !arguments.groups.is_empty();
    let groups = given.then(|| Groups::new(arguments.groups));
    let groups = groups.transpose()?;
    let keys = prepare::keys(&arguments.keys, &arguments.agents)?;
    for user in &arguments.users {
        match &groups {
            Some(groups) => prepare::user_token_in(&keys, user.as_str(), groups.clone())?,
            None => prepare::user_token(&keys, user.as_str())?,
        };
    }
    for name in &arguments.auditors {
        prepare::auditor_token(&keys, name.as_str())?;
    }
    if let Some(url) = &arguments.admin_url {
        prepare::database(&keys, url, false).await?;
    }
    println!("keys, tokens and roles are in {}", keys.dir().display());
    Ok(ExitCode::SUCCESS)
}
