//! `hayward apps` and `hayward app`: list the applications, and show or remove one.

use std::fmt::Write as _;

use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationTaskView, ApplicationView, GroupView,
};
use hayward_service::Client;
use http::Method;
use serde_json::Value;

use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::{format_count, format_exit, format_size};
use crate::output::{Cell, Facts, Renderer, Table, Tone, note, toned};

const PAGES: PageFields = PageFields {
    list: "items",
    next: "nextCursor",
};

/// Selects the applications of a list.
#[derive(Debug, Clone, clap::Args)]
pub struct Listing {
    /// Show the applications of all users. Needs the operator's token.
    #[arg(long)]
    pub all: bool,
    /// Show only applications in this state: New, Submitted, Accepted, Reserving, Running,
    /// Completed, Failed …
    #[arg(long = "in", value_name = "STATE")]
    pub in_state: Option<String>,
}

/// Selects one application.
#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Id of the application, as submitted.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Remove the application; it must have no live task.
    #[arg(long)]
    pub remove: bool,
    /// Remove the application, and end its live tasks.
    #[arg(long, requires = "remove")]
    pub force: bool,
}

pub async fn print_list(session: Session, listing: Listing) -> anyhow::Result<()> {
    let session = if listing.all {
        session.as_operator()
    } else {
        session
    };
    let client = session.client(Service::JobConverter, Role::User)?;
    let filter = listing.in_state.map(|state| format!("?state={state}"));
    let path = format!("/v1/applications{}", filter.unwrap_or_default());
    let response = pages::read_all(&client, &path, PAGES).await?;
    session.out.print_response(response, render_table)
}

pub async fn show_or_remove(session: Session, arg: IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    if arg.remove {
        return remove(&client, &arg).await;
    }
    let path = format!("/v1/applications/{}", arg.id);
    let response: Value = client.get(&path).await?;
    session.out.print_response(response, render_details)
}

async fn remove(client: &Client, arg: &IdArg) -> anyhow::Result<()> {
    let path = format!("/v1/applications/{}?force={}", arg.id, arg.force);
    client
        .call(Method::DELETE, path)
        .send_for_response::<()>()
        .await?;
    note(&format!("{} is removed", arg.id));
    Ok(())
}

fn render_table(list: &ApplicationList, renderer: &Renderer) -> String {
    if list.items.is_empty() {
        return "no applications\n".to_owned();
    }
    let mut table = Table::new([
        "id",
        "user",
        "queue",
        "state",
        "scheduling",
        "tasks",
        "placed",
        "held",
        "age",
        "why",
    ]);
    for item in &list.items {
        let reason = item.failure.as_ref().map(|failure| failure.message.clone());
        let queue = match item.queue_name.as_str() {
            "" => "-",
            name => name,
        };
        table.push_row([
            item.id.as_str().into(),
            (&item.user).into(),
            queue.into(),
            state_cell(&item.state),
            item.scheduling_state.as_deref().unwrap_or("-").into(),
            item.tasks.to_string().into(),
            item.placed.to_string().into(),
            item.placeholders.to_string().into(),
            renderer.age(item.created_at).into(),
            toned(reason.unwrap_or_default(), Tone::Faint),
        ]);
    }
    table.render(renderer)
}

fn state_cell(state: &str) -> Cell {
    let tone = match state {
        "Running" | "Completed" | "Bound" => Tone::Good,
        "Failed" | "Failing" | "Rejected" => Tone::Bad,
        "Reserving" | "Resuming" | "Killing" => Tone::Warning,
        _ => Tone::Plain,
    };
    toned(state.to_owned(), tone)
}

