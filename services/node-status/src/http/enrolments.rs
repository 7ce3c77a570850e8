//! `POST /v1/enrolments`: an operator permits one agent to join the fleet as one node.

use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_node_status_api::{Enrolment, EnrolmentRequest};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::Json;
use hayward_service::http::idempotency::{Key, StoredResponse, digest_of};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotOperator;
use hayward_service::runtime::clock::random_secret;
use sha2::{Digest as _, Sha256};

use super::{App, revision_header};
use crate::command::Command;
use crate::model::{ClaimLimits, NewEnrolment};

/// Creates a secret with which the agent of one node can fetch its first token, once.
#[utoipa::path(
    post, path = "/v1/enrolments", operation_id = "create_enrolment", tag = "agents",
    params(("Idempotency-Key" = String, Header, description = "1 to 128 visible characters")),
    request_body = EnrolmentRequest,
    responses(
        (status = 201, description = "the secret, returned only this \
            once", body = Enrolment, headers(
            ("Location" = String, description = "where the secret is exchanged"),
            ("Hayward-Revision" = u64, description = "revision of this write"),
        )),
        NotOperator,
        (status = 409, description = "the first request with this key is in progress",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn create_enrolment(
    State(app): State<App>,
    caller: Caller,
    key: Key,
    Json(request): Json<EnrolmentRequest>,
) -> Result<Response, Problem> {
    caller.require(&[Scope::Operator])?;
    let request_digest = digest_of(&Method::POST, "/v1/enrolments", &request)?;
    let location = format!("/v1/nodes/{}/credentials", request.node);
    let running = match app
        .enrolment_responses
        .begin(&caller.name, key.clone(), request_digest)
    {
        Ok(running) => running,
        Err(before) => {
            return Ok(with_location(
                before.into_response_to_repeat()?.into_response(),
                &location,
            ));
        }
    };
    let (secret, node) = (random_secret(), request.node);
    let enrolment = NewEnrolment {
        principal: caller.name.clone(),
        key: key.as_str().to_owned(),
        request_digest,
        node: node.clone(),
        claim_limits: ClaimLimits::new(request.limit, request.pool),
        secret_digest: Sha256::digest(secret.as_bytes()).into(),
    };
    let done = app
        .handle
        .execute(|reply| Command::Enrol { enrolment, reply })
        .await?;
    let enrolment = Enrolment {
        node,
        secret,
        expires_at: done.value?,
    };
    let body = serde_json::to_vec(&enrolment).map_err(Problem::internal)?;
    running.complete(StoredResponse {
        status: 201,
        headers: Vec::new(),
        body: body.into(),
    });
    let answer = (
        StatusCode::CREATED,
        revision_header(done.revision),
        Json(enrolment),
    );
    Ok(with_location(answer.into_response(), &location))
}

fn with_location(mut response: Response, location: &str) -> Response {
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
