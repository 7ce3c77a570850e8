//! Who is calling and what they may do.
//!
//! Tokens are signed outside the request path and checked offline, so no service asks another one
//! who is calling. A grant is an exact scope: there is no hierarchy and no prefix (S5), an unknown
//! or missing scope means nothing (S4). Expiry and revocation are looked at on every request, also
//! for a token whose signature was checked before.

mod caller;
mod groups;
mod impersonation;
mod keys;
mod lifetime;
mod scope;
mod signature;
mod tenants;
mod token;
mod token_peek;

pub use caller::{AuthConfig, Caller, OpenRoute, TokenValidity, authenticate};
pub use groups::{BadGroups, Groups};
pub use impersonation::{ACT_AS, ANYONE, MAX_USERS, orchestrator_subject};
pub use keys::{FreshIssuer, Keys, TokenSpec, read_secret, write_atomically};
pub use lifetime::{TokenLifetime, max_lifetime_ms};
pub use scope::{BadScope, Scope};
pub use tenants::Tenant;
pub use token::{Claims, Issuer, Refusal, Verifier};
pub(crate) use token_peek::TokenPeek;

use std::sync::Arc;

use hayward_vocabulary::{NodeName, WorkId};

use crate::http::problem::Problem;

/// Someone whose token was good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The subject of the token: whom shares are charged to and audit records name.
    pub name: String,
    pub scopes: Vec<Scope>,
    /// What they are in, as whoever made the token says.
    pub groups: Groups,
    /// For whom they may act, when they are an orchestrator; see [`ACT_AS`].
    pub act_as: Vec<String>,
    /// With whom they belong together, as the fleet says and not the token.
    pub tenant: Option<Arc<Tenant>>,
    /// Who really asks, where they do it for somebody else (S11).
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
    pub fn in_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    #[must_use]
    pub fn in_tenant(self, tenant: Option<Arc<Tenant>>) -> Self {
        Self { tenant, ..self }
    }

    /// They are told everything: operators, viewers, and services.
    pub fn sees_all_users(&self) -> bool {
        self.has(&Scope::Operator) || self.has(&Scope::Viewer) || self.service().is_some()
    }

    /// Whether they may be told of this user by name. Of all others they are told amounts (S12).
    /// Users know themselves and their tenant, orchestrators whom they may act for.
    pub fn may_see_user(&self, user: &str) -> bool {
        let tenant = self.tenant.as_ref();
        let orchestrates = |scope: &Scope| matches!(scope, Scope::Orchestrator(_));
        let known = if self.has(&Scope::Submitter) {
            self.name == user || tenant.is_some_and(|it| it.has(user))
        } else if self.scopes.iter().any(orchestrates) {
            self.may_act_for(user)
        } else {
            false
        };
        known || self.sees_all_users()
    }

    pub fn has(&self, scope: &Scope) -> bool {
        self.scopes.contains(scope)
    }

    /// Any one of these is enough; none of them is a refusal, and so is an empty list (S4).
    ///
    /// # Errors
    /// 403 when the caller has none of them.
    pub fn require(&self, any_of: &[Scope]) -> Result<(), Problem> {
        if any_of.iter().any(|scope| self.has(scope)) {
            return Ok(());
        }
        let wanted: Vec<_> = any_of.iter().map(ToString::to_string).collect();
        Err(Problem::forbidden(format!(
            "this takes one of the scopes: {}",
            wanted.join(", ")
        )))
    }

    /// The caller is one of our services.
    ///
    /// # Errors
    /// 403 when it is not.
    pub fn require_service(&self) -> Result<&str, Problem> {
        self.service()
            .ok_or_else(|| Problem::forbidden("this is for services of the fleet"))
    }

    /// The caller is the agent of this node. Another node's name is a refusal (S14).
    ///
    /// # Errors
    /// 403 when it is not.
    pub fn require_agent(&self, node: &NodeName) -> Result<(), Problem> {
        let theirs = self
            .scopes
            .iter()
            .any(|scope| matches!(scope, Scope::Agent(name) if name == node));
        if theirs {
            Ok(())
        } else {
            Err(Problem::forbidden(format!(
                "this is for the agent of node {node}"
            )))
        }
    }

    pub fn service(&self) -> Option<&str> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Service(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn agent(&self) -> Option<&NodeName> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Agent(node) => Some(node),
            _ => None,
        })
    }

    /// The one piece of work whose tasks the caller may lease.
    pub fn runner(&self) -> Option<&WorkId> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Runner(work) => Some(work),
            _ => None,
        })
    }

    pub fn owns(&self, pool: &str) -> bool {
        self.scopes
            .iter()
            .any(|scope| matches!(scope, Scope::Owner(name) if name == pool))
    }
}

#[cfg(test)]
mod tests;
