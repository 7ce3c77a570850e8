//! `/v1/accounts`: the numbers of users, from which agents compute the accounts of programs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::accounts::{AccountList, AccountView};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_service::{Listing, PageQuery};
use hayward_vocabulary::UserName;

use super::App;
use super::headers::revision_headers;
use crate::command::Command;
use crate::store::accounts::{AccountRow, load_page};

/// Lists users with their numbers.
#[utoipa::path(
    get, path = "/v1/accounts", operation_id = "list_accounts", tag = "accounts",
    params(PageQuery),
    responses((status = 200, description = "a page, in order of name", body = AccountList)),
)]
pub async fn list_accounts(
    State(app): State<App>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<AccountList>, Problem> {
    caller.require(&[Scope::Operator])?;
    app.publisher.readable()?;
    let list = Listing::new("/v1/accounts");
    let after = page.after(&list)?.unwrap_or_default();
    let wanted = i64::try_from(page.limit()? + 1).map_err(Problem::internal)?;
    let rows = load_page(&app.pool, &after, wanted).await;
    let rows = rows.map_err(|error| Problem::unavailable("accounts cannot be read now", error))?;
    let views = rows
        .into_iter()
        .map(to_view)
        .collect::<Result<Vec<_>, _>>()?;
    let (accounts, next_cursor) = page.page(&list, views, |view| view.user.to_string())?;
    Ok(Json(AccountList {
        accounts,
        next_cursor,
        revision: app.publisher.revision(),
    }))
}

/// Forgets a user without live work. The number is retired, and later work of the user gets another
/// one.
#[utoipa::path(
    delete, path = "/v1/accounts/{user}", operation_id = "forget_account", tag = "accounts",
    params(("user" = UserName, Path, description = "name of the user"), DryRun),
    responses(
        (status = 204, description = "the number is retired"),
        (status = 404, description = "the user has no number", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "the user has live work", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn forget_account(
    State(app): State<App>,
    caller: Caller,
    Path(user): Path<UserName>,
    Query(_dry_run): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    caller.require(&[Scope::Operator])?;
    let forget = |reply| Command::ForgetAccount(user, reply);
    let committed = app.handle.execute(forget).await?;
    committed.value?;
    Ok((StatusCode::NO_CONTENT, revision_headers(committed.revision)))
}

fn to_view(row: AccountRow) -> Result<AccountView, Problem> {
    Ok(AccountView {
        user: UserName::new(row.user).map_err(Problem::internal)?,
        number: u32::try_from(row.number).map_err(Problem::internal)?,
    })
}
