//! `If-Match` of nodes (A5): a change is made only if the node is still what its reader saw. The
//! version of a node is the revision at which it changed last; heartbeats do not change it. Who has
//! not looked, as at night, says `*`: whatever it is now (RFC 9110).

use axum::http::{HeaderMap, HeaderValue, header};
use hayward_node_status_api::NODES;
use hayward_publication::{Generation, Publisher};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::NodeName;

/// The version of a node as it is now.
pub fn etag(publisher: &Publisher, node: &NodeName) -> HeaderMap {
    let generation = publisher.generation(NODES, node.as_str());
    let tag = generation.and_then(|it| HeaderValue::try_from(format!("\"{it}\"")).ok());
    HeaderMap::from_iter(tag.map(|tag| (header::ETAG, tag)))
}

/// What the caller saw; `None` for `*`.
///
/// # Errors
/// 428 when there is no `If-Match`, and 400 when it is no version of a node.
pub fn seen(headers: &HeaderMap, node: &NodeName) -> Result<Option<Generation>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let detail = "send the ETag of the node you looked at as If-Match, or * for whatever it is";
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
