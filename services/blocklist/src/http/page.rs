//! Pages of lists.

use hayward_service::problem::{Code, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

/// A6: entries of one page at most.
const LARGEST_PAGE: usize = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Entries at most; 100 when absent, no more than 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(required = false, nullable = false)]
    pub cursor: Option<String>,
    /// Waits up to 5 seconds until this revision is visible.
    #[param(required = false, nullable = false)]
    pub min_revision: Option<u64>,
}

impl Page {
    pub fn limit(&self) -> Result<usize, Problem> {
        let limit = self.limit.unwrap_or(100);
        if (1..=LARGEST_PAGE).contains(&limit) {
            return Ok(limit);
        }
        let detail = format!("takes 1 to {LARGEST_PAGE}");
        Err(Problem::new(Code::BadRequest, "this is no page").at("/query/limit", detail))
    }
}
