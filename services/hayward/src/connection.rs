//! Finds the fleet, and the token that a command sends.
//!
//! Addresses come from an environment variable, or from `fleet.json` that `hayward up` writes to
//! the state directory. Tokens come from the keys directory inside the state directory. A missing
//! address or token is an error that explains how to give it.

pub mod pages;
pub mod work_routes;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use hayward_service::client::{Authority, CA_IN_KEYS};
use hayward_service::{Client, Keys, TokenSource};
use hayward_vocabulary::UserName;

use crate::output::Output;
use crate::{prepare, state_directory};

/// The caller, by its token.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Caller")]
pub struct Access {
    /// Send the requests as this user. Default: $USER, else `me`.
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<UserName>,
    /// Send the requests as the operator, who may see and end the work of all users.
    #[arg(long, global = true, conflicts_with = "user")]
    pub operator: bool,
    /// Send the requests with the token in this file.
    #[arg(long, global = true, env = "HAYWARD_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Role that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user who manages their own work.
    User,
    /// An operator.
    Operator,
    /// Any authenticated user.
    Reader,
}

/// The five services that the command line can call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    JobConverter,
    RmScheduler,
    ContainerManager,
    NodeStatus,
    Blocklist,
}

impl Service {
    /// All services in the order of their ports.
    pub const ALL: [Self; 5] = [
        Self::JobConverter,
        Self::RmScheduler,
        Self::ContainerManager,
        Self::NodeStatus,
        Self::Blocklist,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::JobConverter => "job-converter",
            Self::RmScheduler => "rm-scheduler",
            Self::ContainerManager => "container-manager",
            Self::NodeStatus => "node-status",
            Self::Blocklist => "blocklist",
        }
    }

    /// Returns the name of the environment variable with the address of this service.
    pub fn variable(self) -> &'static str {
        match self {
            Self::JobConverter => "HAYWARD_JOB_CONVERTER_URL",
            Self::RmScheduler => "HAYWARD_RM_SCHEDULER_URL",
            Self::ContainerManager => "HAYWARD_CONTAINER_MANAGER_URL",
            Self::NodeStatus => "HAYWARD_NODE_STATUS_URL",
            Self::Blocklist => "HAYWARD_BLOCKLIST_URL",
        }
    }
}

/// Addresses, tokens and output settings of one command.
#[derive(Debug)]
pub struct Session {
    pub out: Output,
    state: PathBuf,
    access: Access,
    /// Environment variables of this process whose names begin with `HAYWARD_`, and `USER`.
    environment: BTreeMap<String, String>,
}

impl Session {
    pub fn new(out: Output, state: Option<PathBuf>, access: Access) -> Self {
        let is_relevant = |name: &String| name.starts_with("HAYWARD_") || name == "USER";
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, value)| is_relevant(name) && !value.is_empty())
            .collect();
        let state = state.unwrap_or_else(state_directory::default_dir);
        Self {
            out,
            state,
            access,
            environment,
        }
    }

    /// Switches to the operator's token.
    #[must_use]
    pub fn as_operator(mut self) -> Self {
        self.access.operator = true;
        self
    }

    /// Returns the path of the state directory. The directory may be missing.
    pub fn state(&self) -> &std::path::Path {
        &self.state
    }

    /// Returns a client of one service.
    pub fn client(&self, service: Service, role: Role) -> anyhow::Result<Client> {
        let url = self.url(service)?;
        Client::from_list(&url, self.credentials(role)?)
    }

    /// Returns a client of one replica.
    pub fn client_at(&self, url: &str, role: Role) -> anyhow::Result<Client> {
        Client::new([url], self.credentials(role)?)
    }

    /// Returns the address of a service, or a list of addresses of its replicas.
    pub fn url(&self, service: Service) -> anyhow::Result<String> {
        if let Some(url) = self.environment.get(service.variable()) {
            return Ok(url.clone());
        }
        if !self.state.join("fleet.json").exists() {
            bail!(
                "no fleet found in {}: start one with `hayward up`, or say where one is with \
                 --state, HAYWARD_STATE or {}",
                self.state.display(),
                service.variable()
            );
        }
        let fleet = state_directory::read_fleet(&self.state)?;
        let entry = fleet
            .addresses
            .entries()
            .into_iter()
            .find(|(name, _)| *name == service.name());
        let (_, url) = entry.with_context(|| format!("the fleet has no {}", service.name()))?;
        Ok(url.to_owned())
    }

    /// Returns a token, and the certificate authority of the fleet if its keys are on this machine.
    fn credentials(&self, role: Role) -> anyhow::Result<TokenSource> {
        let authority = self.keys().join(CA_IN_KEYS);
        let authority = authority.exists().then_some(Authority::File(authority));
        Ok(self.token(role)?.with_authority(authority))
    }

    /// Returns the token for a role: an explicit one, that of the operator, or that of the user.
    fn token(&self, role: Role) -> anyhow::Result<TokenSource> {
        if let Some(file) = &self.access.token_file {
            return Ok(TokenSource::file(file));
        }
        if let Some(token) = self.environment.get("HAYWARD_TOKEN") {
            return Ok(TokenSource::fixed(token));
        }
        let operator = self.keys().join("tokens").join("operator.token");
        // The owner of the fleet reads as the operator, unless a flag names a user.
        let reads_as_operator =
            role == Role::Reader && self.access.user.is_none() && is_readable(&operator);
        if !(role == Role::Operator || self.access.operator || reads_as_operator) {
            return self.user_token();
        }
        if !is_readable(&operator) {
            bail!(
                "this needs the operator's token, and {} cannot be read; give one with \
                 --token-file or HAYWARD_TOKEN",
                operator.display()
            );
        }
        Ok(TokenSource::file(operator))
    }

    /// Returns the keys directory.
    fn keys(&self) -> PathBuf {
        let keys_dir = self.environment.get("HAYWARD_KEYS");
        keys_dir.map_or_else(|| self.state.join("keys"), PathBuf::from)
    }

    /// Returns the token of the user. The token is made if it is missing and the signing key is
    /// readable.
    fn user_token(&self) -> anyhow::Result<TokenSource> {
        let user = match (&self.access.user, self.environment.get("USER")) {
            (Some(user), _) => user.clone(),
            (None, Some(name)) => UserName::new(name.as_str())
                .context("$USER cannot be used as a name here; give one with --user")?,
            (None, None) => UserName::new("me")?,
        };
        let dir = self.keys();
        let file = dir.join("tokens").join(format!("user-{user}.token"));
        if is_readable(&file) {
            return Ok(TokenSource::file(file));
        }
        if is_readable(&dir.join("issuer.pem")) {
            let keys = Keys::open(&dir)?;
            return prepare::create_user_token(&keys, user.as_str()).map(TokenSource::fixed);
        }
        bail!(
            "there is no token for {user} in {}; whoever runs the fleet makes one with \
             `hayward prepare --keys DIR --user {user}`, and it is given with --token-file or \
             HAYWARD_TOKEN",
            dir.display()
        )
    }
}

fn is_readable(file: &std::path::Path) -> bool {
    std::fs::File::open(file).is_ok()
}

#[cfg(test)]
mod tests;
