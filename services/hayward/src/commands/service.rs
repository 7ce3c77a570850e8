//! `hayward service`: programs that are kept up.

use std::path::PathBuf;
use std::process::ExitCode;

use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::ServiceSubmission;

use crate::commands::cancel;
use crate::commands::submit::disruption::Disruption;
use crate::commands::submit::needs::Needs;
use crate::commands::submit::{self, DocumentKind, Then};
use crate::commands::work::{self, Listing, Which};
use crate::connection::{Role, Service, Session};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Submit a service: a program of which so many instances are kept up
    Submit(Box<Submit>),
    /// List services
    List(Listing),
    /// Show one service and its instances
    Show(Which),
    /// End services
    Cancel(cancel::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Submit {
    #[command(flatten)]
    pub needs: Needs,
    /// Instances to keep up. Default 1.
    #[arg(long, value_name = "N")]
    pub instances: Option<u32>,
    #[command(flatten)]
    pub disruption: Disruption,
    #[command(flatten)]
    pub then: Then,
    /// The whole submission as YAML or JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "class", "memory", "cpu", "machines", "labels", "environment", "cwd", "instances",
        "when_unreachable", "disruption_limit", "command",
    ])]
    pub file: Option<PathBuf>,
    /// Program and arguments. `{instance}` stands for the number of the instance, from 0.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "file"
    )]
    pub command: Vec<String>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Submit(service) => return submit(&session, *service).await,
        Command::List(listing) => work::list(session, "services", &listing).await?,
        Command::Show(which) => {
            let client = session.client(Service::JobConverter, Role::User)?;
            let answer = work::fetch(&client, &which.id).await?;
            session
                .out
                .answer(answer, |view: &WorkView, look| work::detail(view, look))?;
        }
        Command::Cancel(which) => cancel::run(session, which).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn submit(session: &Session, submit: Submit) -> anyhow::Result<ExitCode> {
    if let Some(file) = &submit.file {
        return submit::from_file(session, file, DocumentKind::Service, &submit.then).await;
    }
    let Submit {
        needs,
        instances,
        disruption,
        then,
        command,
        ..
    } = submit;
    let service = ServiceSubmission {
        command,
        instances,
        environment: needs.program.environment.iter().cloned().collect(),
        working_directory: needs.program.working_directory()?,
        size: needs.size(),
        name: needs.name,
        class: needs.class,
        machines: needs.machines,
        labels: needs.labels.into_iter().collect(),
        when_unreachable: disruption.when_unreachable,
        disruption_limit: disruption.disruption_limit,
    };
    submit::send(session, ("services", &service), &then).await
}
