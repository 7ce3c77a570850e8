//! Measures the time to start containers on one real node, as processes and in a container engine.
//! It also measures the time until a restarted agent has adopted the containers of a killed agent.
//!
//! container-manager records the time of each order to start a container, and the agent records the
//! time of the start. Both times are in milliseconds, from the clock of this machine.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hayward_container_manager_api::{ContainerList, ContainerState, ContainerView};
use hayward_node_status_api::NodeView;
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_service::runtime::clock;
use hayward_service::{Client, Clock as _, Shutdown, SystemClock};
use hayward_vocabulary::{Quantum, Size};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::fleet::BenchFleet;
use super::report::{Comparison, Report};
use super::to_f64;
use crate::agents::AgentLauncher;
use crate::prepare;
use crate::remote_connection_flags::RemoteEndpoints;

/// Socket of the container engine.
const SOCKET: &str = "/var/run/docker.sock";
/// Bytes of memory of one container. The value is small, so that a node has space for many
/// containers.
const MEMORY_BYTES: u64 = 16 << 20;
/// Number of processes that start one after the other, each on an idle node.
const PROCESSES: usize = 100;
/// Number of containers with an image that start one after the other.
const IMAGES: usize = 20;
/// Number of processes that start at the same time.
const MANY_PROCESSES: usize = 100;
/// Number of containers with an image that start at the same time.
const MANY_IMAGES: usize = 20;
/// Number of containers with an image that start without Hayward, for the baseline.
const BARE_IMAGES: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(90);

pub async fn measure(image: &str, report: &mut Report) -> anyhow::Result<()> {
    let engine = check_engine(image).await;
    let shutdown = Shutdown::new();
    let socket = engine.is_ok().then(|| Path::new(SOCKET).to_owned());
    let mut bench = BenchFleet::start_with_engine(1, socket, &shutdown).await?;
    let result = measure_all(&mut bench, engine.map(|()| image), report).await;
    bench.stop(&shutdown).await?;
    result
}

/// Checks whether the image can run on this machine. Returns the reason if it cannot.
async fn check_engine(image: &str) -> Result<(), String> {
    if !Path::new(SOCKET).exists() {
        return Err(format!("skipped: no container engine at {SOCKET}"));
    }
    match run_docker(&["image", "inspect", image]).await {
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "skipped: the engine has no {image}; see docker/test-image.sh"
        )),
    }
}

async fn measure_all(
    bench: &mut BenchFleet,
    image: Result<&str, String>,
    report: &mut Report,
) -> anyhow::Result<()> {
    prepare::create_user_token(&bench.fleet.keys, "bench")?;
    set_small_quantum(bench).await?;
    let services = Services {
        jobs: bench
            .fleet
            .client(&bench.fleet.addresses.job_converter, "user-bench")?,
        containers: bench
            .fleet
            .client(&bench.fleet.addresses.container_manager, "operator")?,
    };
    let bare_us = spawn_bare_processes(PROCESSES).await?;
    let latencies = services.measure_one_by_one(PROCESSES, None).await?;
    report_latency(
        report,
        "launch order → process running",
        &latencies,
        bare_us,
        "bare spawn",
    );
    let started = services.start_all(MANY_PROCESSES, None).await?;
    report.add_rates(
        &format!("{MANY_PROCESSES} processes started at once on one node"),
        Comparison {
            figure: started.rate,
            baseline: 1000.0 * 1000.0 / bare_us,
        },
        "/s",
        "bare spawns",
    );
    measure_readoption(bench, &services, image.is_ok(), report).await?;
    services.stop(&started.service, MANY_PROCESSES).await?;
    let image = match image {
        Ok(image) => image,
        Err(reason) => {
            report.add_figure("launch order → container running, in an image", reason);
            return Ok(());
        }
    };
    let bare_us = run_bare_images(image).await?;
    let latencies = services.measure_one_by_one(IMAGES, Some(image)).await?;
    let label = "launch order → container running, in an image";
    report_latency(report, label, &latencies, bare_us, "docker run --detach");
    let started = services.start_all(MANY_IMAGES, Some(image)).await?;
    report.add_rates(
        &format!("{MANY_IMAGES} containers with an image started at once on one node"),
        Comparison {
            figure: started.rate,
            baseline: 1000.0 * 1000.0 / bare_us,
        },
        "/s",
        "docker run --detach, one by one",
    );
    services.stop(&started.service, MANY_IMAGES).await
}

