//! `hayward containers`: lists running containers and containers that ended recently.

use hayward_container_manager_api::{ContainerEntry, ContainerList, ContainerState, ContainerView};

use crate::commands::inspect::allocations::Filter;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_exit};
use crate::output::{Cell, Renderer, Table, Tone, toned};

const PAGE_FIELDS: PageFields = PageFields {
    list: "containers",
    next: "next_cursor",
};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub filter: Filter,
    /// Show containers that have ended too.
    #[arg(long)]
    pub all: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::ContainerManager, Role::Reader)?;
    let path = format!("/v1/containers{}", arguments.filter.query());
    let mut response = pages::read_all(&client, &path, PAGE_FIELDS).await?;
    // `next` is an older name of the cursor. It still has the cursor of the first page.
    if let Some(fields) = response.as_object_mut() {
        fields.remove("next");
    }
    if !arguments.all
        && let Some(list) = response
            .get_mut(PAGE_FIELDS.list)
            .and_then(|list| list.as_array_mut())
    {
        list.retain(|container| container.get("state").is_none_or(|state| state != "ended"));
    }
    session
        .out
        .print_response(response, |list: &ContainerList, renderer| {
            render_table(&list.containers, renderer)
        })
}

pub fn render_table(containers: &[ContainerView], renderer: &Renderer) -> String {
    if containers.is_empty() {
        return "no containers\n".to_owned();
    }
    let header = [
        "container",
        "work",
        "user",
        "node",
        "attempt",
        "state",
        "pid",
        "age",
        "end",
    ];
    let mut table = Table::new(header).align_right(&[4, 6]);
    for view in containers {
        let entry = &view.entry;
        table.push_row([
            (&entry.id).into(),
            (&entry.work).into(),
            (&view.user).into(),
            (&entry.node).into(),
            view.incarnation.into(),
            state_cell(entry.state),
            view.pid.map_or_else(|| "-".into(), Cell::from),
            renderer.age(view.ordered_at).into(),
            toned(end_text(entry), Tone::Faint),
        ]);
    }
    table.render(renderer)
}

/// Returns how the container ended. Before its end, returns the detail that its node reports.
fn end_text(entry: &ContainerEntry) -> String {
    let reason = || entry.reason.clone().unwrap_or_default();
    entry.exit.as_ref().map_or_else(reason, format_exit)
}

fn state_cell(state: ContainerState) -> Cell {
    let tone = match state {
        ContainerState::Running => Tone::Good,
        ContainerState::Stopping | ContainerState::Unknown => Tone::Warning,
        _ => Tone::Plain,
    };
    toned(enum_text(&state), tone)
}
