//! `hayward submit`: submits a job from flags, or any work from a file.

pub mod common_flags;
pub mod deployment_flags;
pub mod disruption_flags;
pub mod document;
mod environment;
mod exit_status;
mod gang;
mod retry_flags;
mod run_flags;
mod script;
mod tasks_from_lines;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use hayward_job_converter_api::submission::{JobSubmission, Submitted, Tasks};
use hayward_service::runtime::clock::fresh_uuid;
use serde::Serialize;

use crate::commands::work::watch::{self, Until};
use crate::connection::{Role, Service, Session};
use crate::output::{note, parse_response, print};

use common_flags::CommonFlags;
use disruption_flags::DisruptionFlags;
use document::Document;
pub use document::{DocumentKind, parse_value, parse_yaml};
use retry_flags::RetryFlags;
use run_flags::RunFlags;
use script::ParseAgain;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub common: CommonFlags,
    /// Number of tasks. `{task}` in the command is the number of the task.
    #[arg(long, value_name = "N", conflicts_with = "each")]
    pub count: Option<u64>,
    /// File with one task per line; `-` is standard input. The line is appended to the command as
    /// one argument.
    #[arg(long, value_name = "FILE")]
    pub each: Option<PathBuf>,
    /// Maximum number of processes at one time. Default: the number of tasks.
    #[arg(long, value_name = "N")]
    pub max_processes: Option<u64>,
    /// Number of tasks that run at the same time in one process. Default 1.
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    #[command(flatten)]
    pub retry: RetryFlags,
    #[command(flatten)]
    pub disruption: DisruptionFlags,
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub after: AfterSubmit,
    /// Script that each task runs; `-` is standard input. Lines `#HAYWARD --time 1h` at its
    /// beginning have flags of this command. A relative COMMAND that is a script here is sent too.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "gang"])]
    pub script: Option<PathBuf>,
    /// The whole submission as YAML or JSON; `kind: service` or `kind: reservation` makes it one of
    /// those.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "class", "queue", "pool", "priority", "memory", "cpu", "machines", "labels",
        "environment", "env_file", "export", "cwd", "count", "each", "max_processes", "threads",
        "max_attempts",
        "when_unreachable", "disruption_limit", "time", "warn", "stop_signal", "grace", "output",
        "error", "append", "make_directories", "discard_output", "stdin", "stdin_file",
        "retry_delay", "retry_on", "retry_exit_codes", "retry_never_exit_codes", "success",
        "command",
    ])]
    pub file: Option<PathBuf>,
    /// An application with task groups that start together, and their tasks, as YAML or JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "class", "memory", "cpu", "machines", "labels", "environment", "env_file",
        "export", "cwd", "count",
        "each", "max_processes", "threads", "max_attempts", "when_unreachable", "disruption_limit",
        "time", "warn", "stop_signal", "grace", "output", "error", "append", "make_directories",
        "discard_output", "stdin", "stdin_file", "retry_delay", "retry_on", "retry_exit_codes",
        "retry_never_exit_codes", "success", "command", "file", "idempotency_key",
    ])]
    pub gang: Option<PathBuf>,
    /// Program and arguments of one task. `{task}` stands for its number, from 0. No shell reads
    /// this.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present_any = ["file", "gang", "script"]
    )]
    pub command: Vec<String>,
}

/// Actions after the submission is accepted.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AfterSubmit {
    /// Follow the work until its end. The exit status is that of the task if there is only one,
    /// else 0 if the work completed.
    #[arg(long)]
    pub wait: bool,
    /// Print the id and nothing else.
    #[arg(long, short)]
    pub quiet: bool,
    /// Idempotency key. A second submission with the same key has no further effect. Default: a new
    /// key.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

pub async fn run(
    session: Session,
    arguments: Arguments,
    parse_again: ParseAgain,
) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.gang {
        return gang::run(&session, file, &arguments.after).await;
    }
    if let Some(file) = &arguments.file {
        return submit_file(&session, file, DocumentKind::Job, &arguments.after).await;
    }
    check_standard_input(&arguments)?;
    let loaded = script::load(&arguments, parse_again)?;
    let (arguments, script) = match loaded {
        Some(loaded) => (loaded.arguments, Some(loaded.script)),
        None => (arguments, None),
    };
    let mut job = job_submission(&arguments)?;
    job.script = script;
    send(&session, "jobs", &job, &arguments.after).await
}

