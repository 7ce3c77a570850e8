//! Measures how fast tasks of applications start on five thousand simulated nodes, over HTTP and
//! Postgres. There are few large and many small applications. A second measurement adds ten
//! thousand waiting tasks that fit on no node.

use hayward_job_converter_api::applications::{BulkTasks, NamedTask, TaskSubmission};
use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_service::Client;
use hayward_service::runtime::clock::{self, Clock as _, SystemClock};
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::resources::GIB;
use http::Method;
use http::header::IF_MATCH;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::report::{Comparison, Report};
use super::simulated_fleet::{
    SimulatedFleet, has_no_live_containers, read_order_and_start_times, wait_until,
};
use super::to_f64;

const NODES: u32 = 5_000;
/// Bytes of memory of each node. A task takes 1 GiB, and the largest shapes need space for two
/// tasks on each node.
const MEMORY_BYTES: u64 = 4 * GIB;
/// Number of requests that are sent at the same time.
const CLIENTS: usize = 32;

/// Number of applications, and number of tasks of each.
#[derive(Debug, Clone, Copy)]
struct Shape {
    applications: u64,
    tasks: u64,
}

impl Shape {
    const fn new(applications: u64, tasks: u64) -> Self {
        Self {
            applications,
            tasks,
        }
    }
}

const SHAPES: [Shape; 4] = [
    Shape::new(1, 5_000),
    Shape::new(10, 1_000),
    Shape::new(100, 100),
    Shape::new(1_000, 10),
];
/// Maximum number of tasks in one request.
const MAX_TASKS_PER_REQUEST: usize = 1_000;
/// Number of tasks that are larger than any node.
const UNPLACEABLE_TASKS: u64 = 10_000;

pub async fn measure(report: &mut Report) -> anyhow::Result<()> {
    let fleet = SimulatedFleet::start(NODES, MEMORY_BYTES).await?;
    let result = measure_shapes(&fleet, report).await;
    fleet.stop().await?;
    result
}

async fn measure_shapes(fleet: &SimulatedFleet, report: &mut Report) -> anyhow::Result<()> {
    let bench = ApplicationBenchmark {
        jobs: fleet.client(&fleet.addresses.job_converter, "user-bench")?,
        manager: fleet.client(&fleet.addresses.container_manager, "operator")?,
    };
    // Work of classes finds no node once the pool has queues, so the baseline comes first.
    let service_rate = bench.measure_service(SHAPES[0].tasks).await?;
    add_queues(fleet).await?;
    let in_bulk = |note| Variant {
        submission: Submission::InBulk,
        note,
    };
    for shape in SHAPES {
        bench
            .measure_shape(shape, in_bulk(""), service_rate, report)
            .await?;
    }
    let one_by_one = Variant {
        submission: Submission::OneByOne,
        note: ", one request each",
    };
    // Two shapes suffice to compare the two ways of submission.
    for shape in [SHAPES[0], SHAPES[1]] {
        bench
            .measure_shape(shape, one_by_one, service_rate, report)
            .await?;
    }
    let unplaceable = Shape::new(1, UNPLACEABLE_TASKS);
    let submission = Submission::InBulk;
    bench
        .submit("unplaceable", unplaceable, "1000Gi", submission)
        .await?;
    let next_to_unplaceable = in_bulk(", next to 10,000 unplaceable requests");
    for shape in SHAPES {
        bench
            .measure_shape(shape, next_to_unplaceable, service_rate, report)
            .await?;
    }
    Ok(())
}

/// Divides the nodes among two queues.
async fn add_queues(fleet: &SimulatedFleet) -> anyhow::Result<()> {
    let scheduler = fleet.client(&fleet.addresses.rm_scheduler, "operator")?;
    let view: PolicyView = scheduler.get("/v1/policy").await?;
    let mut policy = serde_json::to_value(view.policy)?;
    let queue = json!({ "submit_acl": "*" });
    policy["pools"]["default"]["queues"] = json!({ "queues": { "a": queue, "b": queue } });
    let call = scheduler
        .call(Method::PUT, "/v1/policy")
        .header(IF_MATCH, &format!("\"{}\"", view.generation));
    call.body(&policy).send::<Value>().await?;
    Ok(())
}

/// Way in which tasks are submitted.
#[derive(Debug, Clone, Copy)]
enum Submission {
    InBulk,
    OneByOne,
}

/// A kind of measurement.
#[derive(Debug, Clone, Copy)]
struct Variant {
    submission: Submission,
    /// End of the label in the report.
    note: &'static str,
}

/// Splits tasks into requests of the maximum size.
fn bulk_requests(task: &TaskSubmission, tasks: u64) -> impl Iterator<Item = BulkTasks> {
    let starts = (0..tasks).step_by(MAX_TASKS_PER_REQUEST);
    starts.map(move |start| {
        let numbers = start..tasks.min(start + MAX_TASKS_PER_REQUEST as u64);
        let named_task = |number: u64| NamedTask {
            id: number.to_string(),
            task: task.clone(),
        };
        BulkTasks {
            tasks: numbers.map(named_task).collect(),
        }
    })
}

struct ApplicationBenchmark {
    /// Client of job-converter.
    jobs: Client,
    /// Client of container-manager.
    manager: Client,
}

