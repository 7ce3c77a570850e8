//! Authentication: tokens, principals and scopes.
//!
//! Every service verifies tokens offline. A grant is an exact scope, without hierarchies or
//! prefixes. An unknown or missing scope grants nothing (S5). Expiry and revocation are checked on
//! every request, even for a cached signature.

mod caller;
mod impersonation;
mod keys;
mod lifetime;
mod scope;
mod signature;
mod tenants;
mod token;
mod token_peek;
mod user_groups;

pub use caller::{Caller, Requester, TokenValidity};
pub(crate) use impersonation::requested_user;
pub use impersonation::{ACT_AS, ANYONE, MAX_USERS, orchestrator_subject};
pub use keys::{Keys, NewIssuerKey, TokenSpec, read_secret, write_atomically};
pub use lifetime::{TokenLifetime, max_lifetime_ms};
pub use scope::{InvalidScope, Scope};
pub use tenants::Tenant;
pub use token::{Claims, Issuer, Refusal, Verifier};
pub(crate) use token_peek::TokenPeek;
pub use user_groups::{Groups, InvalidGroups};

use std::sync::Arc;

use hayward_vocabulary::{NodeName, WorkId};

use crate::problem::Problem;

/// The bearer of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Subject of the token. Shares are charged to it, and audit records name it.
    pub name: String,
    pub scopes: Vec<Scope>,
    /// Groups in the token.
    pub groups: Groups,
    /// Users that an orchestrator may represent. See [`ACT_AS`].
    pub act_as: Vec<String>,
    /// Tenant of the user, from the keys directory and not from the token. `None` if the user has
    /// no tenant.
    pub tenant: Option<Arc<Tenant>>,
    /// The orchestrator that acts for this user. `None` if the user acts directly (S11).
    pub actor: Option<String>,
}

impl Principal {
    pub fn new(name: impl Into<String>, scopes: impl Into<Vec<Scope>>) -> Self {
        Self {
            name: name.into(),
            scopes: scopes.into(),
            groups: Groups::NONE,
            act_as: Vec::new(),
            tenant: None,
            actor: None,
        }
    }

    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    #[must_use]
    pub fn with_tenant(self, tenant: Option<Arc<Tenant>>) -> Self {
        Self { tenant, ..self }
    }

    /// Returns whether the caller sees all users. Operators, viewers and services do.
    pub fn sees_all_users(&self) -> bool {
        self.has(&Scope::Operator) || self.has(&Scope::Viewer) || self.service().is_some()
    }

    /// Returns whether the caller may see this user by name. For other users the caller sees only
    /// amounts. Users see themselves and their tenant. Orchestrators see the users that they may
    /// represent (S12).
    pub fn may_see_user(&self, user: &str) -> bool {
        let tenant = self.tenant.as_ref();
        let is_orchestrator = |scope: &Scope| matches!(scope, Scope::Orchestrator(_));
        let is_visible = if self.has(&Scope::Submitter) {
            self.name == user || tenant.is_some_and(|it| it.has(user))
        } else if self.scopes.iter().any(is_orchestrator) {
            self.may_act_for(user)
        } else {
            false
        };
        is_visible || self.sees_all_users()
    }

    pub fn has(&self, scope: &Scope) -> bool {
        self.scopes.contains(scope)
    }

    /// Requires one of these scopes.
    ///
    /// # Errors
    /// 403 if the caller has none of these scopes. An empty list grants nothing (S4).
    pub fn require(&self, any_of: &[Scope]) -> Result<(), Problem> {
        if any_of.iter().any(|scope| self.has(scope)) {
            return Ok(());
        }
        let names: Vec<_> = any_of.iter().map(ToString::to_string).collect();
        Err(Problem::forbidden(format!(
            "this takes one of the scopes: {}",
            names.join(", ")
        )))
    }

    /// Requires a service of the fleet.
    ///
    /// # Errors
    /// 403 if the caller is not a service of the fleet.
    pub fn require_service(&self) -> Result<&str, Problem> {
        self.service()
            .ok_or_else(|| Problem::forbidden("this is for services of the fleet"))
    }

    /// Requires the agent of this node (S14).
    ///
    /// # Errors
    /// 403 if the caller is not this agent.
    pub fn require_agent(&self, node: &NodeName) -> Result<(), Problem> {
        let is_agent = self
            .scopes
            .iter()
            .any(|scope| matches!(scope, Scope::Agent(name) if name == node));
        if is_agent {
            Ok(())
        } else {
            Err(Problem::forbidden(format!(
                "this is for the agent of node {node}"
            )))
        }
    }

    /// Returns the name of the service. Returns `None` if the caller is not a service.
    pub fn service(&self) -> Option<&str> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Service(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns the node of the agent. Returns `None` if the caller is not an agent.
    pub fn agent(&self) -> Option<&NodeName> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Agent(node) => Some(node),
            _ => None,
        })
    }

    /// Returns the job whose tasks the caller may lease. Returns `None` if the caller is not a task
    /// runner.
    pub fn runner(&self) -> Option<&WorkId> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Runner(work) => Some(work),
            _ => None,
        })
    }

    /// Returns whether the caller owns this worker pool.
    pub fn owns(&self, pool: &str) -> bool {
        self.scopes
            .iter()
            .any(|scope| matches!(scope, Scope::Owner(name) if name == pool))
    }
}

#[cfg(test)]
mod tests;
