//! Reads paginated lists as one list.

use hayward_service::{Client, ClientError};
use hayward_vocabulary::WorkId;
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

/// Returns the route of a piece of work, by the prefix of its id.
pub fn route_of_work(id: &WorkId) -> anyhow::Result<String> {
    let collection = match id.as_str().split_once('_') {
        Some(("job", _)) => "jobs",
        Some(("svc", _)) => "services",
        Some(("rsv", _)) => "reservations",
        Some(("wp", _)) => anyhow::bail!(
            "{id} belongs to a worker pool: `hayward pool show {pool}` shows it, and `hayward \
             explain {pool}.N` says why worker N waits",
            pool = id.parent()
        ),
        Some(("app", _)) => anyhow::bail!(
            "{id} belongs to an application: `hayward explain {id}` says why it waits, and \
             `hayward app APPLICATION` shows how its tasks stand"
        ),
        _ => anyhow::bail!("{id} is no id of work: those begin with job_, svc_ or rsv_"),
    };
    Ok(format!("/v1/{collection}/{}", id.parent()))
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

    #[test]
    fn an_id_prefix_selects_the_route() {
        let route = |text: &str| route_of_work(&WorkId::new(text).unwrap());
        assert_eq!(route("job_1").unwrap(), "/v1/jobs/job_1");
        assert_eq!(route("svc_1.3").unwrap(), "/v1/services/svc_1");
        assert_eq!(route("rsv_1").unwrap(), "/v1/reservations/rsv_1");
        assert!(route("alc_1").is_err() && route("7").is_err());
        let message = route("wp_1.2").unwrap_err().to_string();
        assert!(message.contains("hayward pool show wp_1`"), "{message}");
    }
}
