//! Handler of `/v1/shares`: entitlement and use of classes, users and work.

use std::collections::BTreeSet;

use axum::extract::State;
use hayward_rm_scheduler_api::policy::{Policy, Pool};
use hayward_rm_scheduler_api::shares::Shares;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json};

use super::{Api, no_round_yet};
use crate::queries::{redaction, shares};

/// Shows entitlement and use, from capacity down to each piece of work. Users that the caller may
/// not know by name are shown as sums (S12).
#[utoipa::path(
    get, path = "/v1/shares", operation_id = "show_shares", tag = "shares",
    responses(
        (status = 200, description = "as of the newest round", body = Shares),
        (status = 503, description = "no round has been taken yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_shares(State(api): State<Api>, caller: Caller) -> Result<Json<Shares>, Problem> {
    api.publisher().readable()?;
    let view = api.context.view.read();
    let newest = view.newest_round.as_ref();
    let shares =
        newest.map(|it| shares::to_response(it, pools_without_shares(&view.policy.policy)));
    let shares = shares.ok_or_else(no_round_yet)?;
    drop(view);
    Ok(Json(redaction::redact_shares(shares, |user| {
        caller.may_see_user(user.as_str())
    })))
}

/// Returns the pools with queues or with an external planner, and all their children.
fn pools_without_shares(policy: &Policy) -> shares::PoolsWithoutShares {
    let root_of = |name: &str| {
        let parent = |name: &&str| policy.pools.get(*name)?.parent.as_deref();
        let path = std::iter::successors(Some(name), parent).take(policy.pools.len());
        path.last().and_then(|root| policy.pools.get(root))
    };
    let names_where = |condition: fn(&Pool) -> bool| -> BTreeSet<String> {
        let names = policy.pools.keys();
        let names = names.filter(|name| root_of(name).is_some_and(condition));
        names.cloned().collect()
    };
    shares::PoolsWithoutShares {
        with_queues: names_where(|root| root.queues.is_some()),
        with_external_planner: names_where(|root| root.planner.is_some() && root.queues.is_none()),
    }
}
