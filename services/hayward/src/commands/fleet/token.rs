//! `hayward token`: manages the tokens of a keys directory. It calls no service: write access to
//! the directory includes the signing key, and services read the list of revoked tokens themselves.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use hayward_service::auth::{Refusal, TokenLifetime, Verifier};
use hayward_service::{Clock, Keys, Scope, SystemClock};
use hayward_vocabulary::{NodeName, Timestamp, UserName};
use serde::{Deserialize, Serialize};

use crate::output::{Output, Renderer, Table};
use crate::{prepare, state_directory};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The keys directory. Default: that of the fleet of `hayward up`.
    #[arg(long, global = true, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Make a token file in the directory; the token expires unless it is renewed
    Issue(IssueArguments),
    /// List the tokens with subject, scopes and expiry
    List,
    /// Revoke a token; services refuse it within two seconds
    Revoke(NameArg),
    /// Replace a token by a new one, and revoke the old one
    Rotate(NameArg),
}

#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub struct IssueArguments {
    /// Make a token with which this person submits work. The groups of the person stay.
    #[arg(long, value_name = "NAME")]
    pub user: Option<UserName>,
    /// Make a token with which this person reads everything and changes nothing.
    #[arg(long, value_name = "NAME")]
    pub viewer: Option<UserName>,
    /// Make a token with which this person reads audit records, and nothing else.
    #[arg(long, value_name = "NAME")]
    pub auditor: Option<UserName>,
    /// Make a token for the agent of this node.
    #[arg(long, value_name = "NODE")]
    pub agent: Option<NodeName>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct NameArg {
    /// Name of the token in `hayward token list`.
    #[arg(value_name = "TOKEN")]
    pub name: String,
}

/// A token file of the keys directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// File name without its ending.
    pub name: String,
    /// Subject of the token. `None` if the token is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// Reason why the token is not accepted. `None` for a valid token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

pub fn run(out: Output, state: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<()> {
    let default_keys = || {
        state
            .unwrap_or_else(state_directory::default_dir)
            .join("keys")
    };
    let keys = Keys::open(arguments.keys.unwrap_or_else(default_keys))?;
    execute_action(&keys, arguments.action, out)
}

fn execute_action(keys: &Keys, action: Action, out: Output) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match action {
        Action::Issue(issue) => {
            let name = issue_token(keys, &issue)?;
            println!("{}", keys.token_path(&name).display());
        }
        Action::List => {
            let all = list_tokens(keys, &clock)?;
            let response = serde_json::to_value(&all)?;
            out.print_response(response, |all: &Vec<TokenEntry>, renderer| {
                render_table(all, renderer)
            })?;
        }
        Action::Revoke(token) => {
            revoke(keys, &clock, &token.name)?;
            println!("{} is refused from now on", token.name);
        }
        Action::Rotate(token) => {
            rotate(keys, &clock, &token.name)?;
            println!("{}", keys.token_path(&token.name).display());
        }
    }
    Ok(())
}

/// Issues a token. Returns the name of its file.
fn issue_token(keys: &Keys, issue: &IssueArguments) -> anyhow::Result<String> {
    if let Some(user) = &issue.user {
        prepare::create_user_token(keys, user.as_str())?;
        return Ok(format!("user-{user}"));
    }
    if let Some(node) = &issue.agent {
        prepare::create_agent_token(keys, node)?;
        return Ok(format!("agent-{node}"));
    }
    if let Some(name) = &issue.auditor {
        prepare::create_auditor_token(keys, name.as_str())?;
        return Ok(format!("auditor-{name}"));
    }
    let name = issue.viewer.as_ref().context("say for whom")?;
    prepare::create_viewer_token(keys, name.as_str())?;
    Ok(format!("viewer-{name}"))
}

fn list_tokens(keys: &Keys, clock: &Arc<dyn Clock>) -> anyhow::Result<Vec<TokenEntry>> {
    let verifier = keys.verifier(Arc::clone(clock))?;
    let names = keys.token_names()?.into_iter();
    Ok(names
        .map(|name| token_entry(keys, &verifier, name))
        .collect())
}

fn token_entry(keys: &Keys, verifier: &Verifier, name: String) -> TokenEntry {
    // An unreadable file counts as an invalid token, so that the others are still listed.
    let token = keys.token(&name).unwrap_or_default();
    let principal = verifier.principal_of(&token).ok();
    let lifetime = principal
        .as_ref()
        .and_then(|_| TokenLifetime::from_token(&token));
    let scopes = principal.iter().flat_map(|it| &it.scopes);
    TokenEntry {
        name,
        scopes: scopes.map(Scope::to_string).collect(),
        subject: principal.as_ref().map(|it| it.name.clone()),
        ends_at: lifetime.map(|it| Timestamp::from_unix_ms(it.expires_at_s() * 1_000)),
        refused: verifier
            .verify(&token)
            .err()
            .map(|it: Refusal| it.to_string()),
    }
}

