//! Handler of `/v1/verdicts/{work}`: why a piece of work has what it has.

use axum::extract::State;
use hayward_rm_scheduler_api::{VERDICTS, VerdictEntry};
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path};
use hayward_vocabulary::WorkId;

use super::Api;
use crate::translate::published_entries;

/// Shows why one piece of work has what it has, with the numbers of the newest round.
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
    Ok(Json(VerdictEntry {
        detail: published_entries::with_note(
            newest.detail,
            published_entries::note(&published.detail),
        ),
        since: published.since,
        receipts: published.receipts,
        ..newest
    }))
}