/// Reports percentiles next to the mean of the baseline.
fn report_latency(
    report: &mut Report,
    label: &str,
    latencies: &[u64],
    bare_us: f64,
    baseline_name: &str,
) {
    let percentile_ms = |percent: usize| {
        let index = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
        to_f64(latencies.get(index).copied().unwrap_or(0))
    };
    for percent in [50, 99] {
        let label = format!("{label}, p{percent}");
        report.add_times(
            &label,
            Comparison {
                figure: percentile_ms(percent),
                baseline: bare_us / 1000.0,
            },
            baseline_name,
        );
    }
}

/// Sets a small quantum. A node on this machine has space for only twenty processes of the default
/// quantum.
async fn set_small_quantum(bench: &BenchFleet) -> anyhow::Result<()> {
    let client = bench
        .fleet
        .client(&bench.fleet.addresses.rm_scheduler, "operator")?;
    let mut view: PolicyView = client.get("/v1/policy").await?;
    view.policy.quantum = Quantum(Size::memory(MEMORY_BYTES));
    let call = client
        .call(Method::PUT, "/v1/policy")
        .header(http::header::IF_MATCH, &format!("\"{}\"", view.generation));
    call.body(&view.policy).send::<PolicyAnswer>().await?;
    Ok(())
}

/// Clients of the services.
struct Services {
    jobs: Client,
    containers: Client,
}

struct StartedService {
    /// Id of the service.
    service: String,
    /// Containers started per second.
    rate: f64,
}

impl Services {
    /// Submits a service with these instances. Returns its id.
    async fn submit(&self, instances: usize, image: Option<&str>) -> anyhow::Result<String> {
        let submission = json!({
            "command": ["sleep", "1000"], "instances": instances,
            "size": { "memory_bytes": MEMORY_BYTES },
            "container": image.map(|image| json!({ "image": image })),
        });
        let key = clock::fresh_uuid().to_string();
        let response: Value = self
            .jobs
            .post("/v1/services", &submission, Some(&key))
            .await?;
        let id = response["id"].as_str().context("no id of a service")?;
        Ok(id.to_owned())
    }

