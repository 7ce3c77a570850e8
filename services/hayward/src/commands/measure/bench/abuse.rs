//! Latency of normal clients while abusive clients are slow, idle or greedy. One service runs as a
//! process of its own: first idle, then with an eighth of the reference load, as fits a machine
//! with two processors. Normal clients send requests at a constant rate before, during and after
//! the abuse. (G13)
//!
//! Abusive clients have machines of their own in reality. Here they run on a thread of the idle
//! scheduling class, so that the measurement has their effect on the service and not their own
//! cost. A thread of lowest priority would not do: it keeps a processor to the end of its time
//! slice. The report has the number of their requests and the CPU time of the service.

mod abusive_clients;
mod normal_clients;

use std::time::Duration;

use super::environment::Environment;
use super::process::Process;
use super::real;
use super::report::Report;
use crate::fleet::Ports;
use abusive_clients::{Day, Strangers};
use normal_clients::{Habit, Took, p99};

/// Rounds of each kind of abusive clients.
const ROUNDS: usize = 3;
/// The limits of an installation. Other benchmarks switch them off.
const LIMITS: [(&str, &str); 5] = [
    ("HAYWARD_STRANGER_REQUESTS_PER_SECOND", "50"),
    ("HAYWARD_REQUESTS_PER_SECOND", "2000"),
    ("HAYWARD_REQUESTS_AT_ONCE", "64"),
    ("HAYWARD_STREAMS_AT_ONCE", "16"),
    ("HAYWARD_PROCESSOR_PERCENT_EACH", "12"),
];

pub async fn measure(seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let ground = Environment::open(&[], "greedy").await?;
    let span = Duration::from_secs(seconds.max(1));
    let result = async {
        let habits = normal_clients::alone(&ground)?;
        let load = "an idle service";
        on_a_service(&ground, (load, habits), span, report).await?;
        let habits = normal_clients::at_an_eighth(&ground)?;
        let load = "an eighth of the reference load";
        on_a_service(&ground, (load, habits), span, report).await
    };
    let result = result.await;
    ground.database.stop().await;
    result
}

async fn on_a_service(
    ground: &Environment,
    (load, habits): (&'static str, Vec<Habit>),
    span: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let url = ground.database.urls["node_status"].clone();
    let mut settings = vec![("HAYWARD_DATABASE_URL", url)];
    settings.extend(LIMITS.map(|(name, value)| (name, value.to_owned())));
    let port = Ports::free()?.first();
    let stand = Stand {
        process: Process::start("node-status", port, ground.keys.dir(), &settings).await?,
        load,
        habits,
        span,
    };
    let result = stand.all(&ground.keys.token("user-greedy")?, report).await;
    stand.process.stop().await?;
    result
}

struct Stand {
    process: Process,
    load: &'static str,
    habits: Vec<Habit>,
    span: Duration,
}

/// Measurements of spans of the same kind.
struct Seen {
    /// Latencies by habit.
    took: Vec<Took>,
    /// CPU time of the service in milliseconds.
    cpu_ms: u64,
    /// Number of actions of the abusive clients.
    did: u64,
}

impl Seen {
    fn nothing(habits: usize) -> Self {
        Self {
            took: vec![Took::new(); habits],
            cpu_ms: 0,
            did: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        for (all, more) in self.took.iter_mut().zip(&other.took) {
            all.extend(more);
        }
        self.cpu_ms += other.cpu_ms;
        self.did += other.did;
    }

    /// Pairs of percentiles, for each habit and for all requests together. (G13)
    fn p99s(&self, there: &Self) -> anyhow::Result<Vec<(f64, f64)>> {
        let both = self.took.iter().zip(&there.took);
        let each = both.map(|(here, there)| (here.clone(), there.clone()));
        let all = (self.took.concat(), there.took.concat());
        each.chain([all])
            .map(|(mut here, mut there)| Ok((p99(&mut here)?, p99(&mut there)?)))
            .collect()
    }
}

impl Stand {
    async fn all(&self, greedy: &str, report: &mut Report) -> anyhow::Result<()> {
        let (address, habits) = (self.process.address, self.habits.clone());
        let begun = tokio::task::spawn_blocking(move || {
            habits.iter().try_for_each(|habit| habit.begin(address))
        });
        begun.await??;
        self.behave().await?;
        for strangers in Strangers::all(greedy)? {
            self.beside(strangers, report).await?;
        }
        Ok(())
    }

    /// Each round has one span with abuse between two spans without. Neighbouring rounds share a
    /// span.
    async fn beside(&self, strangers: Strangers, report: &mut Report) -> anyhow::Result<()> {
        let none = || Seen::nothing(self.habits.len());
        let (mut with, mut without) = (none(), none());
        let mut rounds = Vec::new();
        let mut before = self.behave().await?;
        for _ in 0..ROUNDS {
            let round = self.round(strangers.clone()).await?;
            let after = self.behave().await?;
            let mut around = none();
            around.add(&before);
            around.add(&after);
            rounds.push(round.p99s(&around)?);
            with.add(&round);
            without.add(&before);
            before = after;
        }
        let each = self.habits.iter().map(|habit| habit.what);
        // A single habit has no separate total.
        let all = (self.habits.len() > 1).then_some("all they ask");
        for (number, what) in each.chain(all).enumerate() {
            let mut each: Vec<_> = rounds.iter().map(|round| round[number]).collect();
            self.tell(what, &strangers, &mut each, report);
        }
        self.tell_cost(&with, &without, report);
        Ok(())
    }

    /// Reports the median round by its ratio, and the range of the others. A single round would
    /// include noise of the machine.
    fn tell(
        &self,
        habit: &str,
        strangers: &Strangers,
        rounds: &mut [(f64, f64)],
        report: &mut Report,
    ) {
        let ratio = |(abused, alone): &(f64, f64)| abused / alone.max(0.001);
        rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let [least, .., most] = rounds else {
            return;
        };
        let spread = format!("alone; {:.1} to {:.1}", ratio(least), ratio(most));
        let what = format!("{}: p99 of {habit}, beside {}", self.load, strangers.name());
        report.times(&what, rounds[rounds.len() / 2], &spread);
    }

    fn tell_cost(&self, with: &Seen, without: &Seen, report: &mut Report) {
        let seconds = self.span.as_secs() * ROUNDS as u64;
        let more = with.cpu_ms.saturating_sub(without.cpu_ms);
        let each = real(more) * 1_000.0 / real(with.did.max(1));
        let text = format!(
            "{} /s, {each:.0} µs of the service each",
            with.did / seconds
        );
        report.figure("  what they did meanwhile", text);
    }

    async fn round(&self, strangers: Strangers) -> anyhow::Result<Seen> {
        let day = Day::default();
        let clients = strangers.apart(self.process.address, day.clone())?;
        let behaviour = self.behave().await;
        day.end();
        let ended = tokio::task::spawn_blocking(move || clients.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the strangers panicked"))??;
        Ok(Seen {
            did: day.did(),
            ..behaviour?
        })
    }

    async fn behave(&self) -> anyhow::Result<Seen> {
        let before = self.process.cpu_ms()?;
        let span = self.span;
        let threads = self
            .habits
            .iter()
            .cloned()
            .map(|habit| tokio::task::spawn_blocking(move || habit.keep(span)));
        let threads: Vec<_> = threads.collect();
        let mut took = Vec::new();
        for thread in threads {
            took.push(thread.await??);
        }
        let cpu_ms = self.process.cpu_ms()? - before;
        Ok(Seen {
            took,
            cpu_ms,
            did: 0,
        })
    }
}
