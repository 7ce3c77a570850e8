//! Measures the latency of normal clients while abusive clients are slow, idle or greedy.
//!
//! One service runs as a separate process. It is first idle, then has an eighth of the reference
//! load, which fits a machine with two CPUs. Normal clients send requests at a constant rate
//! before, during and after the abuse.
//!
//! In reality, abusive clients run on other machines. Here they run on a thread of the idle
//! scheduling class. The measurement then includes their effect on the service, but not their own
//! cost. A thread of lowest priority would not do, because it keeps a CPU to the end of its time
//! slice. The report includes the number of their requests and the CPU time of the service. (G13)

mod abusive_clients;
mod normal_clients;

use std::time::Duration;

use super::environment::Environment;
use super::process::Process;
use super::real;
use super::report::{Pair, Report};
use crate::fleet::Ports;
use abusive_clients::{AbuseRun, AbusiveClients};
use normal_clients::{Took, Workload, percentile_99};

/// Number of rounds for each kind of abusive clients.
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
    let span = Duration::from_secs(seconds.max(1));
    let result = async {
        let workloads = normal_clients::alone(&environment)?;
        let load = "an idle service";
        on_a_service(&environment, load, workloads, span, report).await?;
        let workloads = normal_clients::at_an_eighth(&environment)?;
        let load = "an eighth of the reference load";
        on_a_service(&environment, load, workloads, span, report).await
    };
    let result = result.await;
    environment.database.stop().await;
    result
}

async fn on_a_service(
    environment: &Environment,
    load: &'static str,
    workloads: Vec<Workload>,
    span: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let url = environment.database.urls["node_status"].clone();
    let mut settings = vec![("HAYWARD_DATABASE_URL", url)];
    settings.extend(LIMITS.map(|(name, value)| (name, value.to_owned())));
    let port = Ports::free()?.first();
    let bench = Bench {
        process: Process::start("node-status", port, environment.keys.dir(), &settings).await?,
        load,
        workloads,
        span,
    };
    let result = bench
        .all(&environment.keys.token("user-greedy")?, report)
        .await;
    bench.process.stop().await?;
    result
}

struct Bench {
    process: Process,
    load: &'static str,
    workloads: Vec<Workload>,
    span: Duration,
}

/// Combined measurements of periods with the same kind of load.
struct Measurement {
    /// Latencies by workload.
    took: Vec<Took>,
    /// CPU time of the service in milliseconds.
    cpu_ms: u64,
    /// Number of actions of the abusive clients.
    actions: u64,
}

impl Measurement {
    fn empty(workloads: usize) -> Self {
        Self {
            took: vec![Took::new(); workloads],
            cpu_ms: 0,
            actions: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        for (all, more) in self.took.iter_mut().zip(&other.took) {
            all.extend(more);
        }
        self.cpu_ms += other.cpu_ms;
        self.actions += other.actions;
    }

    /// Returns pairs of percentiles, for each workload and for all requests together. (G13)
    fn p99s(&self, there: &Self) -> anyhow::Result<Vec<Pair>> {
        let both = self.took.iter().zip(&there.took);
        let each = both.map(|(here, there)| (here.clone(), there.clone()));
        let all = (self.took.concat(), there.took.concat());
        each.chain([all])
            .map(|(mut here, mut there)| {
                Ok(Pair {
                    figure: percentile_99(&mut here)?,
                    baseline: percentile_99(&mut there)?,
                })
            })
            .collect()
    }
}

impl Bench {
    async fn all(&self, greedy: &str, report: &mut Report) -> anyhow::Result<()> {
        let (address, workloads) = (self.process.address, self.workloads.clone());
        let begun = tokio::task::spawn_blocking(move || {
            workloads
                .iter()
                .try_for_each(|workload| workload.begin(address))
        });
        begun.await??;
        self.normal_load().await?;
        for abusers in AbusiveClients::all(greedy)? {
            self.during_abuse(abusers, report).await?;
        }
        Ok(())
    }

    /// Measures rounds of abuse. Each round has one period with abuse between two without, and
    /// neighbouring rounds share a period.
    async fn during_abuse(
        &self,
        abusers: AbusiveClients,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let none = || Measurement::empty(self.workloads.len());
        let (mut with, mut without) = (none(), none());
        let mut rounds = Vec::new();
        let mut before = self.normal_load().await?;
        for _ in 0..ROUNDS {
            let round = self.round(abusers.clone()).await?;
            let after = self.normal_load().await?;
            let mut around = none();
            around.add(&before);
            around.add(&after);
            rounds.push(round.p99s(&around)?);
            with.add(&round);
            without.add(&before);
            before = after;
        }
        let each = self.workloads.iter().map(|workload| workload.what);
        // A single workload needs no separate total.
        let all = (self.workloads.len() > 1).then_some("all they ask");
        for (number, what) in each.chain(all).enumerate() {
            let mut each: Vec<_> = rounds.iter().map(|round| round[number]).collect();
            self.report_latency(what, &abusers, &mut each, report);
        }
        self.report_cost(&with, &without, report);
        Ok(())
    }

    /// Reports the round with the median ratio, and the range of all ratios. The result of a single
    /// round would contain noise of the machine.
    fn report_latency(
        &self,
        workload: &str,
        abusers: &AbusiveClients,
        rounds: &mut [Pair],
        report: &mut Report,
    ) {
        let ratio = |p99: &Pair| p99.figure / p99.baseline.max(0.001);
        rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let [least, .., most] = rounds else {
            return;
        };
        let spread = format!("alone; {:.1} to {:.1}", ratio(least), ratio(most));
        let what = format!(
            "{}: p99 of {workload}, beside {}",
            self.load,
            abusers.name()
        );
        report.times(&what, rounds[rounds.len() / 2], &spread);
    }

    fn report_cost(&self, with: &Measurement, without: &Measurement, report: &mut Report) {
        let seconds = self.span.as_secs() * ROUNDS as u64;
        let more = with.cpu_ms.saturating_sub(without.cpu_ms);
        let each = real(more) * 1_000.0 / real(with.actions.max(1));
        let text = format!(
            "{} /s, {each:.0} µs of the service each",
            with.actions / seconds
        );
        report.figure("  what they did meanwhile", text);
    }

    async fn round(&self, abusers: AbusiveClients) -> anyhow::Result<Measurement> {
        let run = AbuseRun::default();
        let clients = abusers.spawn(self.process.address, run.clone())?;
        let latencies = self.normal_load().await;
        run.end();
        let ended = tokio::task::spawn_blocking(move || clients.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the abusive clients panicked"))??;
        Ok(Measurement {
            actions: run.actions(),
            ..latencies?
        })
    }

    async fn normal_load(&self) -> anyhow::Result<Measurement> {
        let before = self.process.cpu_ms()?;
        let span = self.span;
        let threads = self
            .workloads
            .iter()
            .cloned()
            .map(|workload| tokio::task::spawn_blocking(move || workload.run(span)));
        let threads: Vec<_> = threads.collect();
        let mut took = Vec::new();
        for thread in threads {
            took.push(thread.await??);
        }
        let cpu_ms = self.process.cpu_ms()? - before;
        Ok(Measurement {
            took,
            cpu_ms,
            actions: 0,
        })
    }
}
