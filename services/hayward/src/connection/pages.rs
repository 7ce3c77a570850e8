//! Reads all pages of a list from the API, and merges them into one response.

use hayward_service::{Client, ClientError};
use serde_json::Value;

/// Field names of a paginated response.
#[derive(Debug, Clone, Copy)]
pub struct PageFields {
    /// Name of the field with the list.
    pub list: &'static str,
    /// Name of the field with the cursor of the next page.
    pub next: &'static str,
}

/// Pages of jobs, services and reservations.
pub const WORK_PAGES: PageFields = PageFields {
    list: "items",
    next: "next_cursor",
};

/// Reads all pages of a route into one response. `path` may have a query.
pub async fn read_all(
    client: &Client,
    path: &str,
    pages: PageFields,
) -> Result<Value, ClientError> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{separator}limit=1000");
    let mut merged: Value = client.get(&path).await?;
    // The merged response has the cursor of the last page read.
    while let Some(cursor) = take_cursor(&mut merged, pages) {
        let call = client
            .call(http::Method::GET, path.as_str())
            .query("cursor", cursor);
        let mut page: Value = call.send().await?;
        let cursor = page.get(pages.next).cloned().unwrap_or(Value::Null);
        if let Some(next_items) = page.get_mut(pages.list).and_then(Value::as_array_mut)
            && let Some(list) = merged.get_mut(pages.list).and_then(Value::as_array_mut)
        {
            list.append(next_items);
        }
        if let Some(fields) = merged.as_object_mut() {
            fields.insert(pages.next.to_owned(), cursor);
        }
    }
    Ok(merged)
}

/// Removes the cursor of the next page. Returns `None` after the last page.
fn take_cursor(merged: &mut Value, pages: PageFields) -> Option<String> {
    let cursor = merged.as_object_mut()?.remove(pages.next)?;
    cursor.as_str().map(str::to_owned)
}

/// Keeps the newest `limit` items by id, because ids sort by age. Returns the number of removed
/// items.
pub fn keep_newest(merged: &mut Value, pages: PageFields, limit: usize) -> usize {
    let Some(list) = merged.get_mut(pages.list).and_then(Value::as_array_mut) else {
        return 0;
    };
    list.sort_by(|left, right| id_of(left).cmp(id_of(right)));
    let excess = list.len().saturating_sub(limit);
    list.drain(..excess);
    excess
}

fn id_of(item: &Value) -> &str {
    item.get("id").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_items_stay_by_their_ids() {
        let mut merged = json!({"items": [{"id": "job_3"}, {"id": "job_1"}, {"id": "job_2"}]});
        assert_eq!(keep_newest(&mut merged, WORK_PAGES, 2), 1);
        assert_eq!(merged, json!({"items": [{"id": "job_2"}, {"id": "job_3"}]}));
        assert_eq!(keep_newest(&mut merged, WORK_PAGES, 5), 0);
    }
}
