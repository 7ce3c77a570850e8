//! `hayward pool`: manages worker pools. The owner of a pool is an external program, which decides
//! about the size and the workers of the pool.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hayward_rm_scheduler_api::worker_pools::{
    PoolCreated, PoolList, PoolMode, PoolOrder, PoolStatus, PoolView, SizeAnswer, SizeOrder,
    StopOrder, WorkerList, WorkerSpec,
};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, UserName, WorkId};
use serde_json::{Value, json};

use crate::commands::work::submit::common_flags::CommonFlags;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::enum_text;
use crate::output::{Renderer, Table, note, parse_response};

const ROUTE: &str = "/v1/pools";
const POOL_PAGES: PageFields = PageFields {
    list: "pools",
    next: "next_cursor",
};
const WORKER_PAGES: PageFields = PageFields {
    list: "workers",
    next: "next_cursor",
};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Make a pool and print the token of its owner
    Create(Box<CreateArguments>),
    /// List pools
    List,
    /// Show one pool and its workers
    Show(IdArg),
    /// Set the number of workers of a pool
    Size(ResizeArguments),
    /// Release workers; each is replaced unless the size was lowered before
    Remove(RemoveArguments),
    /// End a pool and all its workers
    Stop(StopArguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Id of the pool.
    #[arg(value_name = "POOL")]
    pub pool: WorkId,
}

