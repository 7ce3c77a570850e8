//! Measures how many commands per second of 64 callers are published. The figure commits many
//! commands together, and the baseline commits each command alone. (D3)

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_publication::{Batch, Committer, Handle, Ledger, Moment, Reply, Wake, committer};
use hayward_service::SystemClock;
use sqlx::PgConnection;

use super::fleet::BenchFleet;
use super::report::{Comparison, Report};
use super::to_f64;

const CALLERS: u64 = 64;
/// Maximum number of commands in a grouped commit.
const GROUP_SIZE: usize = 4_096;
const PUBLICATION: &str = "bench";

/// Command that publishes a number of one caller.
struct PublishNumber {
    caller: u64,
    number: u64,
    reply: Reply<()>,
}

/// A minimal ledger with one entry for each caller. The callers change their entries repeatedly.
struct Numbers;

impl Ledger for Numbers {
    type Command = PublishNumber;
    type Rows = ();
    type Context = ();

    async fn load(
        _tx: &mut PgConnection,
        _moment: &Moment,
        _context: &Arc<()>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self)
    }

    fn apply(&mut self, command: PublishNumber, _: &Moment, batch: &mut Batch<()>) {
        batch.publish(
            PUBLICATION,
            "",
            &command.caller.to_string(),
            &command.number,
        );
        batch.answer(command.reply, ());
    }

    fn round(&mut self, _moment: &Moment, _batch: &mut Batch<()>) -> Wake {
        Wake::OnCommand
    }

    fn count_changes(_rows: &()) -> usize {
        0
    }

    async fn write(_rows: (), _tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

pub async fn measure(bench: &BenchFleet, seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let grouped = measure_rate(bench, GROUP_SIZE, seconds).await?;
    let single = measure_rate(bench, 1, seconds).await?;
    report.add_rates(
        "publishing commands, grouped",
        Comparison {
            figure: grouped,
            baseline: single,
        },
        "/s",
        "one commit each",
    );
    Ok(())
}

/// Returns the published commands per second, with at most `max_batch` commands in a commit.
async fn measure_rate(bench: &BenchFleet, max_batch: usize, seconds: u64) -> anyhow::Result<f64> {
    let pool = hayward_postgres::connect(&bench.create_scratch_database().await?, 3).await?;
    let lease = Duration::from_secs(10);
    let settings = committer::Settings {
        max_batch,
        ..committer::Settings::new("bench", "bench", lease)
    };
    let clock = Arc::new(SystemClock);
    let (committer, handle) =
        Committer::start::<Numbers>(settings, pool, &[PUBLICATION], clock, Arc::new(()));
    let mut role = handle.publisher().watch_role();
    role.wait_for(|_| handle.publisher().leading().is_ok())
        .await
        .context("the committer did not become the leader")?;
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(publish_repeatedly(handle.clone(), caller, end)))
        .collect();
    let mut commits = 0;
    for caller in callers {
        commits += caller.await?;
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    committer.stop().await;
    Ok(to_f64(commits) / elapsed_s)
}

async fn publish_repeatedly(handle: Handle<PublishNumber>, caller: u64, end: Instant) -> u64 {
    let mut commits = 0;
    while Instant::now() < end {
        let command = |reply| PublishNumber {
            caller,
            number: commits,
            reply,
        };
        if handle.execute(command).await.is_ok() {
            commits += 1;
        }
    }
    commits
}
