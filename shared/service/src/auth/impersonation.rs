//! Impersonation: an orchestrator names a user in a header, for one request (S10).
//!
//! The request then has the rights of that user, and shares are charged to the user. The
//! orchestrator remains the actor in audit records. The token of the orchestrator lists its users,
//! so every service can check the right offline. An impersonated request cannot impersonate again.
//! An orchestrator in a tenant acts only for users of that tenant (see `tenants`).

use http::{HeaderMap, HeaderName};

use super::{Groups, Principal, Scope};
use crate::problem::{Code, Problem};

/// Header with the user that an orchestrator acts for.
pub const ACT_AS: HeaderName = HeaderName::from_static("hayward-act-as");
/// Entry in a token that allows every user.
pub const ANYONE: &str = "*";
/// Maximum number of users in a token. The token must fit into a header.
pub const MAX_USERS: usize = 100;

/// Returns the subject of the token of this orchestrator.
pub fn orchestrator_subject(name: &hayward_vocabulary::UserName) -> String {
    format!("orchestrator-{name}")
}

impl Principal {
    /// Returns this caller, acting for `user`.
    ///
    /// # Errors
    /// 403 if the caller is not an orchestrator, is an operator, or may not act for this user.
    pub fn acting_as(&self, user: &str) -> Result<Self, Problem> {
        let is_orchestrator = |scope: &Scope| matches!(scope, Scope::Orchestrator(_));
        if self.has(&Scope::Operator) || !self.scopes.iter().any(is_orchestrator) {
            return Err(Problem::forbidden("only an orchestrator acts for others"));
        }
        if !self.may_act_for(user) {
            return Err(Problem::forbidden(format!(
                "this orchestrator is not listed for {user}"
            )));
        }
        Ok(Self {
            name: user.to_owned(),
            scopes: vec![Scope::Submitter],
            groups: Groups::NONE,
            act_as: Vec::new(),
            // The code that calls this function adds the tenant of the user.
            tenant: None,
            actor: Some(self.name.clone()),
        })
    }

    /// Returns whether the token lists this user. In a tenant, `*` means all users of the tenant.
    pub fn may_act_for(&self, user: &str) -> bool {
        let in_own_tenant = self.tenant.as_ref().is_none_or(|it| it.has(user));
        in_own_tenant && self.act_as.iter().any(|it| it == ANYONE || it == user)
    }

    /// Returns the subject of the token of this request.
    pub fn actor(&self) -> &str {
        self.actor.as_deref().unwrap_or(&self.name)
    }

    /// Returns actor and user as human-readable text.
    pub fn display_name(&self) -> String {
        match &self.actor {
            Some(actor) => format!("{actor} for {}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Returns the user in the header. Returns `None` without the header.
pub(crate) fn requested_user(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(ACT_AS).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let user = first.to_str().unwrap_or_default().trim();
    let is_valid = hayward_vocabulary::UserName::new(user).is_ok();
    if values.next().is_some() || !is_valid {
        let detail = "hayward-act-as names one user";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    Ok(Some(user))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Tenant;
    use super::*;

    fn orchestrator(users: &[&str]) -> Principal {
        let scope = Scope::Orchestrator("etl".parse().unwrap());
        let mut principal = Principal::new("orchestrator-etl", [scope]);
        principal.act_as = users.iter().map(|user| (*user).to_owned()).collect();
        principal
    }

    #[test]
    fn only_an_orchestrator_acts_and_only_for_listed_users() {
        let etl = orchestrator(&["ada"]);
        let ada = etl.acting_as("ada").unwrap();
        assert_eq!(
            (ada.name.as_str(), ada.actor()),
            ("ada", "orchestrator-etl")
        );
        assert_eq!(ada.scopes, [Scope::Submitter]);
        assert_eq!(ada.display_name(), "orchestrator-etl for ada");
        assert!(etl.acting_as("ben").is_err());
        assert!(etl.acting_as("*").is_err());
        assert!(orchestrator(&[ANYONE]).acting_as("ben").is_ok());
        assert!(
            orchestrator(&[]).acting_as("ada").is_err(),
            "an empty list grants nothing (S4)"
        );
    }

    #[test]
    fn an_orchestrator_acts_only_within_its_tenant() {
        let members = ["orchestrator-etl", "ada", "ann"].map(str::to_owned);
        let acme = Arc::new(Tenant::new("acme".parse().unwrap(), members));
        let etl = |users: &[&str]| orchestrator(users).with_tenant(Some(Arc::clone(&acme)));
        assert!(etl(&[ANYONE]).acting_as("ann").is_ok());
        assert!(etl(&[ANYONE, "ben"]).acting_as("ben").is_err());
        assert!(etl(&["ada"]).acting_as("ann").is_err());
        assert!(etl(&["ada"]).may_see_user("ada") && !etl(&["ada"]).may_see_user("ann"));
    }

    #[test]
    fn users_see_only_their_tenant_by_name() {
        let acme = Tenant::new("acme".parse().unwrap(), ["ada", "ann"].map(str::to_owned));
        let user = |scope| Principal::new("ada", [scope]);
        let ada = user(Scope::Submitter);
        assert!(ada.may_see_user("ada") && !ada.may_see_user("ann"));
        let ada = ada.with_tenant(Some(Arc::new(acme.clone())));
        assert!(ada.may_see_user("ada") && ada.may_see_user("ann") && !ada.may_see_user("ben"));
        let owner = user(Scope::Owner("p1".to_owned())).with_tenant(Some(Arc::new(acme)));
        assert!(
            !owner.may_see_user("ada") && !user(Scope::Auditor).may_see_user("ada"),
            "only submitters see their tenant by name (S4)"
        );
        for scope in [Scope::Operator, Scope::Viewer] {
            assert!(user(scope).may_see_user("ben"));
        }
    }

    #[test]
    fn an_operator_cannot_act_and_impersonation_cannot_be_chained() {
        let mut operator = orchestrator(&[ANYONE]);
        operator.scopes.push(Scope::Operator);
        assert!(operator.acting_as("ada").is_err());
        let mut user = Principal::new("ada", [Scope::Submitter]);
        user.act_as = vec![ANYONE.to_owned()];
        assert!(user.acting_as("ben").is_err());
        let ada = orchestrator(&[ANYONE]).acting_as("ada").unwrap();
        assert!(ada.acting_as("ben").is_err());
    }

    #[test]
    fn one_header_names_one_user() {
        let mut headers = HeaderMap::new();
        assert_eq!(requested_user(&headers).unwrap(), None);
        headers.insert(ACT_AS, " ada ".parse().unwrap());
        assert_eq!(requested_user(&headers).unwrap(), Some("ada"));
        headers.append(ACT_AS, "ben".parse().unwrap());
        assert!(requested_user(&headers).is_err());
        for bad in ["", "ada,ben", "*", "a b"] {
            headers.insert(ACT_AS, bad.parse().unwrap());
            assert!(requested_user(&headers).is_err(), "{bad:?}");
        }
    }
}
