//! Read your writes: a read with `min_revision` waits until that revision is visible (A11).
//!
//! The middleware removes the parameter from the query, so that routes do not handle it. The
//! description of the API has it on all reads. A standby does not wait, because it refuses reads.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::http::uri::{PathAndQuery, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use hayward_service::http::openapi::MIN_REVISION;
use hayward_service::http::problem::{Code, Problem};

use crate::Publisher;
use crate::publisher::PublisherRole;

/// Longest wait of a read.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Adds the wait to the reads of these routes.
pub fn wait_for_min_revision(router: Router, publisher: &Arc<Publisher>) -> Router {
    let publisher = Arc::clone(publisher);
    router.layer(from_fn(move |request: Request, next: Next| {
        wait(Arc::clone(&publisher), request, next)
    }))
}

async fn wait(publisher: Arc<Publisher>, mut request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let visible = match split_query(request.uri()) {
        Ok(None) => return next.run(request).await,
        Ok(Some((least, rest))) => {
            *request.uri_mut() = rest;
            wait_until_visible(&publisher, least).await
        }
        Err(problem) => Err(problem),
    };
    match visible {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Waits for a revision. Only the leader waits, so a revision that it has not reached does not
/// exist yet.
/// yet.
pub(crate) async fn wait_until_visible(publisher: &Publisher, least: u64) -> Result<(), Problem> {
    let standby = publisher.role() == PublisherRole::Standby;
    if standby || publisher.wait_for_revision(least, MAX_WAIT).await {
        return Ok(());
    }
    let detail = format!("revision {least} has not been reached yet");
    Err(Problem::new(Code::Conflict, detail).retry_after_ms(1_000))
}

/// Returns the revision in the query, and the URI without it. Returns `None` if the query has no
/// such parameter.
fn split_query(uri: &Uri) -> Result<Option<(u64, Uri)>, Problem> {
    let ours = |pair: &&str| pair.split_once('=').map_or(*pair, |(name, _)| name) == MIN_REVISION;
    let pairs = || uri.query().unwrap_or_default().split('&');
    let mut named = pairs().filter(ours);
    let Some(first) = named.next() else {
        return Ok(None);
    };
    let wrong = |detail: &str| {
        let problem = Problem::new(Code::BadRequest, "the query cannot be understood");
        problem.at(format!("/query/{MIN_REVISION}"), detail)
    };
    if named.next().is_some() {
        return Err(wrong("is given twice"));
    }
    let value = first.split_once('=').map_or("", |(_, value)| value);
    let least = value.parse().map_err(|_| wrong("is not a revision"))?;
    let others: Vec<&str> = pairs().filter(|pair| !ours(pair)).collect();
    let text = match others.as_slice() {
        [] => uri.path().to_owned(),
        others => format!("{}?{}", uri.path(), others.join("&")),
    };
    Ok(Some((
        least,
        addressed(uri, &text).map_err(Problem::internal)?,
    )))
}

fn addressed(uri: &Uri, text: &str) -> Result<Uri, axum::http::Error> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(text.parse::<PathAndQuery>()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(u64, String)>, Problem> {
        let found = split_query(&text.parse().unwrap())?;
        Ok(found.map(|(least, rest)| (least, rest.to_string())))
    }

    #[test]
    fn the_revision_is_removed_from_the_query() {
        for (uri, least, rest) in [
            ("/v1/a?min_revision=7", 7, "/v1/a"),
            ("/v1/a?x=%20&min_revision=0&y", 0, "/v1/a?x=%20&y"),
            ("/v1/a?min_revision=7&cursor=a=b", 7, "/v1/a?cursor=a=b"),
        ] {
            assert_eq!(read(uri).unwrap(), Some((least, rest.to_owned())));
        }
        for without in ["/v1/a", "/v1/a?min_revisions=7", "/v1/a?x=min_revision"] {
            assert_eq!(read(without).unwrap(), None, "{without}");
        }
    }

    #[test]
    fn an_invalid_revision_has_a_pointer() {
        for wrong in [
            "/v1/a?min_revision",
            "/v1/a?min_revision=",
            "/v1/a?min_revision=-1",
            "/v1/a?min_revision=7&min_revision=7",
        ] {
            let problem = read(wrong).unwrap_err();
            assert_eq!(problem.status(), 400, "{wrong}");
            assert_eq!(problem.errors[0].pointer, "/query/min_revision");
        }
    }
}