    /// Polls until `count` containers of the service have this state, then returns all containers
    /// of the service.
    async fn wait_for_containers(
        &self,
        service: &str,
        count: usize,
        state: ContainerState,
    ) -> anyhow::Result<Vec<ContainerView>> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let list: ContainerList = self.containers.get("/v1/containers?limit=1000").await?;
            let is_of_service = |view: &ContainerView| view.entry.work.parent().as_str() == service;
            let containers: Vec<_> = list.containers.into_iter().filter(is_of_service).collect();
            let in_state = containers.iter().filter(|view| view.entry.state == state);
            if in_state.count() >= count {
                return Ok(containers);
            }
            if Instant::now() > deadline {
                bail!("not {count} of {service} are {state:?} in time: {containers:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(&self, service: &str, count: usize) -> anyhow::Result<()> {
        let _: Value = self.jobs.delete(&format!("/v1/services/{service}")).await?;
        self.wait_for_containers(service, count, ContainerState::Ended)
            .await?;
        Ok(())
    }

    /// Starts one container after the other. Returns the milliseconds from each order to its start,
    /// sorted.
    async fn measure_one_by_one(
        &self,
        count: usize,
        image: Option<&str>,
    ) -> anyhow::Result<Vec<u64>> {
        let mut latencies = Vec::new();
        for _ in 0..count {
            let service = self.submit(1, image).await?;
            let containers = self
                .wait_for_containers(&service, 1, ContainerState::Running)
                .await?;
            let view = containers.first().context("no container")?;
            let started = view.entry.started_at.context("it runs and never started")?;
            latencies.push(started.ms_since(view.ordered_at));
            self.stop(&service, 1).await?;
        }
        latencies.sort_unstable();
        Ok(latencies)
    }

    /// Starts all containers of one service at the same time. The rate counts from the first order
    /// to the last start.
    async fn start_all(&self, count: usize, image: Option<&str>) -> anyhow::Result<StartedService> {
        let service = self.submit(count, image).await?;
        let containers = self
            .wait_for_containers(&service, count, ContainerState::Running)
            .await?;
        let first = containers.iter().map(|view| view.ordered_at).min();
        let last = containers
            .iter()
            .filter_map(|view| view.entry.started_at)
            .max();
        let (first, last) = first.zip(last).context("nothing started")?;
        let rate = to_f64(count as u64) * 1000.0 / to_f64(last.ms_since(first).max(1));
        Ok(StartedService { service, rate })
    }

    /// Returns the running containers with their process ids.
    async fn running_processes(&self) -> anyhow::Result<Vec<(String, Option<u32>)>> {
        let path = "/v1/containers?limit=1000&state=running";
        let list: ContainerList = self.containers.get(path).await?;
        let id_and_pid = |view: ContainerView| (view.entry.id.to_string(), view.pid);
        Ok(list.containers.into_iter().map(id_and_pid).collect())
    }
}

/// Kills the agent and starts it again. Measures the time until a heartbeat reports all containers.
async fn measure_readoption(
    bench: &mut BenchFleet,
    services: &Services,
    has_engine: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let before = services.running_processes().await?;
    let nodes = bench
        .fleet
        .client(&bench.fleet.addresses.node_status, "operator")?;
    let agent = bench.fleet.agents.pop().context("no agent")?;
    let node = agent.node.clone();
    let path = format!("/v1/nodes/{node}");
    let started = Instant::now();
    agent.kill().await?;
    let launcher = AgentLauncher {
        addresses: &bench.fleet.addresses,
        keys: &bench.fleet.keys,
        dir: &bench.fleet.state.dir().join("agents"),
        docker: has_engine.then(|| Path::new(SOCKET)),
        docker_mountable: &[],
        remote_endpoints: &RemoteEndpoints::default(),
        log: Stdio::null(),
    };
    let restarted_at = SystemClock.now();
    bench.fleet.agents.push(launcher.start(node, 1)?);
    loop {
        let view: NodeView = nodes.get(&path).await?;
        let heartbeat_at = SystemClock.now().minus_ms(view.heartbeat_age_ms);
        let all_reported = view.metrics.complete && view.metrics.containers >= before.len() as u64;
        if heartbeat_at > restarted_at && all_reported {
            break;
        }
        ensure!(started.elapsed() < TIMEOUT, "not adopted in time: {view:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let elapsed_ms = started.elapsed().as_millis();
    ensure!(
        services.running_processes().await? == before,
        "G4: what runs after the agent was killed is not what ran before"
    );
    report.add_figure(
        &format!(
            "agent killed → all {} processes adopted again, none restarted",
            before.len()
        ),
        format!("{elapsed_ms} ms"),
    );
    Ok(())
}

/// Starts processes one after the other, without Hayward. Returns the mean time of each in
/// microseconds.
async fn spawn_bare_processes(count: usize) -> anyhow::Result<f64> {
    let mut children = Vec::new();
    let started = Instant::now();
    for _ in 0..count {
        let mut command = Command::new("sleep");
        children.push(command.arg("1000").kill_on_drop(true).spawn()?);
    }
    let mean = to_f64(u64::try_from(started.elapsed().as_micros())?) / to_f64(count as u64);
    for mut child in children {
        child.kill().await?;
    }
    Ok(mean)
}

/// Starts containers with an image, without Hayward. Returns the mean time of each in microseconds.
async fn run_bare_images(image: &str) -> anyhow::Result<f64> {
    let mut ids = Vec::new();
    let started = Instant::now();
    for _ in 0..BARE_IMAGES {
        let arguments = [
            "run",
            "--detach",
            "--network",
            "none",
            image,
            "sleep",
            "1000",
        ];
        ids.push(run_docker(&arguments).await?);
    }
    let mean = to_f64(u64::try_from(started.elapsed().as_micros())?) / to_f64(BARE_IMAGES);
    for id in ids {
        run_docker(&["rm", "--force", id.trim()]).await?;
    }
    Ok(mean)
}

async fn run_docker(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("docker").args(arguments).output().await?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker: {message}");
    Ok(String::from_utf8(output.stdout)?)
}
