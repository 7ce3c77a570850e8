//! Whoever wrote reads what they wrote (A11): `min_revision` of any read waits until that revision
//! is visible here.
//!
//! It is taken out of the query before the route looks at it, so no route has to know of it and
//! none can forget it; the description has it on the same reads
//! ([`hayward_service::openapi`]). A replica on standby does not wait: it refuses to be read.

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

/// How long a read waits.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The routes of a service, whose reads wait for the revision they name.
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

/// The one that writes answers, so a revision that it does not reach in time is one that it has not
/// given out.
pub(crate) async fn wait_until_visible(publisher: &Publisher, least: u64) -> Result<(), Problem> {
    let standby = publisher.role() == PublisherRole::Standby;
    if standby || publisher.wait_for_revision(least, MAX_WAIT).await {
        return Ok(());
    }
    let detail = format!("revision {least} has not been reached yet");
    Err(Problem::new(Code::Conflict, detail).retry_after_ms(1_000))
}

/// The revision that is named, and the address without it.
fn split_query(asked: &Uri) -> Result<Option<(u64, Uri)>, Problem> {
    let ours = |pair: &&str| pair.split_once('=').map_or(*pair, |(name, _)| name) == MIN_REVISION;
    let pairs = || asked.query().unwrap_or_default().split('&');
    let mut named = pairs().filter(ours);
    let Some(first) = named.next() else {
        return Ok(None);
    };
    let wrong = |detail: &str| {
        let problem = Problem::new(Code::BadRequest, "the query cannot be understood");
        problem.at(format!("/query/{MIN_REVISION}"), detail)
    };
    if named.next().is_some() {
        return Err(wrong("stands twice"));
    }
    let value = first.split_once('=').map_or("", |(_, value)| value);
    let least = value.parse().map_err(|_| wrong("is no revision"))?;
    let others: Vec<&str> = pairs().filter(|pair| !ours(pair)).collect();
    let text = match others.as_slice() {
        [] => asked.path().to_owned(),
        others => format!("{}?{}", asked.path(), others.join("&")),
    };
    Ok(Some((
        least,
        addressed(asked, &text).map_err(Problem::internal)?,
    )))
}

fn addressed(asked: &Uri, text: &str) -> Result<Uri, axum::http::Error> {
    let mut parts = asked.clone().into_parts();
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
    fn a11_the_revision_is_taken_out_and_the_rest_stays_as_it_was() {
        for (asked, least, rest) in [
            ("/v1/a?min_revision=7", 7, "/v1/a"),
            ("/v1/a?x=%20&min_revision=0&y", 0, "/v1/a?x=%20&y"),
            ("/v1/a?min_revision=7&cursor=a=b", 7, "/v1/a?cursor=a=b"),
        ] {
            assert_eq!(read(asked).unwrap(), Some((least, rest.to_owned())));
        }
        for without in ["/v1/a", "/v1/a?min_revisions=7", "/v1/a?x=min_revision"] {
            assert_eq!(read(without).unwrap(), None, "{without}");
        }
    }

    #[test]
    fn a9_what_is_no_revision_is_pointed_at() {
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
