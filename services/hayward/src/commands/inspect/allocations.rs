//! `hayward allocations`: lists which work has how many quanta on which node.

use hayward_rm_scheduler_api::AllocationState;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_service::Client;
use hayward_vocabulary::{NodeName, WorkId};
use http::Method;

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_exit, format_size};
use crate::output::{Cell, Renderer, Table, Tone, toned};

/// Selects allocations or containers by node and by work.
#[derive(Debug, Clone, clap::Args)]
pub struct Filter {
    /// Show only those on this node.
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeName>,
    /// Show only those of this job or reservation, or of this instance of a service.
    #[arg(long = "job", visible_alias = "work", value_name = "ID")]
    pub work: Option<WorkId>,
}

impl Filter {
    /// Returns the query string with its question mark. It is empty without filters. Names need no
    /// escaping.
    pub fn query(&self) -> String {
        let node = self.node.as_ref().map(|node| format!("node={node}"));
        let work = self.work.as_ref().map(|work| format!("work={work}"));
        let parts: Vec<String> = node.into_iter().chain(work).collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!("?{}", parts.join("&"))
        }
    }
}

/// Reads all pages of allocations. (A6)
pub async fn read_all(client: &Client, filter: &Filter) -> anyhow::Result<AllocationList> {
    let path = format!("/v1/allocations{}", filter.query());
    let mut merged: Option<AllocationList> = None;
    loop {
        let mut call = client.call(Method::GET, &path).query("limit", 1_000);
        if let Some(cursor) = merged.as_ref().and_then(|list| list.next_cursor.as_ref()) {
            call = call.query("cursor", cursor);
        }
        let page: AllocationList = call.send().await?;
        let has_more = page.next_cursor.is_some();
        match &mut merged {
            None => merged = Some(page),
            Some(list) => {
                list.allocations.extend(page.allocations);
                (list.revision, list.next_cursor) = (page.revision, page.next_cursor);
            }
        }
        if let Some(list) = merged.take_if(|_| !has_more) {
            return Ok(list);
        }
    }
}

pub async fn run(session: Session, filter: Filter) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = serde_json::to_value(read_all(&client, &filter).await?)?;
    session
        .out
        .print_response(response, |list: &AllocationList, renderer| {
            render_table(&list.allocations, renderer)
        })
}

pub fn render_table(allocations: &[AllocationView], renderer: &Renderer) -> String {
    if allocations.is_empty() {
        return "no allocations\n".to_owned();
    }
    let header = [
        "allocation",
        "work",
        "user",
        "class",
        "node",
        "quanta",
        "size",
        "state",
        "age",
        "",
    ];
    let mut table = Table::new(header).align_right(&[5]);
    for view in allocations {
        let vacate = view.vacate.as_ref();
        let leaving_text = vacate
            .map(|vacate| format!("leaves: {}, {}", enum_text(&vacate.reason), vacate.detail));
        let end_text = view.exit.as_ref().map(format_exit);
        table.push_row([
            (&view.id).into(),
            (&view.work).into(),
            (&view.user).into(),
            (&view.class).into(),
            (&view.node).into(),
            view.order.into(),
            format_size(&view.size).into(),
            state_cell(view.state),
            renderer.age(view.granted_at).into(),
            toned(end_text.or(leaving_text).unwrap_or_default(), Tone::Faint),
        ]);
    }
    table.render(renderer)
}

fn state_cell(state: AllocationState) -> Cell {
    let tone = match state {
        AllocationState::Running => Tone::Good,
        AllocationState::Unreachable | AllocationState::Unknown => Tone::Bad,
        AllocationState::Stopping => Tone::Warning,
        _ => Tone::Plain,
    };
    toned(enum_text(&state), tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_a_query() {
        let mut filter = Filter {
            node: None,
            work: None,
        };
        assert_eq!(filter.query(), "");
        filter.node = Some(NodeName::new("node-1").unwrap());
        assert_eq!(filter.query(), "?node=node-1");
        filter.work = Some(WorkId::new("job_1").unwrap());
        assert_eq!(filter.query(), "?node=node-1&work=job_1");
    }
}
