//! Measures how fast one job-converter accepts jobs and leases tasks. It uses a private Postgres
//! with `fsync` on, and clients on the same machine:
//!
//! ```text
//! cargo run --release -p hayward-job-converter --example load
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_job_converter::{MIGRATOR, SCHEMA, Settings, start};
use hayward_job_converter_api::DemandEntry;
use hayward_job_converter_api::submission::{BulkSubmitted, Submitted};
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, TaskReport};
use hayward_postgres::{Schema, SharedMigrations};
use hayward_publication::Update;
use hayward_service::auth::{Groups, Keys, Scope, TokenSpec};
use hayward_service::client::{Client, TokenSource, install_crypto};
use hayward_service::config::ServerSettings;
use hayward_service::runtime::clock::{SystemClock, fresh_uuid};
use hayward_service::runtime::shutdown::Shutdown;
use hayward_vocabulary::{AllocationId, Program};
use serde_json::{Value, json};

const CLIENTS: usize = 32;
const TEST_DURATION: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    install_crypto();
    let publication = SharedMigrations {
        name: "publication",
        migrator: &hayward_publication::MIGRATOR,
    };
    let schema = Schema {
        name: SCHEMA,
        migrator: &MIGRATOR,
        shared: &[publication],
    };
    let database = hayward_testkit::database(&[schema]).await;
    let folder = tempfile::tempdir()?;
    let keys = Keys::create(folder.path().join("keys"))?;
    let token = |name: &str, scope: Scope| {
        let scopes = [scope];
        let clock = Arc::new(SystemClock);
        let spec = TokenSpec {
            subject: name,
            scopes: &scopes,
            groups: Groups::NONE,
            life_ms: 3_600_000,
            clock,
        };
        keys.write_token(name, &spec)
    };
    let service = token("job-converter", Scope::Service("job-converter".to_owned()))?;
    let user = token("ann", Scope::Submitter)?;
    let server = ServerSettings {
        database_url: Some(database.url(SCHEMA)),
        keys: Some(keys.dir().to_owned()),
        requests_per_second: 0,
        requests_at_once: 0,
        processor_percent_each: 0,
        ..ServerSettings::default()
    };
    // No process listens on the scheduler's address.
    let rm_scheduler_url = "http://127.0.0.1:9".to_owned();
    let settings = Settings {
        server,
        rm_scheduler_url,
        ..Settings::default()
    };
    let running = start(settings, Shutdown::new()).await?;
    hayward_testkit::until("a leader", async || running.publisher.leading().ok()).await;
    let url = format!("http://{}", running.address);
    let client = |token: &str| Client::new([&url], TokenSource::fixed(token));

    let job = json!({ "command": ["/bin/true"] });
    let ann = client(&user)?;
    let single = measure_rate(CLIENTS, 1, || post(ann.clone(), "/v1/jobs", job.clone())).await?;
    println!("jobs, one each, {CLIENTS} clients: {single}/s");
    let bulk = json!({ "jobs": vec![job; 1_000] });
    let many = measure_rate(4, 1_000, || post_bulk(ann.clone(), bulk.clone())).await?;
    println!("jobs, 1,000 each, 4 clients: {many}/s");

    measure_leases(&ann, &client(&service)?, client).await?;
    running.kill();
    Ok(())
}

/// Measures how fast runners of one large job lease tasks and report them.
async fn measure_leases<F>(ann: &Client, service: &Client, client: F) -> anyhow::Result<()>
where
    F: Fn(&str) -> anyhow::Result<Client>,
{
    let body = json!({ "command": ["/bin/true"], "tasks": { "count": 10_000_000 } });
    let job: Submitted = ann.post("/v1/jobs", &body, Some(&fresh_key())).await?;
    let demand: Update<DemandEntry> = service.get("/v1/demand/publication").await?;
    let entry = demand.changed.get(job.id.as_str()).context("no demand")?;
    let launch = entry.launch.as_ref().context("no launch")?;
    let Program::RunTasks { token, .. } = &launch.program else {
        anyhow::bail!("no token")
    };
    let runner = client(token)?;
    let path = format!("/v1/jobs/{}/tasks/leases", job.id);
    let tasks_per_lease = 128;
    let tasks = measure_rate(4, u64::from(tasks_per_lease), || {
        run_runner(runner.clone(), path.clone(), tasks_per_lease)
    })
    .await?;
    println!("tasks leased and reported, {tasks_per_lease} at a time, 4 runners: {tasks}/s");
    Ok(())
}

fn fresh_key() -> String {
    fresh_uuid().simple().to_string()
}

/// Measures requests per second with this many callers and `items_per_request` items per request.
async fn measure_rate<F>(
    callers: usize,
    items_per_request: u64,
    call: impl Fn() -> F,
) -> anyhow::Result<u64>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let (done, began) = (AtomicU64::new(0), Instant::now());
    let caller = || async {
        while began.elapsed() < TEST_DURATION {
            call().await?;
            done.fetch_add(items_per_request, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let all: Vec<_> = (0..callers).map(|_| caller()).collect();
    futures_util::future::try_join_all(all).await?;
    let ms = u64::try_from(began.elapsed().as_millis())?;
    Ok(done.into_inner() * 1000 / ms.max(1))
}

async fn post(client: Client, path: &str, body: Value) -> anyhow::Result<()> {
    let _: Submitted = client.post(path, &body, Some(&fresh_key())).await?;
    Ok(())
}

async fn post_bulk(client: Client, body: Value) -> anyhow::Result<()> {
    let done: BulkSubmitted = client
        .post("/v1/jobs/bulk", &body, Some(&fresh_key()))
        .await?;
    anyhow::ensure!(
        done.results.iter().all(|result| result.id.is_some()),
        "refused"
    );
    Ok(())
}

/// Runs one runner, which leases tasks and reports them as succeeded.
async fn run_runner(client: Client, path: String, want: u32) -> anyhow::Result<()> {
    let allocation = AllocationId::from_uuid(fresh_uuid());
    let mut request = LeaseRequest {
        allocation,
        want,
        finished: Vec::new(),
        returned: Vec::new(),
        slots: None,
        idle: 0,
        running: Vec::new(),
        request: 0,
        held: None,
        wait_ms: 0,
        terms: None,
        terms_version: 0,
    };
    let lease: LeaseAnswer = client.post(&path, &request, None).await?;
    request.want = 0;
    request.finished = lease
        .tasks
        .into_iter()
        .map(|task| TaskReport {
            task: task.task,
            attempt: task.attempt,
            exit_code: Some(0),
            signal: None,
            error: None,
            interrupted: false,
            end: None,
            duration_us: 1_000,
            usage: None,
            output: String::new(),
        })
        .collect();
    let _: LeaseAnswer = client.post(&path, &request, None).await?;
    Ok(())
}