impl ApplicationBenchmark {
    /// Measures the containers per second of one service, from submission to the last start. This
    /// rate is the baseline of all shapes.
    async fn measure_service(&self, instances: u64) -> anyhow::Result<f64> {
        let submission = json!({ "command": ["sleep", "1000"], "instances": instances });
        let key = clock::fresh_uuid().to_string();
        let started_at = SystemClock.now();
        let created: Value = self
            .jobs
            .post("/v1/services", &submission, Some(&key))
            .await?;
        let rate = self.measure_start_rate(instances, started_at).await?;
        let id = created["id"].as_str().unwrap_or_default();
        let _: Value = self.jobs.delete(&format!("/v1/services/{id}")).await?;
        self.wait_until_empty().await?;
        Ok(rate)
    }

    async fn measure_shape(
        &self,
        shape: Shape,
        variant: Variant,
        service_rate: f64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let Shape {
            applications,
            tasks,
        } = shape;
        let Variant { submission, note } = variant;
        let name_prefix = format!("{applications}x{tasks}-{submission:?}");
        let started_at = SystemClock.now();
        self.submit(&name_prefix, shape, "1Gi", submission).await?;
        let submitted_ms = SystemClock.now().ms_since(started_at);
        let rate = self
            .measure_start_rate(applications * tasks, started_at)
            .await?;
        let label = format!("{applications} applications of {tasks} tasks{note}");
        report.add_rates(
            &label,
            Comparison {
                figure: rate,
                baseline: service_rate,
            },
            "tasks/s",
            "as one service",
        );
        let makespan_ms = to_f64(applications * tasks) * 1000.0 / rate;
        let times = format!("{makespan_ms:.0} ms, all submitted after {submitted_ms} ms");
        report.add_figure("its makespan", times);
        self.remove(&name_prefix, applications).await?;
        self.wait_until_empty().await
    }

    /// Waits until all tasks run. Returns the starts per second.
    async fn measure_start_rate(&self, tasks: u64, started_at: Timestamp) -> anyhow::Result<f64> {
        let (_, last) = wait_until("all tasks run", async || {
            read_order_and_start_times(&self.manager, tasks)
                .await
                .ok()
                .flatten()
        })
        .await?;
        Ok(to_f64(tasks) * 1000.0 / to_f64(last.ms_since(started_at).max(1)))
    }

    /// Submits applications and their tasks. Each task has this much memory.
    async fn submit(
        &self,
        name: &str,
        shape: Shape,
        memory: &str,
        submission: Submission,
    ) -> anyhow::Result<()> {
        let Shape {
            applications,
            tasks,
        } = shape;
        let queue = |app: u64| {
            if app.is_multiple_of(2) {
                "root.a"
            } else {
                "root.b"
            }
        };
        let requests = (0..applications).map(|app| {
            let path = format!("/v1/applications/{name}-{app}");
            (Method::PUT, path, json!({ "queueName": queue(app) }))
        });
        self.send_all(requests).await?;
        let task: TaskSubmission = serde_json::from_value(json!({
            "command": ["sleep", "1000"], "resources": { "memory": memory },
        }))?;
        match submission {
            // One client submits all tasks of an application with few requests.
            Submission::InBulk => {
                let requests = (0..applications)
                    .flat_map(|app| bulk_requests(&task, tasks).map(move |it| (app, it)));
                let path = |app| format!("/v1/applications/{name}-{app}/tasks");
                let requests = requests.map(|(app, bulk)| (Method::POST, path(app), bulk));
                self.send_all(requests).await
            }
            // Independent clients submit one task of each application in turn.
            Submission::OneByOne => {
                let requests =
                    (0..tasks).flat_map(|task| (0..applications).map(move |app| (app, task)));
                let path = |(app, number)| format!("/v1/applications/{name}-{app}/tasks/{number}");
                let requests = requests.map(|ids| (Method::PUT, path(ids), task.clone()));
                self.send_all(requests).await
            }
        }
    }

    /// Sends requests, at most [`CLIENTS`] at a time.
    async fn send_all<B: Serialize + Send + Sync + 'static>(
        &self,
        requests: impl Iterator<Item = (Method, String, B)>,
    ) -> anyhow::Result<()> {
        let mut pending = tokio::task::JoinSet::new();
        for (method, path, body) in requests {
            if pending.len() >= CLIENTS
                && let Some(result) = pending.join_next().await
            {
                result??;
            }
            let client = self.jobs.clone();
            pending.spawn(async move {
                let key = clock::fresh_uuid().to_string();
                let call = client.call(method, path).idempotency_key(&key);
                call.body(&body).send::<IgnoredAny>().await.map(drop)
            });
        }
        while let Some(result) = pending.join_next().await {
            result??;
        }
        Ok(())
    }

    async fn remove(&self, name: &str, apps: u64) -> anyhow::Result<()> {
        for app in 0..apps {
            let path = format!("/v1/applications/{name}-{app}?force=true");
            let _: Value = self.jobs.delete(&path).await?;
        }
        Ok(())
    }

    async fn wait_until_empty(&self) -> anyhow::Result<()> {
        wait_until("nothing runs", async || {
            has_no_live_containers(&self.manager)
                .await
                .ok()?
                .then_some(())
        })
        .await
    }
}
