//! Commands for jobs, services, reservations and applications, and functions that they share.

pub mod apps;
pub mod cancel;
pub mod explain;
pub mod job;
pub mod jobs;
pub mod logs;
pub mod reserve;
pub mod service;
pub mod signal;
pub mod submit;
pub mod task;
pub mod tasks;
pub mod timeline;
pub mod watch;

mod efficiency;
mod service_processors;

use std::fmt::Write as _;

use anyhow::Context as _;
use hayward_job_converter_api::{TaskCounts, WorkState, WorkView};
use hayward_service::Client;
use hayward_vocabulary::{WhenUnreachable, WorkId, WorkKind};
use serde_json::Value;

use crate::connection::pages::{self, WORK_PAGES, keep_newest};
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_count, format_duration, format_exit, format_size};
use crate::output::{Cell, Facts, Renderer, Table, Tone, note, parse_response, toned};

/// Maximum number of characters of a name in a table.
const NAME_WIDTH: usize = 24;
/// Maximum number of characters of a reason in a table or in a line of progress.
const REASON_WIDTH: usize = 60;

/// Selects one piece of work.
#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Id of the work, as `submit` printed it.
    #[arg(value_name = "ID")]
    pub id: WorkId,
}

/// Selects the work of a list.
#[derive(Debug, Clone, clap::Args)]
pub struct Listing {
    /// Show the work of all users. Needs the operator's token.
    #[arg(long)]
    pub all: bool,
    /// Show only work in this state: waiting, running, stopping, completed, failed, cancelled or
    /// refused.
    #[arg(long = "in", value_name = "STATE", value_parser = parse_state)]
    pub in_state: Option<WorkState>,
    /// Maximum number of entries, the newest first.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

fn parse_state(text: &str) -> Result<WorkState, String> {
    match serde_json::from_value(Value::String(text.to_lowercase())) {
        Ok(WorkState::Unknown) | Err(_) => Err(
            "a state is waiting, running, stopping, completed, failed, cancelled or refused"
                .to_owned(),
        ),
        Ok(state) => Ok(state),
    }
}

/// Prints the list of a route such as `jobs` as a table.
pub async fn print_list(session: Session, route: &str, listing: &Listing) -> anyhow::Result<()> {
    let session = if listing.all {
        session.as_operator()
    } else {
        session
    };
    let client = session.client(Service::JobConverter, Role::User)?;
    let filter = listing
        .in_state
        .map(|state| format!("?state={}", enum_text(&state)));
    let path = format!("/v1/{route}{}", filter.unwrap_or_default());
    let mut response = pages::read_all(&client, &path, WORK_PAGES).await?;
    let omitted = keep_newest(&mut response, WORK_PAGES, listing.limit);
    session.out.print_response(
        response,
        |list: &hayward_job_converter_api::WorkList, renderer| {
            render_table(&list.items, route, renderer)
        },
    )?;
    if omitted > 0 && !session.out.json {
        note(&format!(
            "{} older not shown; see --limit",
            format_count(omitted as u64, "one")
        ));
    }
    Ok(())
}

/// Returns the class of the work, or its queue if the pool has queues.
fn class_or_queue(view: &WorkView) -> &str {
    let name = view.class.as_deref().or(view.queue.as_deref());
    name.unwrap_or("-")
}

pub fn render_table(items: &[WorkView], route: &str, renderer: &Renderer) -> String {
    if items.is_empty() {
        return format!("no {route}\n");
    }
    let mut table = Table::new([
        "id", "name", "user", "class", "state", "tasks", "on", "age", "why",
    ]);
    for view in items {
        table.push_row([
            (&view.id).into(),
            shorten(&view.name, NAME_WIDTH).into(),
            (&view.user).into(),
            class_or_queue(view).into(),
            state_cell(view.state),
            tasks_text(view).into(),
            count_alive(view).into(),
            renderer.age(view.submitted_at).into(),
            toned(
                shorten(view.reason.as_deref().unwrap_or_default(), REASON_WIDTH),
                Tone::Faint,
            ),
        ]);
    }
    table.render(renderer)
}

fn tasks_text(view: &WorkView) -> String {
    let Some(tasks) = view.tasks else {
        return "-".to_owned();
    };
    let mut text = format!("{}/{}", tasks.succeeded + tasks.failed, tasks.total);
    for (count, name) in [(tasks.failed, "failed"), (tasks.cancelled, "cancelled")] {
        if count > 0 {
            let _ = write!(text, ", {count} {name}");
        }
    }
    text
}

/// Returns the number of processes that have not ended.
fn count_alive(view: &WorkView) -> usize {
    view.processes
        .iter()
        .filter(|process| process.exit.is_none())
        .count()
}

pub fn state_cell(state: WorkState) -> Cell {
    let tone = match state {
        WorkState::Running | WorkState::Completed => Tone::Good,
        WorkState::Failed | WorkState::Refused => Tone::Bad,
        WorkState::Stopping | WorkState::Unknown => Tone::Warning,
        WorkState::Waiting | WorkState::Cancelled => Tone::Plain,
    };
    toned(enum_text(&state), tone)
}

/// Describes one piece of work in full.
pub fn render_details(view: &WorkView, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    facts.add("id", &view.id);
    facts.add("name", &view.name);
    facts.add("user", &view.user);
    match &view.queue {
        Some(queue) => facts.add("queue", queue),
        None => facts.add("class", view.class.as_deref().unwrap_or("the default")),
    }
    facts.add("state", state_cell(view.state));
    if let Some(reason) = &view.reason {
        facts.add("why", reason);
    }
    if let Some(tasks) = view.tasks {
        facts.add("tasks", task_counts_text(&tasks));
    }
    efficiency::add_facts(view, &mut facts);
    if let Some(deployment) = &view.deployment {
        service_processors::add_facts(deployment, &mut facts);
    }
    facts.add("process size", format_size(&view.size));
    if let Some(unreachable) = unreachable_text(view.when_unreachable) {
        facts.add("if unreachable", unreachable);
    }
    if let Some(limit) = view.disruption_limit {
        facts.add("drains take off", format!("{limit} at one time at most"));
    }
    facts.add(
        "submitted",
        format!("{}, {}", view.submitted_at, renderer.ago(view.submitted_at)),
    );
    if let Some(ended_at) = view.ended_at {
        let duration_text = format_duration(ended_at.ms_since(view.submitted_at));
        facts.add("ended", format!("{ended_at}, after {duration_text}"));
    }
    for (name, value) in &view.labels {
        facts.add("label", format!("{name}={value}"));
    }
    let deployment = view.deployment.as_ref().filter(|_| !view.state.is_final());
    let processors_text = deployment.map(|it| service_processors::render_table(it, renderer));
    facts.render(renderer) + &processors_text.unwrap_or_default() + &process_table(view, renderer)
}

/// Returns the numbers of tasks by state. States that are rare are shown only if they occur.
fn task_counts_text(tasks: &TaskCounts) -> String {
    let cancelled = match tasks.cancelled {
        0 => String::new(),
        cancelled => format!("{cancelled} cancelled, "),
    };
    let delayed = match tasks.delayed {
        0 => String::new(),
        delayed => format!(", {delayed} delayed"),
    };
    format!(
        "{} of {} succeeded, {} failed, {cancelled}{} running, {} starting, {} waiting{delayed}",
        tasks.succeeded, tasks.total, tasks.failed, tasks.running, tasks.leased, tasks.waiting
    )
}

/// Describes the action when the node of the work is unreachable. Returns `None` for the default.
fn unreachable_text(when_unreachable: WhenUnreachable) -> Option<String> {
    Some(match when_unreachable {
        WhenUnreachable::Replace => return None,
        WhenUnreachable::ReplaceAfter { ms } => {
            format!("replaced {} after its node was lost", format_duration(ms))
        }
        WhenUnreachable::Wait => "waits for its node".to_owned(),
        WhenUnreachable::Exclusive => "never two at once".to_owned(),
    })
}

fn process_table(view: &WorkView, renderer: &Renderer) -> String {
    if view.processes.is_empty() {
        return String::new();
    }
    // A reservation has no process. It holds a node.
    let noun = if view.kind == WorkKind::Reservation {
        "machine"
    } else {
        "process"
    };
    let mut table = Table::new([noun, "node", "attempt", "state", "end"]).align_right(&[2]);
    for process in &view.processes {
        let end = process.exit.as_ref().map(format_exit).unwrap_or_default();
        table.push_row([
            (&process.allocation).into(),
            (&process.node).into(),
            process.incarnation.into(),
            process.state.replace('_', " ").into(),
            end.into(),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

/// Reads the view of one piece of work, as JSON.
pub async fn fetch_json(client: &Client, id: &WorkId) -> anyhow::Result<Value> {
    Ok(client.get(&route_of_work(id)?).await?)
}

pub async fn fetch_view(client: &Client, id: &WorkId) -> anyhow::Result<WorkView> {
    parse_response(fetch_json(client, id).await?)
}

/// Cancels the work. Work that has ended stays unchanged.
pub async fn cancel(client: &Client, id: &WorkId) -> anyhow::Result<Value> {
    let route = route_of_work(id)?;
    let cancelled = client.delete(&route).await;
    cancelled.with_context(|| format!("cannot cancel {id}"))
}

/// Returns the first `limit` characters, with a mark if there are more.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars()
        .take(limit.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests;
