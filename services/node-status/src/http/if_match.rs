//! `If-Match` of nodes: a change requires that the node has not changed since the caller read it.
//! The version of a node is the revision of its last change, which no heartbeat changes. A caller
//! that accepts any version sends `*` (A5).

use axum::http::{HeaderMap, HeaderValue, header};
use hayward_node_status_api::NODES;
use hayward_publication::{Generation, Publisher};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::NodeName;

/// Returns the `ETag` header for the current version of a node.
pub fn etag(publisher: &Publisher, node: &NodeName) -> HeaderMap {
    let generation = publisher.generation(NODES, node.as_str());
    let tag = generation.and_then(|it| HeaderValue::try_from(format!("\"{it}\"")).ok());
    HeaderMap::from_iter(tag.map(|tag| (header::ETAG, tag)))
}

/// Returns the version that the caller requires, or `None` for `*`.
///
/// # Errors
/// 428 without `If-Match`, and 400 if the header is not a version of a node.
pub fn parse(headers: &HeaderMap, node: &NodeName) -> Result<Option<Generation>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let detail = "send the ETag of the node as If-Match, or * for any version";
        return Err(Problem::new(Code::PreconditionRequired, detail));
    };
    if value == "*" {
        return Ok(None);
    }
    let text = value.to_str().unwrap_or_default().trim_matches('"');
    let generation = text.parse().map_err(|_| {
        let detail = "If-Match is the ETag of the node, as in \"3\"";
        Problem::new(Code::BadRequest, detail).at("/header/if-match", detail)
    })?;
    Ok(Some(Generation {
        publication: NODES,
        key: node.to_string(),
        generation,
    }))
}
