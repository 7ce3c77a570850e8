//! What strangers who are slow, idle or greedy cost callers who behave (G13, F39, F40): one service
//! as a process of its own, which has nothing else to do, and then one with an eighth of the
//! reference load, as is due to a machine of two processors. Callers ask at an even pace for as
//! long as the strangers are there, and before and after.
//!
//! Strangers have machines of their own; here theirs is a thread that runs where nobody else wants
//! to, so that what is measured is what they take from the service, and not what making them up
//! takes from it. Merely of the lowest priority it would not do: it keeps a processor to the end of
//! its turn, milliseconds after the service has woken up. How much they did is told as well, and
//! what the service spent on it.

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

/// Of each kind of strangers.
const ROUNDS: usize = 3;
/// The limits of an installation, which benchmarks otherwise switch off.
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
    let measured = async {
        let habits = normal_clients::alone(&ground)?;
        let load = "an idle service";
        on_a_service(&ground, (load, habits), span, report).await?;
        let habits = normal_clients::at_an_eighth(&ground)?;
        let load = "an eighth of the reference load";
        on_a_service(&ground, (load, habits), span, report).await
    };
    let measured = measured.await;
    ground.database.stop().await;
    measured
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
    let measured = stand.all(&ground.keys.token("user-greedy")?, report).await;
    stand.process.stop().await?;
    measured
}

struct Stand {
    process: Process,
    load: &'static str,
    habits: Vec<Habit>,
    span: Duration,
}

/// What was seen in some spans of the same kind.
struct Seen {
    /// By habit.
    took: Vec<Took>,
    /// What the service spent.
    cpu_ms: u64,
    /// What strangers did.
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

    /// Of each habit, here and there; and of all they did, which is what G13 speaks of.
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

    /// Each round is one with them between two without, which is the one before the next as well.
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
        // Where they do one thing, that is all.
        let all = (self.habits.len() > 1).then_some("all they ask");
        for (number, what) in each.chain(all).enumerate() {
            let mut each: Vec<_> = rounds.iter().map(|round| round[number]).collect();
            self.tell(what, &strangers, &mut each, report);
        }
        self.tell_cost(&with, &without, report);
        Ok(())
    }

    /// The middle one of some rounds by its ratio, and how far the others are from it: a single one
    /// says as much of this machine's other business.
    fn tell(
        &self,
        habit: &str,
        strangers: &Strangers,
        rounds: &mut [(f64, f64)],
        report: &mut Report,
    ) {
        let ratio = |(beside, alone): &(f64, f64)| beside / alone.max(0.001);
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
        let told = format!(
            "{} /s, {each:.0} µs of the service each",
            with.did / seconds
        );
        report.figure("  what they did meanwhile", told);
    }

    async fn round(&self, strangers: Strangers) -> anyhow::Result<Seen> {
        let day = Day::default();
        let crowd = strangers.apart(self.process.address, day.clone())?;
        let seen = self.behave().await;
        day.end();
        let ended = tokio::task::spawn_blocking(move || crowd.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the strangers panicked"))??;
        Ok(Seen {
            did: day.did(),
            ..seen?
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
