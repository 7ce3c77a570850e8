//! Numbers of users. A user without a system account runs programs under an account computed from
//! the number.

use hayward_vocabulary::UserName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user with a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    pub user: UserName,
    /// Counted from 0. No other user ever has it.
    pub number: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountList {
    /// By name.
    pub accounts: Vec<AccountView>,
    /// Cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}
