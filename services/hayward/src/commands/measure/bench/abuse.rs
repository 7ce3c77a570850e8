//! Measures the latency of normal clients while abusive clients are slow, idle or greedy.
//!
//! One service runs as a separate process. The service is first idle, then has an eighth of the
//! reference load. That load is 1,000 nodes and 500 writes per second, and an eighth of it fits a
//! machine with two CPUs. Normal clients send requests at a constant rate before, during and after
//! the abuse.
//!
//! In reality, abusive clients run on other machines. Here they run on a thread of the idle
//! scheduling class. The measurement then includes the effect of these clients on the service, but
//! not the cost of the clients themselves. Lowest priority would not be enough, because a thread of
//! lowest priority keeps a CPU to the end of its time slice. The report includes the number of
//! abusive requests and the CPU time of the service. (G13)

mod abusive_clients;
mod normal_clients;

use std::time::Duration;

use super::keys_and_database::Environment;
use super::report::{Comparison, Report};
use super::service_process::ServiceProcess;
use super::to_f64;
use crate::local_services::Ports;
use abusive_clients::{AbuseRun, AbusiveClients};
use normal_clients::{Latencies, Workload, percentile_99};

/// Number of measurement rounds for each kind of abusive clients.
const ROUNDS: usize = 3;
/// Rate limits of a usual installation. Other benchmarks switch them off.
const LIMITS: [(&str, &str); 5] = [
    ("HAYWARD_STRANGER_REQUESTS_PER_SECOND", "50"),
    ("HAYWARD_REQUESTS_PER_SECOND", "2000"),
    ("HAYWARD_REQUESTS_AT_ONCE", "64"),
    ("HAYWARD_STREAMS_AT_ONCE", "16"),
    ("HAYWARD_PROCESSOR_PERCENT_EACH", "12"),
];

pub async fn measure(seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let environment = Environment::open(&[], "greedy").await?;
    let duration = Duration::from_secs(seconds.max(1));
    let result = async {
        let workloads = normal_clients::status_workload(&environment)?;
        let load = "an idle service";
        measure_under_load(&environment, load, workloads, duration, report).await?;
        let workloads = normal_clients::eighth_of_reference_load(&environment)?;
        let load = "an eighth of the reference load";
        measure_under_load(&environment, load, workloads, duration, report).await
    };
    let result = result.await;
    environment.database.stop().await;
    result
}

async fn measure_under_load(
    environment: &Environment,
    load: &'static str,
    workloads: Vec<Workload>,
    duration: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let url = environment.database.urls["node_status"].clone();
    let mut settings = vec![("HAYWARD_DATABASE_URL", url)];
    settings.extend(LIMITS.map(|(name, value)| (name, value.to_owned())));
    let port = Ports::free()?.first();
    let bench = AbuseBenchmark {
        process: ServiceProcess::start("node-status", port, environment.keys.dir(), &settings)
            .await?,
        load,
        workloads,
        duration,
    };
    let result = bench
        .run_all(&environment.keys.token("user-greedy")?, report)
        .await;
    bench.process.stop().await?;
    result
}

/// The benchmark of one service with one kind of normal load.
struct AbuseBenchmark {
    process: ServiceProcess,
    /// Description of the normal load.
    load: &'static str,
    workloads: Vec<Workload>,
    /// Duration of one period.
    duration: Duration,
}

/// Combined measurements of periods with the same kind of load.
struct Measurement {
    /// Latencies by workload.
    latencies: Vec<Latencies>,
    /// CPU time of the service in milliseconds.
    cpu_ms: u64,
    /// Number of actions of the abusive clients.
    actions: u64,
}

impl Measurement {
    fn empty(workloads: usize) -> Self {
        Self {
            latencies: vec![Latencies::new(); workloads],
            cpu_ms: 0,
            actions: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        for (latencies, added) in self.latencies.iter_mut().zip(&other.latencies) {
            latencies.extend(added);
        }
        self.cpu_ms += other.cpu_ms;
        self.actions += other.actions;
    }

    /// Compares the 99th percentiles with the baseline, for each workload and for all requests
    /// together. (G13)
    fn compare_percentiles(&self, baseline: &Self) -> anyhow::Result<Vec<Comparison>> {
        let by_workload = self.latencies.iter().zip(&baseline.latencies);
        let by_workload = by_workload.map(|(figure, baseline)| (figure.clone(), baseline.clone()));
        let all_requests = (self.latencies.concat(), baseline.latencies.concat());
        by_workload
            .chain([all_requests])
            .map(|(mut figure, mut baseline)| {
                Ok(Comparison {
                    figure: percentile_99(&mut figure)?,
                    baseline: percentile_99(&mut baseline)?,
                })
            })
            .collect()
    }
}

impl AbuseBenchmark {
    async fn run_all(&self, greedy_token: &str, report: &mut Report) -> anyhow::Result<()> {
        let (address, workloads) = (self.process.address, self.workloads.clone());
        let warm_up = tokio::task::spawn_blocking(move || {
            workloads
                .iter()
                .try_for_each(|workload| workload.warm_up(address))
        });
        warm_up.await??;
        self.measure_normal_load().await?;
        for abusers in AbusiveClients::all_kinds(greedy_token)? {
            self.measure_abuse(abusers, report).await?;
        }
        Ok(())
    }

