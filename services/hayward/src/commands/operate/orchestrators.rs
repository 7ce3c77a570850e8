//! `hayward orchestrators`: manages programs that own a map of work and follow its allocations.

use std::fmt::Write as _;
use std::path::PathBuf;

use hayward_job_converter_api::orchestrators::{
    OrchestratorCreated, OrchestratorList, OrchestratorOrder, OrchestratorView,
};
use hayward_vocabulary::UserName;
use serde_json::{Value, json};

use crate::commands::operate::worker_pool::create_secret_file;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::format_duration;
use crate::output::{Renderer, Table, note, parse_response};

const ROUTE: &str = "/v1/orchestrators";
const PAGES: PageFields = PageFields {
    list: "orchestrators",
    next: "next_cursor",
};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Create an orchestrator, or change the users that it may charge, and print its token
    Create(CreateArguments),
    /// Show one orchestrator, with the faults of its last map
    Show(IdArg),
    /// End all work of an orchestrator, and remove the orchestrator
    Remove(IdArg),
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Name of the orchestrator.
    #[arg(value_name = "NAME")]
    pub name: UserName,
}

#[derive(Debug, Clone, clap::Args)]
pub struct CreateArguments {
    /// Name of the orchestrator.
    #[arg(value_name = "NAME")]
    pub name: UserName,
    /// User whose share may be charged for its work. May be repeated.
    #[arg(long, value_name = "USER", required_unless_present = "for_anyone")]
    pub for_user: Vec<UserName>,
    /// The shares of all users may be charged for its work.
    #[arg(long, conflicts_with = "for_user")]
    pub for_anyone: bool,
    /// File for the token, readable only by you. Default: the token is printed.
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        None => list(&session).await,
        Some(Command::Create(create)) => self::create(&session, create).await,
        Some(Command::Show(arg)) => show(&session, &arg.name).await,
        Some(Command::Remove(arg)) => remove(&session, &arg.name).await,
    }
}

async fn create(session: &Session, create: CreateArguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    let request = OrchestratorOrder {
        name: create.name,
        users: create.for_user,
        anyone: create.for_anyone,
    };
    let mut response: Value = client.post(ROUTE, &request, None).await?;
    if let Some(file) = &create.token {
        let created: OrchestratorCreated = parse_response(response.clone())?;
        create_secret_file(file, &created.token)?;
        response["token"] = json!(format!("in {}", file.display()));
    }
    session
        .out
        .print_response(response, |created: &OrchestratorCreated, _| {
            note("The token is for the orchestrator, and shown this once:");
            format!("{}\n{}\n", created.name, created.token)
        })
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    let response = pages::read_all(&client, ROUTE, PAGES).await?;
    session
        .out
        .print_response(response, |list: &OrchestratorList, renderer| {
            render_table(&list.orchestrators, renderer)
        })
}

fn render_table(all: &[OrchestratorView], renderer: &Renderer) -> String {
    if all.is_empty() {
        return "no orchestrators\n".to_owned();
    }
    let header = [
        "name", "map", "age", "waiting", "held", "over", "refused", "shares", "leaving", "",
    ];
    let mut table = Table::new(header).align_right(&[1, 3, 4, 5, 6, 7, 8]);
    for view in all {
        table.push_row([
            (&view.name).into(),
            view.sequence.unwrap_or(0).into(),
            view.age_ms.map(format_duration).unwrap_or_default().into(),
            view.counts.waiting.into(),
            view.counts.held.into(),
            view.counts.over.into(),
            view.counts.refused.into(),
            view.counts.shares.into(),
            view.counts.leaving.into(),
            view.note.clone().unwrap_or_default().into(),
        ]);
    }
    table.render(renderer)
}

async fn show(session: &Session, name: &UserName) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    let response = client.get(&format!("{ROUTE}/{name}")).await?;
    session
        .out
        .print_response(response, |view: &OrchestratorView, renderer| {
            let mut text = render_table(std::slice::from_ref(view), renderer);
            let payers: Vec<&str> = view.users.iter().map(UserName::as_str).collect();
            let payers = if view.anyone {
                "all users".to_owned()
            } else {
                payers.join(", ")
            };
            let lineage = view.lineage.as_deref().unwrap_or("none yet");
            // Writing to a string never fails.
            let _ = writeln!(text, "charged to  {payers}\nlineage     {lineage}");
            for fault in &view.faults {
                let _ = writeln!(text, "refused     {}: {}", fault.pointer, fault.detail);
            }
            text
        })
}

async fn remove(session: &Session, name: &UserName) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::Operator)?;
    client
        .delete::<Option<Value>>(&format!("{ROUTE}/{name}"))
        .await?;
    session
        .out
        .print_response(json!({ "removed": name }), |_: &Value, _| {
            format!("{name} is removed, and all its work ends\n")
        })
}