/// Describes an application in full.
pub fn render_details(view: &ApplicationView, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    facts.add("id", view.id.as_str());
    facts.add("user", &view.user);
    if !view.queue_name.is_empty() {
        facts.add("queue", view.queue_name.as_str());
    }
    if let Some(pool) = &view.pool {
        facts.add("pool", pool.as_str());
    }
    facts.add("state", state_cell(&view.state));
    if let Some(scheduling) = &view.scheduling_state {
        facts.add("scheduling", state_cell(scheduling));
    }
    if let Some(failure) = &view.failure {
        facts.add("failure", format!("{}: {}", failure.code, failure.message));
    }
    facts.add("added", renderer.ago(view.created_at));
    for (timer, at) in &view.timers {
        let ms = at.ms_since(renderer.now);
        let text = format!("{timer} in {}", crate::output::format::format_duration(ms));
        facts.add("timer", text);
    }
    let mut text = facts.render(renderer);
    if !view.task_groups.is_empty() {
        text.push_str(&group_table(&view.task_groups, renderer));
    }
    if !view.tasks.is_empty() {
        text.push_str(&task_table(&view.tasks, renderer));
    }
    if !view.placeholders.is_empty() {
        text.push_str(&placeholder_table(view, renderer));
    }
    for wait in &view.why {
        // Writing to a string never fails.
        let _ = write!(text, "\n{} waits: {}", wait.of, wait.detail);
    }
    for warning in &view.warnings {
        let task = warning.task.as_deref().unwrap_or("it");
        let _ = write!(text, "\n{task}: {}", warning.message);
    }
    if !view.why.is_empty() || !view.warnings.is_empty() {
        text.push('\n');
    }
    text
}

fn group_table(groups: &[GroupView], renderer: &Renderer) -> String {
    let mut table = Table::new([
        "group", "members", "each", "held", "waiting", "asked", "replaced", "given up",
    ]);
    for group in groups {
        table.push_row([
            group.name.as_str().into(),
            group.min_member.to_string().into(),
            format_size(&group.min_resource).into(),
            group.held.to_string().into(),
            group.pending.to_string().into(),
            group.count.to_string().into(),
            group.replaced.to_string().into(),
            group.timedout.to_string().into(),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

fn task_table(tasks: &[ApplicationTaskView], renderer: &Renderer) -> String {
    let mut table = Table::new(["task", "group", "state", "node", "end", "why"]);
    for task in tasks {
        let reason = task.failure.as_ref().map(|failure| failure.message.clone());
        table.push_row([
            task.alias.as_str().into(),
            task.task_group_name.as_deref().unwrap_or("-").into(),
            state_cell(&task.state),
            task.node.as_ref().map_or("-", |node| node.as_str()).into(),
            task.exit
                .as_ref()
                .map_or("-".to_owned(), format_exit)
                .into(),
            toned(reason.unwrap_or_default(), Tone::Faint),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

fn placeholder_table(view: &ApplicationView, renderer: &Renderer) -> String {
    let mut table = Table::new(["placeholder", "group", "node", "for"]);
    for placeholder in &view.placeholders {
        table.push_row([
            placeholder.id.as_str().into(),
            placeholder.task_group_name.as_str().into(),
            placeholder
                .node
                .as_ref()
                .map_or("waits", |node| node.as_str())
                .into(),
            placeholder.replaced_by.as_deref().unwrap_or("-").into(),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

/// Final states of applications and tasks.
const FINAL_STATES: [&str; 4] = ["Completed", "Failed", "Killed", "Rejected"];

/// Returns true for a final state of an application or of a task.
pub fn is_final(state: &str) -> bool {
    FINAL_STATES.contains(&state)
}

/// Returns true if the application or all of its tasks have ended.
pub fn has_ended(view: &ApplicationView) -> bool {
    let is_final_state = |state: &String| is_final(state);
    let task_count: u64 = view.task_states.values().sum();
    let have_tasks_ended = task_count > 0 && view.task_states.keys().all(is_final_state);
    is_final_state(&view.state) || have_tasks_ended
}

/// Returns true if every task ended with status 0.
pub fn has_succeeded(view: &ApplicationView) -> bool {
    let has_completed = |task: &ApplicationTaskView| {
        let code = task.exit.as_ref().and_then(|exit| exit.code);
        task.state == "Completed" && code == Some(0)
    };
    view.failure.is_none() && view.tasks.iter().all(has_completed)
}

/// Describes the progress in one line.
pub fn summary(view: &ApplicationView) -> String {
    let task_counts = view.task_states.iter();
    let task_counts: Vec<String> = task_counts
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    // Places of a gang are held until the gang is complete.
    let held: u32 = view.task_groups.iter().map(|group| group.held).sum();
    let held_text = match held {
        0 => String::new(),
        held => format!(", {} held", format_count(u64::from(held), "place")),
    };
    let failure = view
        .failure
        .as_ref()
        .map(|failure| format!("; {}", failure.message));
    let first = view.why.first();
    let reason = failure.or_else(|| first.map(|wait| format!("; {}: {}", wait.of, wait.detail)));
    format!(
        "{}: tasks {}{held_text}{}",
        view.state,
        task_counts.join(", "),
        reason.unwrap_or_default()
    )
}
