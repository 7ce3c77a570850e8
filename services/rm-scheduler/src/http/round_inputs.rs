//! Handler of `/v1/rounds/{round}/inputs`: the recorded inputs of a round, for a replay.

use axum::extract::State;
use axum::response::IntoResponse as _;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Path, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use crate::recorder::decode;
use crate::replay::Inputs;
use crate::store::round_inputs::{StoredInputs, find};

// This type only documents the response. The handler serializes [`Inputs`], which has the same
// fields.
/// Inputs of a round, and its plan before anything was dropped from it.
#[derive(Serialize, ToSchema)]
pub struct RoundInputs {
    /// Format of the document, which `hayward replay` reads.
    #[schema(examples("hayward-round/1"))]
    pub format: String,
    pub round: u64,
    pub at: hayward_vocabulary::Timestamp,
    /// Everything that the plan depends on.
    #[schema(value_type = Object)]
    pub snapshot: (),
    /// The plan as the planner made it.
    #[schema(value_type = Object)]
    pub plan: (),
}

/// Reads the inputs of a round. The same version of the planner makes the same plan from them, byte
/// for byte.
#[utoipa::path(
    get, path = "/v1/rounds/{round}/inputs", operation_id = "show_round_inputs", tag = "rounds",
    params(("round" = u64, Path, description = "its number")),
    responses(
        (status = 200, description = "its snapshot and its plan", body = RoundInputs),
        (status = 403, description = "for operators only", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "it changed nothing, or is not recorded", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "the slot for such requests is in use", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_round_inputs(
    State(api): State<Api>,
    caller: Caller,
    Path(round): Path<u64>,
) -> Result<axum::response::Response, Problem> {
    caller.require(&[Scope::Operator])?;
    api.publisher().rows_readable()?;
    let slot = api.context.snapshot_reads.acquire_slot().await?;
    let found = find(&api.pool, round).await;
    let chain =
        match found.map_err(|error| Problem::unavailable("the rows cannot be read", error))? {
            StoredInputs::Chain(chain) => chain,
            StoredInputs::NotStored { bytes } => return Err(not_stored(round, bytes)),
            StoredInputs::NotFound => return Err(not_recorded(round)),
        };
    let decoding = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        decode(chain).map(|(snapshot, plan)| Json(Inputs::new(snapshot, plan)).into_response())
    });
    decoding
        .await
        .map_err(Problem::internal)?
        .map_err(Problem::internal)
}

fn not_recorded(round: u64) -> Problem {
    let detail = format!("round {round} changed nothing, or its inputs are no longer recorded");
    Problem::new(Code::NotFound, detail)
}

/// Returns the problem for inputs that were not stored. `bytes` is 0 if encoding took too long.
fn not_stored(round: u64, bytes: u64) -> Problem {
    if bytes == 0 {
        let detail = format!("recording the inputs of round {round} took too long");
        return Problem::new(Code::NotFound, detail);
    }
    let detail = format!(
        "the inputs of round {round} take {bytes} bytes, more than inputs_bytes leaves for one \
         chain of rounds; raise that setting to keep such rounds"
    );
    Problem::new(Code::NotFound, detail)
}
