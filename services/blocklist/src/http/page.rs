//! Paging parameters of lists.

use hayward_service::http::pagination;
use hayward_service::http::problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of entries of a page, at most 1000. Default: 100.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(required = false, nullable = false)]
    pub cursor: Option<String>,
}

impl PageQuery {
    pub fn limit(&self) -> Result<usize, Problem> {
        pagination::limit(self.limit, pagination::DEFAULT_LIMIT)
    }
}
