//! `/v1/nodes/{node}/credentials`: creating and renewing the token of an agent.

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use hayward_node_status_api::{AgentCredentials, EnrolmentSecret};
use hayward_service::auth::{Caller, Scope, TokenLifetime};
use hayward_service::http::extract::{Json, Path};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{NodeName, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{App, NotItsAgent};
use crate::command::Command;

/// Lifetime of an agent token in milliseconds; the agent renews it earlier.
const TOKEN_MS: u64 = 24 * 60 * 60 * 1000;

/// Exchanges the secret of an enrolment for a token. This route needs no token.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/credentials", operation_id = "redeem_enrolment",
    tag = "agents", security(()),
    params(("node" = NodeName, Path, description = "name of the node")),
    request_body = EnrolmentSecret,
    responses(
        (status = 201, description = "a token for the agent of this node", body = AgentCredentials),
        (status = 401, description = "invalid secret for this node", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "too many wrong secrets", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn redeem_enrolment(
    State(app): State<App>,
    Path(node): Path<NodeName>,
    Json(EnrolmentSecret { secret }): Json<EnrolmentSecret>,
) -> Result<(StatusCode, Json<AgentCredentials>), Problem> {
    if !app
        .secret_attempts
        .try_take(app.context.heartbeats.now_ms())
    {
        return Err(Problem::new(
            Code::TooManyRequests,
            "too many wrong secrets",
        ));
    }
    let secret_digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
    let command = |reply| Command::Redeem {
        node: node.clone(),
        secret_digest,
        reply,
    };
    app.handle.execute(command).await?.value?;
    app.secret_attempts.refund();
    Ok((StatusCode::CREATED, Json(mint(&app, &node)?)))
}

/// Returns a new token to an agent with a valid one.
#[utoipa::path(
    put, path = "/v1/nodes/{node}/credentials", operation_id = "renew_credentials",
    tag = "agents",
    params(("node" = NodeName, Path, description = "name of the node")),
    responses(
        (status = 200, description = "a token for the agent of this node", body = AgentCredentials),
        NotItsAgent,
    ),
)]
pub async fn renew_credentials(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<NodeName>,
) -> Result<Json<AgentCredentials>, Problem> {
    caller.require_agent(&node)?;
    Ok(Json(mint(&app, &node)?))
}

/// Creates a token for the agent of a node.
fn mint(app: &App, node: &NodeName) -> Result<AgentCredentials, Problem> {
    let scopes = [Scope::Agent(node.clone())];
    let token = app
        .issuer
        .mint(&format!("agent-{node}"), &scopes, TOKEN_MS)?;
    let lifetime = TokenLifetime::from_token(&token).context("the token has no end")?;
    Ok(AgentCredentials {
        expires_at: Timestamp::from_unix_ms(lifetime.expires_at_s() * 1000),
        token,
    })
}
