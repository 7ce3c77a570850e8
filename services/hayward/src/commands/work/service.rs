//! `hayward service`: manages programs that run until they are withdrawn.

mod change;

use std::path::PathBuf;
use std::process::ExitCode;

use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::{ContainerSubmission, ServiceSubmission};
use hayward_vocabulary::WorkId;
use hayward_vocabulary::launch::Mount;

use crate::commands::operate::moves;
use crate::commands::work::cancel;
use crate::commands::work::submit::common_flags::CommonFlags;
use crate::commands::work::submit::deployment_flags::DeploymentFlags;
use crate::commands::work::submit::disruption_flags::DisruptionFlags;
use crate::commands::work::submit::{self, AfterSubmit, DocumentKind};
use crate::commands::work::{self, IdArg, Listing};
use crate::connection::{Role, Service, Session};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The service to show, with its instances.
    #[arg(value_name = "ID", required = true)]
    pub id: Option<WorkId>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Submit a service: a program with a number of instances that always run
    Submit(Box<SubmitArguments>),
    /// List services
    List(Listing),
    /// Show one service and its instances
    Show(IdArg),
    /// Change the number of instances
    Scale(change::ScaleArguments),
    /// Change a service: its program, image, size, or anything but its name and class
    Update(Box<change::UpdateArguments>),
    /// Show the nodes of the instances of a service, and the ordered moves
    Placements(IdArg),
    /// End services
    Cancel(cancel::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct SubmitArguments {
    #[command(flatten)]
    pub common: CommonFlags,
    /// Number of instances that always run. Default 1.
    #[arg(long, value_name = "N")]
    pub instances: Option<u32>,
    #[command(flatten)]
    pub deployment: DeploymentFlags,
    #[command(flatten)]
    pub image: ImageFlags,
    #[command(flatten)]
    pub disruption: DisruptionFlags,
    #[command(flatten)]
    pub after: AfterSubmit,
    /// The whole submission as YAML or JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "class", "queue", "pool", "priority", "memory", "cpu", "machines", "labels",
        "environment", "cwd", "instances",
        "when_unreachable", "disruption_limit", "command", "image", "run_as", "read_only",
        "mounts",
        "standbys", "host_affinity", "fault_domain", "retries",
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

/// The image in which the program runs.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ImageFlags {
    /// Run the program inside this image, on nodes that have a container engine.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// System user, or user and group, inside the image, as 1000 or 1000:1000.
    #[arg(long, value_name = "UID[:GID]", requires = "image", value_parser = parse_user_ids)]
    pub run_as: Option<(u32, Option<u32>)>,
    /// Do not let the program write to the files of the image.
    #[arg(long, requires = "image")]
    pub read_only: bool,
    /// A directory of the node that the program sees, as /srv/data:/data or /srv/data:/data:ro. The
    /// policy of the pool must list the directory. May be repeated.
    #[arg(long = "mount", value_name = "SOURCE:TARGET[:ro]", requires = "image",
        value_parser = parse_mount)]
    pub mounts: Vec<Mount>,
}

impl ImageFlags {
    /// Returns the container settings. Returns `None` without an image.
    fn container(self) -> Option<ContainerSubmission> {
        let (uid, gid) = self
            .run_as
            .map_or((None, None), |(uid, gid)| (Some(uid), gid));
        Some(ContainerSubmission {
            image: self.image?,
            uid,
            gid,
            read_only: self.read_only,
            mounts: self.mounts,
        })
    }
}

fn parse_mount(text: &str) -> Result<Mount, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts.as_slice() {
        [source, target] => (*source, *target, false),
        [source, target, "ro"] => (*source, *target, true),
        _ => return Err(format!("{text:?} is not SOURCE:TARGET or SOURCE:TARGET:ro")),
    };
    Ok(Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    })
}

fn parse_user_ids(text: &str) -> Result<(u32, Option<u32>), String> {
    let parse_id = |text: &str| {
        text.parse()
            .map_err(|_| format!("{text:?} is no number of a user or group"))
    };
    match text.split_once(':') {
        Some((uid, gid)) => Ok((parse_id(uid)?, Some(parse_id(gid)?))),
        None => Ok((parse_id(text)?, None)),
    }
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let show_command = arguments.id.map(|id| Command::Show(IdArg { id }));
    match arguments.command.or(show_command) {
        Some(Command::Submit(service)) => return submit_service(&session, *service).await,
        Some(Command::List(listing)) => work::print_list(session, "services", &listing).await?,
        Some(Command::Show(arg)) => show(&session, &arg).await?,
        Some(Command::Scale(scale)) => return change::scale(&session, scale).await,
        Some(Command::Update(update)) => return change::update(&session, *update).await,
        Some(Command::Placements(arg)) => moves::list(session, arg).await?,
        Some(Command::Cancel(arg)) => cancel::run(session, arg).await?,
        // The parser requires an id or a subcommand.
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(session: &Session, arg: &IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let response = work::fetch_json(&client, &arg.id).await?;
    session
        .out
        .print_response(response, |view: &WorkView, renderer| {
            work::render_details(view, renderer)
        })
}

async fn submit_service(session: &Session, submit: SubmitArguments) -> anyhow::Result<ExitCode> {
    if let Some(file) = &submit.file {
        return submit::submit_file(session, file, DocumentKind::Service, &submit.after).await;
    }
    let SubmitArguments {
        common,
        instances,
        deployment,
        image,
        disruption,
        after,
        command,
        ..
    } = submit;
    let service = ServiceSubmission {
        command,
        container: image.container(),
        instances,
        retries: deployment.retries(),
        standbys: deployment.standbys,
        host_affinity: deployment.host_affinity,
        fault_domain_label: deployment.fault_domain,
        environment: common.program.variables()?,
        working_directory: common.program.working_directory()?,
        size: common.size(),
        name: common.name,
        class: common.class,
        queue: common.queue,
        pool: common.pool,
        priority: common.priority,
        machines: common.machines,
        labels: common.labels.into_iter().collect(),
        when_unreachable: disruption.when_unreachable,
        disruption_limit: disruption.disruption_limit,
    };
    submit::send(session, "services", &service, &after).await
}
