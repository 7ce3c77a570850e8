//! Issues tokens for task runners and orchestrators.
//!
//! Jobs that one user submits within one second share a runner token, so that fewer tokens are
//! signed. A runner token only gives access to tasks of its own user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_service::auth::{
    ANYONE, Issuer, MAX_USERS, Scope, max_lifetime_ms, orchestrator_subject,
};
use hayward_vocabulary::{UserName, WorkId};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::work::Runner;

/// Lifetime of a runner's token in milliseconds. Runners keep their token for the life of the job,
/// so it exceeds the life of any expected job.
const TOKEN_LIFETIME_MS: u64 = 90 * 24 * 3600 * 1000;
/// Period in which jobs of one user share a token.
const SHARING_PERIOD: Duration = Duration::from_secs(1);
/// Number of cached tokens from which expired ones are removed.
const MAX_CACHED: usize = 1_024;

pub struct TokenIssuer {
    issuer: Issuer,
    /// Last runner token of each user, and the time of its creation.
    cached: Mutex<FxHashMap<UserName, (Instant, Runner)>>,
}

impl TokenIssuer {
    pub fn new(issuer: Issuer) -> Self {
        Self {
            issuer,
            cached: Mutex::default(),
        }
    }

    /// Creates a token for an orchestrator that may act for these users, or for anyone. A token
    /// cannot list more than [`MAX_USERS`] users. With more, it acts for none of them, but maps may
    /// still charge all of them.
    ///
    /// # Errors
    /// Fails if the token cannot be signed.
    pub fn for_orchestrator(
        &self,
        name: &UserName,
        users: &[UserName],
        anyone: bool,
    ) -> anyhow::Result<String> {
        let scopes = [Scope::Orchestrator(name.clone())];
        let token_users = match users {
            _ if anyone => vec![ANYONE.to_owned()],
            users if users.len() > MAX_USERS => Vec::new(),
            users => users.iter().map(ToString::to_string).collect(),
        };
        let subject = orchestrator_subject(name);
        let lifetime_ms = max_lifetime_ms(&scopes);
        self.issuer
            .mint_for_orchestrator(&subject, &scopes, token_users, lifetime_ms)
    }

    /// Creates a token for the runners of `job`.
    ///
    /// # Errors
    /// Fails if the token cannot be signed.
    pub fn for_job(&self, user: &UserName, job: &WorkId) -> anyhow::Result<Runner> {
        let mut cached = self.cached.lock();
        if let Some((since, runner)) = cached.get(user)
            && since.elapsed() < SHARING_PERIOD
        {
            return Ok(runner.clone());
        }
        let scopes = [Scope::Runner(job.clone())];
        let token: Arc<str> = self
            .issuer
            .mint(user.as_str(), &scopes, TOKEN_LIFETIME_MS)?
            .into();
        let runner = Runner {
            id: job.clone(),
            token,
        };
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, (since, _)| since.elapsed() < SHARING_PERIOD);
        }
        cached.insert(user.clone(), (Instant::now(), runner.clone()));
        Ok(runner)
    }
}
