//! A ledger of numbers, and its committer.

use std::sync::Arc;
use std::time::Duration;

use hayward_postgres::Schema;
use hayward_publication::publisher::Poll;
use hayward_publication::{
    Batch, CommitError, Committed, Committer, DryRunSupport, Handle, Ledger, MIGRATOR, Moment,
    Reply, Wake, committer,
};
use hayward_service::SystemClock;
use hayward_testkit::TestDatabase;
use sqlx::{PgConnection, PgPool};

pub const NUMBERS: &str = "numbers";
pub const SCHEMA: Schema<'static> = Schema {
    name: "publication",
    migrator: &MIGRATOR,
    shared: &[],
};
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A minimal ledger: named numbers that exist only in their publication.
#[derive(Clone)]
pub struct Numbers {
    /// The last number set in this term. `None` before the first.
    last: Option<u64>,
}

pub enum Command {
    Set(String, Option<u64>, Reply<u64>),
    Panic(Reply<()>),
    Last(Reply<Option<u64>>),
}

impl Ledger for Numbers {
    type Command = Command;
    type Rows = ();
    type Context = ();

    async fn load(
        _tx: &mut PgConnection,
        _moment: &Moment,
        _context: &Arc<()>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self { last: None })
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<()>) {
        match command {
            Command::Set(key, Some(number), reply) => {
                self.last = Some(number);
                batch.publish(NUMBERS, "", &key, &number);
                batch.answer(reply, moment.revision);
            }
            Command::Set(key, None, reply) => {
                batch.withdraw(NUMBERS, "", &key);
                batch.answer(reply, moment.revision);
            }
            Command::Last(reply) => batch.answer(reply, self.last),
            Command::Panic(_reply) => panic!("a record that panics its reader"),
        }
    }

    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Set(..) => DryRunSupport::OnCopy(Box::new(self.clone())),
            Command::Panic(_) | Command::Last(_) => DryRunSupport::Unsupported,
        }
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

pub async fn pool(database: &TestDatabase) -> PgPool {
    hayward_postgres::connect(&database.url("publication"), 3)
        .await
        .expect("a connection")
}

/// Starts a committer. `holder` is the name of its replica.
pub async fn start(
    database: &TestDatabase,
    holder: &str,
    lease: Duration,
) -> (Committer, Handle<Command>) {
    let settings = committer::Settings::new("test", holder, lease);
    let clock = Arc::new(SystemClock);
    Committer::start::<Numbers>(
        settings,
        pool(database).await,
        &[NUMBERS],
        clock,
        Arc::new(()),
    )
}

pub async fn wait_until_leading(handle: &Handle<Command>) {
    let mut roles = handle.publisher().watch_role();
    let leading = roles.wait_for(|_| handle.publisher().leading().is_ok());
    tokio::time::timeout(TIMEOUT, leading)
        .await
        .expect("the replica leads in time")
        .expect("the publisher exists");
}

pub async fn set(
    handle: &Handle<Command>,
    key: &str,
    number: u64,
) -> Result<Committed<u64>, CommitError> {
    handle
        .execute(|reply| Command::Set(key.to_owned(), Some(number), reply))
        .await
}

/// Sets a number and retries until it succeeds, like a caller that gets `Unavailable`.
pub async fn set_with_retries(handle: &Handle<Command>, key: &str, number: u64) -> Committed<u64> {
    let attempt = async {
        loop {
            wait_until_leading(handle).await;
            if let Ok(committed) = set(handle, key, number).await {
                return committed;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, attempt)
        .await
        .expect("committed in time")
}

pub fn get(handle: &Handle<Command>, key: &str) -> Option<u64> {
    handle.publisher().get(NUMBERS, "", key)
}

/// Poll for a full update of all numbers.
pub const FULL_POLL: Poll<'static> = Poll {
    publication: NUMBERS,
    scope: "",
    cursor: None,
    wait: Duration::ZERO,
    trusted: true,
};