/// Refuses two flags that read standard input, because the second would read nothing.
fn check_standard_input(arguments: &Arguments) -> anyhow::Result<()> {
    let files = [
        ("--each", &arguments.each),
        ("--script", &arguments.script),
        ("--stdin", &arguments.run.stdin),
        ("--env-file", &arguments.common.program.env_file),
    ];
    let is_standard_input = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
    let flags: Vec<&str> = files
        .into_iter()
        .filter(|(_, file)| is_standard_input(file))
        .map(|(flag, _)| flag)
        .collect();
    if let [first, second, ..] = flags.as_slice() {
        bail!("{first} and {second} cannot both read standard input: give one of them a file");
    }
    Ok(())
}

fn job_submission(arguments: &Arguments) -> anyhow::Result<JobSubmission> {
    let tasks = match (&arguments.each, arguments.count) {
        (Some(file), _) => Tasks::Arguments(
            tasks_from_lines::arguments_from_lines(&read_text(file)?)
                .with_context(|| display_name(file))?,
        ),
        (None, count) => Tasks::Count(count.unwrap_or(1)),
    };
    let common = &arguments.common;
    let mut job = JobSubmission {
        name: common.name.clone(),
        class: common.class.clone(),
        queue: common.queue.clone(),
        pool: common.pool.clone(),
        priority: common.priority,
        command: arguments.command.clone(),
        tasks,
        environment: common.program.variables()?,
        working_directory: common.program.working_directory()?,
        size: common.size(),
        max_processes: arguments.max_processes,
        threads: arguments.threads,
        machines: common.machines.clone(),
        labels: common.labels.iter().cloned().collect(),
        when_unreachable: arguments.disruption.when_unreachable,
        disruption_limit: arguments.disruption.disruption_limit,
        ..JobSubmission::default()
    };
    arguments.retry.fill(&mut job);
    arguments.run.fill(&mut job)?;
    Ok(job)
}

/// Submits the content of a file. Its kind is `default_kind` unless the file names one.
pub async fn submit_file(
    session: &Session,
    file: &Path,
    default_kind: DocumentKind,
    after: &AfterSubmit,
) -> anyhow::Result<ExitCode> {
    match &read_document(file, default_kind)? {
        Document::Job(job) => send(session, "jobs", job, after).await,
        Document::Service(service) => send(session, "services", service, after).await,
        Document::Reservation(reservation) => {
            send(session, "reservations", reservation, after).await
        }
    }
}

/// Reads a submission from a file. Its kind is `default_kind` unless the file names one.
pub fn read_document(file: &Path, default_kind: DocumentKind) -> anyhow::Result<Document> {
    Document::read(&read_text(file)?, default_kind).with_context(|| display_name(file))
}

/// Sends a submission to its route, prints its id, and waits if requested.
pub async fn send<T: Serialize>(
    session: &Session,
    route: &str,
    body: &T,
    after: &AfterSubmit,
) -> anyhow::Result<ExitCode> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let new_key = fresh_uuid().simple().to_string();
    let key = after.idempotency_key.as_deref().unwrap_or(&new_key);
    let response: serde_json::Value = client
        .post(&format!("/v1/{route}"), body, Some(key))
        .await?;
    let submitted: Submitted = parse_response(response.clone())?;
    let id = &submitted.id;
    if session.out.json {
        if !after.wait {
            session.out.json(&response)?;
        }
    } else {
        print(&format!("{id}\n"))?;
    }
    if !after.wait {
        if !after.quiet && !session.out.json {
            note(&format!("see it with: hayward watch {id}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Services and reservations never end by themselves.
    let until = if route == "jobs" {
        Until::Ended
    } else {
        Until::Running
    };
    let view = watch::follow(&client, id, until).await?;
    let exit_code = if after.quiet && !session.out.json {
        watch::exit_code(&view)
    } else {
        watch::report_end(session, &client, &view).await?
    };
    if route == "jobs" && view.tasks.is_some_and(|tasks| tasks.total == 1) {
        let status = exit_status::read_exit_status(&client, &view).await;
        return Ok(ExitCode::from(status));
    }
    Ok(exit_code)
}

/// Reads a file, or standard input for `-`.
pub fn read_text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let content = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else if file.is_dir() {
        bail!("{} is a directory", file.display());
    } else {
        std::fs::read_to_string(file)
    };
    let content = content.with_context(|| format!("cannot read {}", display_name(file)))?;
    // Some editors begin a file with a byte order mark.
    Ok(content
        .strip_prefix('\u{feff}')
        .map_or(content.clone(), str::to_owned))
}

/// Returns the name of a file in messages.
pub fn display_name(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}
