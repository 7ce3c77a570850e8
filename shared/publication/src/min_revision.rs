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

/// Maximum wait of a read.
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
        Ok(Some((min_revision, remaining_uri))) => {
            *request.uri_mut() = remaining_uri;
            wait_until_visible(&publisher, min_revision).await
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
pub(crate) async fn wait_until_visible(
    publisher: &Publisher,
    min_revision: u64,
) -> Result<(), Problem> {
    let standby = publisher.role() == PublisherRole::Standby;
    if standby || publisher.wait_for_revision(min_revision, MAX_WAIT).await {
        return Ok(());
    }
    let detail = format!("revision {min_revision} has not been reached yet");
    Err(Problem::new(Code::Conflict, detail).retry_after_ms(1_000))
}

/// Returns the revision in the query, and the URI without it. Returns `None` if the query has no
/// such parameter.
fn split_query(uri: &Uri) -> Result<Option<(u64, Uri)>, Problem> {
    let is_min_revision =
        |pair: &&str| pair.split_once('=').map_or(*pair, |(name, _)| name) == MIN_REVISION;
    let pairs = || uri.query().unwrap_or_default().split('&');
    let mut matches = pairs().filter(is_min_revision);
    let Some(first) = matches.next() else {
        return Ok(None);
    };
    let invalid = |detail: &str| {
        let problem = Problem::new(Code::BadRequest, "the query cannot be understood");
        problem.at(format!("/query/{MIN_REVISION}"), detail)
    };
    if matches.next().is_some() {
        return Err(invalid("is given twice"));
    }
    let value = first.split_once('=').map_or("", |(_, value)| value);
    let min_revision = value.parse().map_err(|_| invalid("is not a revision"))?;
    let others: Vec<&str> = pairs().filter(|pair| !is_min_revision(pair)).collect();
    let text = match others.as_slice() {
        [] => uri.path().to_owned(),
        others => format!("{}?{}", uri.path(), others.join("&")),
    };
    Ok(Some((
        min_revision,
        with_path_and_query(uri, &text).map_err(Problem::internal)?,
    )))
}

fn with_path_and_query(uri: &Uri, text: &str) -> Result<Uri, axum::http::Error> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(text.parse::<PathAndQuery>()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<Option<(u64, String)>, Problem> {
        let split_uri = split_query(&text.parse().unwrap())?;
        Ok(
            split_uri
                .map(|(min_revision, remaining_uri)| (min_revision, remaining_uri.to_string())),
        )
    }

    #[test]
    fn the_revision_is_removed_from_the_query() {
        for (uri, min_revision, remaining_uri) in [
            ("/v1/a?min_revision=7", 7, "/v1/a"),
            ("/v1/a?x=%20&min_revision=0&y", 0, "/v1/a?x=%20&y"),
            ("/v1/a?min_revision=7&cursor=a=b", 7, "/v1/a?cursor=a=b"),
        ] {
            assert_eq!(
                split(uri).unwrap(),
                Some((min_revision, remaining_uri.to_owned()))
            );
        }
        for without in ["/v1/a", "/v1/a?min_revisions=7", "/v1/a?x=min_revision"] {
            assert_eq!(split(without).unwrap(), None, "{without}");
        }
    }

    #[test]
    fn an_invalid_revision_has_a_pointer() {
        for uri in [
            "/v1/a?min_revision",
            "/v1/a?min_revision=",
            "/v1/a?min_revision=-1",
            "/v1/a?min_revision=7&min_revision=7",
        ] {
            let problem = split(uri).unwrap_err();
            assert_eq!(problem.status(), 400, "{uri}");
            assert_eq!(problem.errors[0].pointer, "/query/min_revision");
        }
    }
}
