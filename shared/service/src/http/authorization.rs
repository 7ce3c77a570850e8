//! Authorization by route: one table of roles per service (S6).
//!
//! [`authorize`] adds a guard to the routes, and writes the roles into the description of the API
//! (`x-hayward-scopes`). A test tries each route as each principal from that description. A route
//! without a row refuses every request. Rights on a single object, such as the owner of work, are
//! checked by the handler.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use http::Method;
use utoipa::openapi::PathItem;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::Operation;
use utoipa_axum::router::OpenApiRouter;

use crate::auth::{Caller, Principal, Refusal, Scope};
use crate::problem::{Code, Problem};

/// OpenAPI extension of an operation with its roles.
pub const SCOPES: &str = "x-hayward-scopes";

/// A role that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Any caller, also without a token.
    Anyone,
    /// Any caller with a valid token.
    Authenticated,
    Operator,
    Viewer,
    Auditor,
    Submitter,
    Service,
    Runner,
    /// The agent of the node in this path parameter (S14).
    Agent(&'static str),
    /// The owner of the worker pool in this path parameter.
    OwnerOf(&'static str),
    /// The owner of any worker pool.
    Owner,
    /// The orchestrator in this path parameter.
    OrchestratorOf(&'static str),
    /// Any orchestrator.
    Orchestrator,
}

/// The roles of each operation, by operation id.
pub type RouteRoles = &'static [(&'static str, &'static [Role])];

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Authenticated => f.write_str("known"),
            Self::Operator => f.write_str("operator"),
            Self::Viewer => f.write_str("viewer"),
            Self::Auditor => f.write_str("auditor"),
            Self::Submitter => f.write_str("submitter"),
            Self::Service => f.write_str("service"),
            Self::Runner => f.write_str("runner"),
            Self::Agent(parameter) => write!(f, "agent:{{{parameter}}}"),
            Self::OwnerOf(parameter) => write!(f, "owner:{{{parameter}}}"),
            Self::Owner => f.write_str("owner"),
            Self::OrchestratorOf(parameter) => write!(f, "orchestrator:{{{parameter}}}"),
            Self::Orchestrator => f.write_str("orchestrator"),
        }
    }
}

/// Decoded path parameters, each with name and value.
type Parameters<'a> = &'a [(&'a str, &'a str)];

impl Role {
    fn matches(self, principal: &Principal, path: Parameters<'_>) -> bool {
        let has_parameter = |parameter: &str, name: &str| path.contains(&(parameter, name));
        principal.scopes.iter().any(|scope| match (self, scope) {
            (Self::Operator, Scope::Operator)
            | (Self::Viewer, Scope::Viewer)
            | (Self::Auditor, Scope::Auditor)
            | (Self::Submitter, Scope::Submitter)
            | (Self::Service, Scope::Service(_))
            | (Self::Runner, Scope::Runner(_))
            | (Self::Owner, Scope::Owner(_))
            | (Self::Orchestrator, Scope::Orchestrator(_)) => true,
            (Self::Agent(parameter), Scope::Agent(node)) => has_parameter(parameter, node.as_str()),
            (Self::OwnerOf(parameter), Scope::Owner(pool)) => has_parameter(parameter, pool),
            (Self::OrchestratorOf(parameter), Scope::Orchestrator(name)) => {
                has_parameter(parameter, name.as_str())
            }
            _ => false,
        }) || self == Self::Authenticated
    }
}

/// Adds the roles of `table` to the description and guards the routes.
pub fn authorize<S: Clone + Send + Sync + 'static>(
    mut router: OpenApiRouter<S>,
    table: RouteRoles,
) -> OpenApiRouter<S> {
    let mut roles_by_route = HashMap::new();
    for (path, item) in &mut router.get_openapi_mut().paths.paths {
        for (method, operation) in operations(item) {
            let id = operation.operation_id.as_deref().unwrap_or_default();
            let row = table.iter().find(|(name, _)| *name == id);
            let roles = row.map_or(&[] as &[Role], |(_, roles)| roles);
            add_scopes_extension(operation, roles);
            roles_by_route.insert((method, path.clone()), roles);
        }
    }
    let roles_by_route = Arc::new(roles_by_route);
    router.route_layer(from_fn(move |request: Request, next: Next| {
        check_roles(Arc::clone(&roles_by_route), request, next)
    }))
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let operations = [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::PATCH, &mut item.patch),
    ];
    let operations = operations.into_iter();
    operations.filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn add_scopes_extension(operation: &mut Operation, roles: &[Role]) {
    let names: Vec<_> = roles.iter().map(ToString::to_string).collect();
    let extensions = operation.extensions.get_or_insert_default();
    extensions.merge(ExtensionsBuilder::new().add(SCOPES, names).build());
}