fn render_table(all: &[TokenEntry], renderer: &Renderer) -> String {
    let mut table = Table::new(["token", "names", "may", "good until", ""]);
    for entry in all {
        table.push_row([
            entry.name.clone().into(),
            entry.subject.clone().unwrap_or_default().into(),
            entry.scopes.join(", ").into(),
            entry
                .ends_at
                .map_or(String::new(), |it| it.to_string())
                .into(),
            entry.refused.clone().unwrap_or_default().into(),
        ]);
    }
    table.render(renderer)
}

fn revoke(keys: &Keys, clock: &Arc<dyn Clock>, name: &str) -> anyhow::Result<()> {
    let verifier = keys.verifier(Arc::clone(clock))?;
    let token = keys.token(name)?;
    let id = verifier.token_id(&token);
    keys.revoke(&id.with_context(|| format!("{name} is no token of this fleet"))?)
}

/// Replaces a token and revokes the previous one. The new token is written first, so that the file
/// always has a valid token.
fn rotate(keys: &Keys, clock: &Arc<dyn Clock>, name: &str) -> anyhow::Result<()> {
    let verifier = keys.verifier(Arc::clone(clock))?;
    let token = keys.token(name)?;
    let old_id = verifier.token_id(&token);
    let old_id = old_id.with_context(|| format!("{name} is no token of this fleet"))?;
    let principal = verifier.principal_of(&token)?;
    ensure!(
        principal.act_as.is_empty(),
        "an orchestrator's token is renewed at /v1/orchestrators/NAME/credentials"
    );
    prepare::renew_one(keys, clock, name, &principal)?;
    keys.revoke(&old_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates keys with a token of the user Ada and a token of the viewer Eve.
    fn keys_with_tokens() -> (tempfile::TempDir, Keys, Arc<dyn Clock>) {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::create(dir.path().join("keys")).unwrap();
        let issue = |user: Option<&str>, viewer: Option<&str>| IssueArguments {
            user: user.map(|it| it.parse().unwrap()),
            viewer: viewer.map(|it| it.parse().unwrap()),
            auditor: None,
            agent: None,
        };
        assert_eq!(
            issue_token(&keys, &issue(Some("ada"), None)).unwrap(),
            "user-ada"
        );
        assert_eq!(
            issue_token(&keys, &issue(None, Some("eve"))).unwrap(),
            "viewer-eve"
        );
        (dir, keys, Arc::new(SystemClock))
    }

    #[test]
    fn tokens_are_listed_with_scopes_and_refusals() {
        let (_dir, keys, clock) = keys_with_tokens();
        std::fs::write(keys.token_path("stray"), "no token").unwrap();
        let all = list_tokens(&keys, &clock).unwrap();
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["stray", "user-ada", "viewer-eve"]);
        let [stray, user, viewer] = all.as_slice() else {
            panic!("three tokens")
        };
        assert_eq!(user.scopes, ["submitter"]);
        assert_eq!(viewer.subject.as_deref(), Some("eve"));
        assert!(user.refused.is_none() && user.ends_at > Some(clock.now()));
        assert!(stray.refused.is_some() && stray.subject.is_none());
    }

    // `revoke` revokes the token itself, and `rotate` revokes its predecessor. (S8)
    #[test]
    fn a_revoked_token_is_refused_and_a_rotated_one_has_a_successor() {
        let (_dir, keys, clock) = keys_with_tokens();
        let before = keys.token("user-ada").unwrap();
        revoke(&keys, &clock, "viewer-eve").unwrap();
        rotate(&keys, &clock, "user-ada").unwrap();
        let verifier = keys.verifier(Arc::clone(&clock)).unwrap();
        let refused = |token: &str| verifier.verify(token).err();
        let viewer_token = keys.token("viewer-eve").unwrap();
        assert_eq!(refused(&viewer_token), Some(Refusal::Revoked));
        assert_eq!(refused(&before), Some(Refusal::Revoked));
        let after = keys.token("user-ada").unwrap();
        assert_eq!(verifier.verify(&after).unwrap().name, "ada");
        // A second revocation has no effect. An invalid token is an error and changes nothing.
        revoke(&keys, &clock, "viewer-eve").unwrap();
        let revoked = std::fs::read_to_string(keys.revoked_path()).unwrap();
        assert_eq!(revoked.lines().count(), 2);
        assert!(revoke(&keys, &clock, "missing").is_err());
    }
}
