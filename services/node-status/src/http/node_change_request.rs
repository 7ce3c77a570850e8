//! Extractor for requests that change one node: reads the caller, the node and `If-Match`.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use hayward_publication::Generation;
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::NodeName;

use super::if_match;

/// Caller, node and headers of a request that changes a node.
pub struct NodeChangeRequest {
    pub node: NodeName,
    caller: Caller,
    headers: HeaderMap,
}

impl NodeChangeRequest {
    /// Returns the name of the caller.
    pub fn by(&self) -> String {
        self.caller.name.clone()
    }

    /// Checks that the caller is an operator, and returns the version of the node that the caller
    /// requires.
    ///
    /// # Errors
    /// 403 for another caller, and the errors of [`if_match::parse`].
    pub fn authorize(&self) -> Result<Option<Generation>, Problem> {
        self.caller.require(&[Scope::Operator])?;
        if_match::parse(&self.headers, &self.node)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NodeChangeRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let Path(node) = Path::from_request_parts(parts, state).await?;
        // Unknown parameters of the query are refused.
        Query::<DryRun>::from_request_parts(parts, state).await?;
        Ok(Self {
            node,
            caller,
            headers: parts.headers.clone(),
        })
    }
}
