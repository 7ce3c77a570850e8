//! blocklist keeps what must be avoided: which node or worker, why, until when, and whether what
//! runs there is taken off.
//!
//! It owns items, the memory of removed ones, and their history. It publishes `blocks`, which
//! rm-scheduler alone follows. It follows nobody.
//!
//! Two statements about one key merge into one item, in whatever order they arrive. An item ends by
//! itself at its end: whoever reads it tests that, and the sweep only produces the news.
//!
//! It never looks at nodes or work: a name that nobody has yet can be blocked.

mod config;
mod error;
mod http;
mod ledger;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_blocklist_api::BLOCKS;
use hayward_publication::committer;
use hayward_publication::{Committer, Publisher};
use hayward_service::clock::{Clock, SystemClock};
use hayward_service::frame::{self, Frame};
use hayward_service::health::{Health, Standing, StatusSource};
use hayward_service::openapi::{Description, documented, golden};
use hayward_service::shutdown::Shutdown;
use utoipa_axum::router::OpenApiRouter;

pub use crate::config::Settings;
use crate::http::App;
use crate::ledger::Ledger;

/// The schema of this service, and the role it works as.
pub const SCHEMA: &str = "blocklist";

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// The name of this service, of its token and of its scope.
pub const NAME: &str = "blocklist";
const ABOUT: Description = Description {
    title: "Hayward blocklist",
    text: "Keeps what must be avoided, why and until when.",
};
/// Connections to the database: one commits, the others read history.
const CONNECTIONS: u32 = 4;

/// A service that runs.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Returns after the shutdown, when every request is answered and the lease is given back.
    ///
    /// # Errors
    /// When it stopped serving for another reason.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let served = self.server.await.context("the server did not end in order");
        self.committer.stop().await;
        served?
    }

    /// Ends without giving anything back, as a crash would.
    pub fn kill(self) {
        self.server.abort();
        self.committer.kill();
    }
}

/// Starts the service; it listens when this returns.
///
/// # Errors
/// When a setting is missing or wrong, or the database or the address cannot be had.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    settings.check()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let keys = settings.frame.open_keys()?;
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock))?);
    let pool = hayward_postgres::connect(settings.frame.database_url()?, CONNECTIONS)
        .await
        .context("cannot connect to the database")?;

    let holder = format!("{NAME} {}", std::process::id());
    let lease = Duration::from_millis(settings.frame.lease_ms);
    let (committer, handle) = Committer::start::<Ledger>(
        committer::Settings::new(holder, lease),
        pool.clone(),
        &[BLOCKS],
        Arc::clone(&clock),
        Arc::new(settings.clone()),
    );
    let publisher = Arc::clone(handle.publisher());

    let app = App {
        handle,
        publisher: publisher.clone(),
        pool,
        clock,
    };
    let listener = frame::bind(&settings.frame).await?;
    let address = listener.local_addr()?;
    let health = Health::new(NAME, Arc::new(Status(publisher.clone())))
        .insecure(frame::insecure_modes(address));
    let router = documented(http::routes().with_state(app).merge(health.routes()), ABOUT);
    let server = Frame::new(NAME, Some(verifier))
        .allow_insecure(settings.frame.allow_insecure)
        .serve(router, listener, shutdown);
    Ok(Running {
        address,
        publisher,
        committer,
        server: tokio::spawn(server),
    })
}

/// The description of the API as it is kept in `openapi/blocklist.json`.
pub fn openapi() -> String {
    let health = Health::new(NAME, Arc::new(Standing::default));
    // Only the descriptions are looked at, and those need no state.
    let (_, document) = http::routes().split_for_parts();
    golden(
        OpenApiRouter::with_openapi(document).merge(health.routes()),
        ABOUT,
    )
}

/// How this replica stands, for `/readyz` and `/v1/status`.
struct Status(Arc<Publisher>);

impl StatusSource for Status {
    fn standing(&self) -> Standing {
        let leading = self.0.leading();
        Standing {
            not_ready: leading
                .as_ref()
                .err()
                .map(ToString::to_string)
                .into_iter()
                .collect(),
            epoch: leading.as_ref().ok().copied(),
            leader: leading.is_ok(),
            revision: Some(self.0.revision()),
            ..Standing::default()
        }
    }
}