#[derive(Debug, Clone, clap::Args)]
pub struct CreateArguments {
    #[command(flatten)]
    pub common: CommonFlags,
    /// Initial number of workers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub size: u32,
    /// Number of tolerated failures of workers; -1 for any number. Default: the size.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_failed: Option<i64>,
    /// User whose share is charged. Default: the operator.
    #[arg(long, value_name = "USER")]
    pub for_user: Option<UserName>,
    /// The owner starts its own workers; Hayward stores only their numbers.
    #[arg(long, conflicts_with_all = ["size", "command"])]
    pub standalone: bool,
    /// File for the owner's token, which only you can read. Default: the token is printed.
    #[arg(long, value_name = "FILE")]
    pub owner_token: Option<PathBuf>,
    /// Program and arguments of a worker.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "standalone"
    )]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct ResizeArguments {
    /// Id of the pool.
    #[arg(value_name = "POOL")]
    pub pool: WorkId,
    /// New number of workers.
    #[arg(value_name = "N")]
    pub size: u32,
    /// Release the workers beyond this number. Without this flag no worker is released.
    #[arg(long)]
    pub release: bool,
    /// Release this worker first. May be repeated.
    #[arg(long, value_name = "WORKER", requires = "release")]
    pub unwanted: Vec<AllocationId>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct RemoveArguments {
    /// Id of the pool.
    #[arg(value_name = "POOL")]
    pub pool: WorkId,
    /// Ids of the workers.
    #[arg(value_name = "WORKER", required = true)]
    pub workers: Vec<AllocationId>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct StopArguments {
    /// Id of the pool.
    #[arg(value_name = "POOL")]
    pub pool: WorkId,
    /// Reason, stored with the pool.
    #[arg(long, value_name = "TEXT", default_value = "an operator stopped it")]
    pub because: String,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Create(create) => self::create(&session, *create).await,
        Command::List => list(&session).await,
        Command::Show(arg) => show(&session, &arg.pool).await,
        Command::Size(resize) => self::resize(&session, resize).await,
        Command::Remove(remove) => self::remove(&session, remove).await,
        Command::Stop(stop) => self::stop(&session, stop).await,
    }
}

async fn create(session: &Session, create: CreateArguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let common = create.common;
    let spec = WorkerSpec {
        command: create.command,
        environment: common.program.variables()?,
        working_directory: common.program.working_directory()?,
        size: common.size(),
        machines: common.machines,
        stop_grace_ms: None,
    };
    let program = spec.command.first().cloned();
    let request = PoolOrder {
        job_id: common
            .name
            .or(program)
            .unwrap_or_else(|| "standalone".to_owned()),
        mode: if create.standalone {
            PoolMode::Standalone
        } else {
            PoolMode::Managed
        },
        initial_size: i64::from(create.size),
        max_failed: create.max_failed,
        worker_spec: (!create.standalone).then_some(spec),
        user: create.for_user,
        class: common.class,
        reject_foreign: false,
    };
    let key = fresh_uuid().simple().to_string();
    let mut response: Value = client.post(ROUTE, &request, Some(&key)).await?;
    if let Some(file) = &create.owner_token {
        let created: PoolCreated = parse_response(response.clone())?;
        create_secret_file(file, &created.token)?;
        response["token"] = json!(format!("in {}", file.display()));
    }
    session
        .out
        .print_response(response, |created: &PoolCreated, _| {
            note("The token is for the owner of the pool, and shown this once:");
            format!("{}\n{}\n", created.pool.id, created.token)
        })
}

/// Creates a file that only its owner can read. The permissions are set at its creation. An
/// existing file is an error, because others may be able to read it.
pub fn create_secret_file(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let response = pages::read_all(&client, ROUTE, POOL_PAGES).await?;
    session
        .out
        .print_response(response, |list: &PoolList, renderer| {
            render_table(&list.pools, renderer)
        })
}

fn render_table(pools: &[PoolView], renderer: &Renderer) -> String {
    if pools.is_empty() {
        return "no worker pools\n".to_owned();
    }
    let header = [
        "pool",
        "job",
        "user",
        "size",
        "started",
        "launching",
        "requested",
        "failed",
        "owner",
        "",
    ];
    let mut table = Table::new(header).align_right(&[3, 4, 5, 6, 7]);
    for pool in pools {
        table.push_row([
            (&pool.id).into(),
            pool.job_id.as_str().into(),
            (&pool.user).into(),
            pool.designated.into(),
            pool.started.into(),
            pool.launching.into(),
            pool.requested.into(),
            pool.failed_so_far.into(),
            owner_text(pool).into(),
            state_text(pool).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the epoch of the current owner.
fn owner_text(pool: &PoolView) -> String {
    if pool.owner.bound {
        format!("epoch {}", pool.owner.epoch)
    } else {
        "none".to_owned()
    }
}

/// Describes why the pool is not at its size, or how it ended.
fn state_text(pool: &PoolView) -> String {
    if pool.status == PoolStatus::Stopped {
        let status = pool
            .final_status
            .as_ref()
            .map(enum_text)
            .unwrap_or_default();
        return format!("stopped {status}");
    }
    if pool.cooling_down {
        return "pauses: too many starts failed".to_owned();
    }
    pool.waits.clone().unwrap_or_default()
}

async fn show(session: &Session, pool: &WorkId) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let view: Value = client.get(&format!("{ROUTE}/{pool}")).await?;
    let workers =
        pages::read_all(&client, &format!("{ROUTE}/{pool}/workers"), WORKER_PAGES).await?;
    let workers: WorkerList = parse_response(workers)?;
    session
        .out
        .print_response(view, |view: &PoolView, renderer| {
            let mut text = render_table(std::slice::from_ref(view), renderer);
            for worker in &workers.workers {
                let node = worker.node.as_ref().map(ToString::to_string);
                let state = enum_text(&worker.state);
                // Writing to a string never fails.
                let _ = writeln!(text, "{}  {state}  {}", worker.id, node.unwrap_or_default());
            }
            text
        })
}

async fn resize(session: &Session, resize: ResizeArguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let request = SizeOrder {
        size: i64::from(resize.size),
        release: resize.release,
        unwanted: resize.unwanted,
    };
    let path = format!("{ROUTE}/{}/size", resize.pool);
    let response: Value = client.put(&path, &request).await?;
    session
        .out
        .print_response(response, |response: &SizeAnswer, _| {
            let SizeAnswer {
                size,
                requested_now,
                withdrawn_now,
                released,
                ..
            } = response;
            format!(
                "{size} workers wanted; {requested_now} requested, {withdrawn_now} withdrawn, {} \
             released\n",
                released.len()
            )
        })
}

async fn remove(session: &Session, remove: RemoveArguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    for worker in &remove.workers {
        let path = format!("{ROUTE}/{}/workers/{worker}", remove.pool);
        client.delete::<Option<Value>>(&path).await?;
        session
            .out
            .print_response(json!({ "removed": worker }), |_: &Value, _| {
                format!("{worker} is released\n")
            })?;
    }
    Ok(())
}

async fn stop(session: &Session, stop: StopArguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let request = StopOrder {
        message: stop.because,
        ..StopOrder::default()
    };
    let path = format!("{ROUTE}/{}/stop", stop.pool);
    let response: Value = client.post(&path, &request, None).await?;
    session.out.print_response(response, |view: &PoolView, _| {
        format!("{} is stopped\n", view.id)
    })
}
