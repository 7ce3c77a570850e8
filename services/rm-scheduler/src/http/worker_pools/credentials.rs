//! The token of a pool owner, which is valid for some days. An owner with a valid token can get the
//! next one. If the token of an owner has expired, an operator can create another one.

use axum::extract::State;
use hayward_rm_scheduler_api::worker_pools::PoolCreated;
use hayward_service::auth::{Issuer, Scope, max_lifetime_ms};
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path};
use hayward_vocabulary::WorkId;

use super::{Api, NoPool, OwnerAndOperators, send_command};
use crate::command::PoolCommand;

/// Signs a token for the owner of a pool.
pub fn sign_token(issuer: &Issuer, pool: &WorkId) -> Result<String, Problem> {
    let scopes = [Scope::Owner(pool.to_string())];
    let subject = format!("owner-{pool}");
    let token = issuer.mint(&subject, &scopes, max_lifetime_ms(&scopes));
    token.map_err(Problem::internal)
}

/// Creates a new token for the owner of a pool. The previous token stays valid until it expires.
/// The owner of a stopped pool gets a new token too, so that it can read the last events.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/credentials", operation_id = "renew_pool_credentials",
    tag = "pools",
    params(("pool" = WorkId, Path, description = "id of the pool")),
    responses(
        (status = 200, description = "the token is shown only here", body = PoolCreated),
        OwnerAndOperators, NoPool,
    ),
)]
pub async fn renew_pool_credentials(
    State(api): State<Api>,
    caller: Caller,
    Path(pool): Path<WorkId>,
) -> Result<Json<PoolCreated>, Problem> {
    caller.require(&[Scope::Operator, Scope::Owner(pool.to_string())])?;
    let found = send_command(&api, |reply| PoolCommand::Show(pool, reply)).await?;
    let pool = found.value;
    let token = sign_token(&api.issuer, &pool.id)?;
    Ok(Json(PoolCreated { pool, token }))
}