type RolesByRoute = HashMap<(Method, String), &'static [Role]>;

async fn check_roles(roles_by_route: Arc<RolesByRoute>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let matched = parts.extensions.get::<MatchedPath>();
    let path = matched.map_or("", MatchedPath::as_str).to_owned();
    let method = match parts.method {
        Method::HEAD => Method::GET,
        ref other => other.clone(),
    };
    let roles = roles_by_route
        .get(&(method, path))
        .copied()
        .unwrap_or_default();
    if !roles.contains(&Role::Anyone) {
        let Some(Caller(principal)) = parts.extensions.get::<Caller>().cloned() else {
            let problem = Problem::new(Code::Unauthenticated, Refusal::Absent.to_string());
            return problem.into_response();
        };
        let parameters = RawPathParams::from_request_parts(&mut parts, &()).await;
        let parameters = parameters.ok();
        let parameters: Vec<_> = parameters.iter().flatten().collect();
        if !roles.iter().any(|it| it.matches(&principal, &parameters)) {
            return refusal_problem(roles, &parameters).into_response();
        }
    }
    next.run(Request::from_parts(parts, body)).await
}

/// Creates a refusal that names the roles of the route, with the path parameters of this request.
fn refusal_problem(roles: &[Role], path: Parameters<'_>) -> Problem {
    let scope = |kind: &str, parameter: &str| {
        let name = path.iter().find(|(name, _)| *name == parameter);
        format!("{kind}:{}", name.map_or("", |(_, value)| value))
    };
    let names: Vec<_> = roles
        .iter()
        .map(|role| match role {
            Role::Agent(parameter) => scope("agent", parameter),
            Role::OwnerOf(parameter) => scope("owner", parameter),
            Role::OrchestratorOf(parameter) => scope("orchestrator", parameter),
            other => other.to_string(),
        })
        .collect();
    Problem::forbidden(match names.as_slice() {
        [] => "no scope may use this route".to_owned(),
        names => format!("this takes one of the scopes: {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(scopes: &[&str]) -> Principal {
        let scopes: Vec<Scope> = scopes.iter().map(|it| it.parse().unwrap()).collect();
        Principal::new("x", scopes)
    }

    #[test]
    fn a_scope_matches_its_own_role_only() {
        let path = [("node", "n1"), ("pool", "p1"), ("name", "o1")];
        let matches = |role: Role, scope: &str| role.matches(&principal(&[scope]), &path);
        assert!(matches(Role::Operator, "operator") && !matches(Role::Operator, "viewer"));
        assert!(
            matches(Role::Agent("node"), "agent:n1") && !matches(Role::Agent("node"), "agent:n2")
        );
        assert!(!matches(Role::Agent("node"), "agent:n"), "no prefix (S5)");
        assert!(!matches(Role::Agent("other"), "agent:n1"));
        assert!(
            matches(Role::OwnerOf("pool"), "owner:p1")
                && !matches(Role::OwnerOf("pool"), "owner:p2")
        );
        assert!(matches(Role::Owner, "owner:p2") && !matches(Role::Owner, "submitter"));
        let orchestrator = Role::OrchestratorOf("name");
        assert!(
            matches(orchestrator, "orchestrator:o1") && !matches(orchestrator, "orchestrator:o2")
        );
        assert!(Role::Authenticated.matches(&principal(&[]), &[]));
        assert!(
            !Role::Operator.matches(&principal(&[]), &path),
            "no scope, no role (S4)"
        );
    }

    #[test]
    fn a_refusal_names_the_scopes_of_the_route() {
        let roles = [Role::Operator, Role::Agent("node")];
        let detail = refusal_problem(&roles, &[("node", "n1")]).detail;
        assert_eq!(&*detail, "this takes one of the scopes: operator, agent:n1");
        assert_eq!(
            &*refusal_problem(&[], &[]).detail,
            "no scope may use this route"
        );
    }
}
