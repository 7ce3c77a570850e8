//! Marks responses of a read-only service as stale. After the database went back in time, they show
//! the last commit of this process or the restored rows (R9).

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use crate::Publisher;
use crate::publisher::PublisherRole;

/// Header of every successful response while the service is read-only.
pub const STALE: HeaderName = HeaderName::from_static("hayward-stale");
const WENT_BACK: HeaderValue = HeaderValue::from_static("went_back");

/// Adds the header to the responses of these routes.
pub fn mark_stale(router: Router, publisher: &Arc<Publisher>) -> Router {
    let publisher = Arc::clone(publisher);
    router.layer(from_fn(move |request: Request, next: Next| {
        mark(Arc::clone(&publisher), request, next)
    }))
}

async fn mark(publisher: Arc<Publisher>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let went_back = matches!(publisher.role(), PublisherRole::WentBack(_));
    if went_back && response.status().is_success() {
        response.headers_mut().insert(STALE, WENT_BACK);
    }
    response
}
