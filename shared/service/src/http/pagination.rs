//! Pages of lists: the query, its limits, and paging of lists that are complete in memory. Such a
//! list is small, for example the workers of a pool (A6).

pub mod cursor;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::problem::{Code, Problem};
use cursor::Listing;

/// Entries on a page by default.
pub const DEFAULT_LIMIT: u16 = 100;
/// Maximum number of entries on a page.
pub const MAX_LIMIT: u16 = 1_000;

/// Returns the limit of a request, or the default.
///
/// # Errors
/// 400 outside of 1 to [`MAX_LIMIT`].
pub fn limit<N: From<u16> + PartialOrd>(requested: Option<N>, default: u16) -> Result<N, Problem> {
    let limit = requested.unwrap_or_else(|| default.into());
    if (N::from(1)..=N::from(MAX_LIMIT)).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("takes 1 to {MAX_LIMIT}");
    Err(Problem::new(Code::BadRequest, "invalid page parameters").at("/query/limit", detail))
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Entries at most; 100 when absent, no more than 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(required = false, nullable = false)]
    pub cursor: Option<String>,
}

impl PageQuery {
    /// Returns the limit of the request.
    ///
    /// # Errors
    /// Same as [`limit`].
    pub fn limit(&self) -> Result<usize, Problem> {
        limit(self.limit, DEFAULT_LIMIT)
    }

    /// Returns the key after which the page begins.
    ///
    /// # Errors
    /// 422 if the cursor belongs to another list.
    pub fn after(&self, listing: &Listing) -> Result<Option<String>, Problem> {
        let cursor = self.cursor.as_deref();
        cursor.map(|cursor| listing.last_key(cursor)).transpose()
    }

    /// Returns the requested page of all entries, sorted by key, and the cursor of the next page.
    ///
    /// # Errors
    /// Same as [`Self::limit`] and [`Self::after`].
    pub fn page<T>(
        &self,
        listing: &Listing,
        mut all: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        let limit = self.limit()?;
        let after = self.after(listing)?;
        all.retain(|entry| after.as_ref().is_none_or(|after| key(entry) > *after));
        all.sort_by_cached_key(&key);
        let has_more = all.len() > limit;
        all.truncate(limit);
        let last = all.last().filter(|_| has_more);
        let next = last.map(|last| listing.cursor(key(last)));
        Ok((all, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(
        limit: usize,
        cursor: Option<String>,
    ) -> Result<(Vec<u32>, Option<String>), Problem> {
        let limit = Some(limit);
        let all = vec![30, 10, 20, 50, 40];
        PageQuery { limit, cursor }.page(&Listing::new("/v1/things"), all, ToString::to_string)
    }

    #[test]
    fn pages_add_up_to_the_list_in_order() {
        let (mut seen, mut cursor) = (Vec::new(), None);
        for _ in 0..3 {
            let (page, next) = page_of(2, cursor.take()).unwrap();
            seen.extend(page);
            cursor = next;
        }
        assert_eq!((seen, cursor), (vec![10, 20, 30, 40, 50], None));
        // A page that ends with the list has no next page.
        let (_, next) = page_of(5, None).unwrap();
        assert_eq!(next, None);
    }

    #[test]
    fn limits_and_foreign_cursors_are_checked() {
        for limit in [0, usize::from(MAX_LIMIT) + 1] {
            let refusal = page_of(limit, None).unwrap_err();
            assert_eq!(refusal.status(), 400);
            assert_eq!(refusal.errors[0].pointer, "/query/limit");
        }
        let foreign_cursor = Listing::new("/v1/others").cursor("10");
        assert_eq!(page_of(1, Some(foreign_cursor)).unwrap_err().status(), 422);
    }
}