    /// Measures rounds of abuse. Each round has one period with abuse between two without, and
    /// neighbouring rounds share a period.
    async fn measure_abuse(
        &self,
        abusers: AbusiveClients,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let empty = || Measurement::empty(self.workloads.len());
        let (mut with_abuse, mut without_abuse) = (empty(), empty());
        let mut rounds = Vec::new();
        let mut before = self.measure_normal_load().await?;
        for _ in 0..ROUNDS {
            let round = self.measure_round(abusers.clone()).await?;
            let after = self.measure_normal_load().await?;
            let mut baseline = empty();
            baseline.add(&before);
            baseline.add(&after);
            rounds.push(round.compare_percentiles(&baseline)?);
            with_abuse.add(&round);
            without_abuse.add(&before);
            before = after;
        }
        let workload_names = self.workloads.iter().map(|workload| workload.name);
        // A single workload needs no separate total.
        let total = (self.workloads.len() > 1).then_some("all requests");
        for (number, label) in workload_names.chain(total).enumerate() {
            let mut p99s: Vec<_> = rounds.iter().map(|round| round[number]).collect();
            self.report_latency(label, &abusers, &mut p99s, report);
        }
        self.report_cost(&with_abuse, &without_abuse, report);
        Ok(())
    }

    /// Reports the round with the median ratio, and the range of all ratios. The result of a single
    /// round would contain noise of the machine.
    fn report_latency(
        &self,
        workload: &str,
        abusers: &AbusiveClients,
        rounds: &mut [Comparison],
        report: &mut Report,
    ) {
        let ratio = |p99: &Comparison| p99.figure / p99.baseline.max(0.001);
        rounds.sort_by(|left, right| ratio(left).total_cmp(&ratio(right)));
        let [min, .., max] = rounds else {
            return;
        };
        let spread = format!("alone; {:.1} to {:.1}", ratio(min), ratio(max));
        let label = format!(
            "{}: p99 of {workload}, compared with {}",
            self.load,
            abusers.name()
        );
        report.add_times(&label, rounds[rounds.len() / 2], &spread);
    }

    fn report_cost(
        &self,
        with_abuse: &Measurement,
        without_abuse: &Measurement,
        report: &mut Report,
    ) {
        let seconds = self.duration.as_secs() * ROUNDS as u64;
        let extra_cpu_ms = with_abuse.cpu_ms.saturating_sub(without_abuse.cpu_ms);
        let us_per_action = to_f64(extra_cpu_ms) * 1_000.0 / to_f64(with_abuse.actions.max(1));
        let text = format!(
            "{} /s, {us_per_action:.0} µs of the service each",
            with_abuse.actions / seconds
        );
        report.add_figure("  requests of the abusive clients", text);
    }

    /// Measures the normal load while abusive clients run.
    async fn measure_round(&self, abusers: AbusiveClients) -> anyhow::Result<Measurement> {
        let run = AbuseRun::default();
        let clients = abusers.spawn(self.process.address, run.clone())?;
        let latencies = self.measure_normal_load().await;
        run.end();
        let outcome = tokio::task::spawn_blocking(move || clients.join()).await?;
        outcome.map_err(|_| anyhow::anyhow!("the abusive clients panicked"))??;
        Ok(Measurement {
            actions: run.actions(),
            ..latencies?
        })
    }

    /// Runs all workloads for one period, each on a thread of its own.
    async fn measure_normal_load(&self) -> anyhow::Result<Measurement> {
        let before = self.process.cpu_ms()?;
        let duration = self.duration;
        let threads = self
            .workloads
            .iter()
            .cloned()
            .map(|workload| tokio::task::spawn_blocking(move || workload.run(duration)));
        let threads: Vec<_> = threads.collect();
        let mut latencies = Vec::new();
        for thread in threads {
            latencies.push(thread.await??);
        }
        let cpu_ms = self.process.cpu_ms()? - before;
        Ok(Measurement {
            latencies,
            cpu_ms,
            actions: 0,
        })
    }
}
