//! Handler of `/v1/verdicts/{work}`: the verdict on one piece of work.
//!
//! A verdict explains why the work has its present number of processes. The published verdict
//! changes only with its meaning, so its numbers may be of an earlier round. The response takes the
//! numbers from the newest round instead.

use axum::extract::State;
use hayward_rm_scheduler_api::{VERDICTS, VerdictEntry};
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path};
use hayward_vocabulary::WorkId;

use super::Api;
use crate::translate::published_entries;

/// Shows the verdict on one piece of work, with the numbers of the newest round. The verdict
/// explains why the work has its present number of processes.
#[utoipa::path(
    get, path = "/v1/verdicts/{work}", operation_id = "show_verdict", tag = "verdicts",
    params(("work" = WorkId, Path, description = "its id")),
    responses(
        (status = 200, description = "the verdict of the newest round", body = VerdictEntry),
        (status = 404, description = "no such work, or no round has seen it yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_verdict(
    State(api): State<Api>,
    _caller: Caller,
    Path(work): Path<WorkId>,
) -> Result<Json<VerdictEntry>, Problem> {
    api.publisher().readable()?;
    let published: Option<VerdictEntry> = api.publisher().get(VERDICTS, "", work.as_str());
    let published = published.ok_or_else(|| Problem::not_found(format!("a verdict on {work}")))?;
    let view = api.context.view.read();
    let verdicts = view.newest_round.as_ref().map(|round| &round.verdicts);
    let Some(newest) = verdicts.and_then(|verdicts| verdicts.get(&work)) else {
        return Ok(Json(published));
    };
    let newest = published_entries::verdict(&work, newest);
    // A verdict of the planner has no note, no time and no receipts. Only the published one has
    // them.
    let note = published_entries::note(&published.detail);
    Ok(Json(VerdictEntry {
        detail: published_entries::with_note(newest.detail, note),
        since: published.since,
        receipts: published.receipts,
        ..newest
    }))
}
