//! Starts a service: database, committer, followers, routes and server, in this order.
//!
//! The `lib.rs` of a service supplies what differs: its publications, its neighbours, the state of
//! its handlers and its routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Method;
use hayward_service::auth::Keys;
use hayward_service::client::{Client, TokenSource};
use hayward_service::config::ServerSettings;
use hayward_service::health::{Health, ServiceState};
use hayward_service::http::openapi::{Description, documented, golden};
use hayward_service::http::server::{self, Server};
use hayward_service::invariants::InvariantMonitor;
use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use utoipa_axum::router::OpenApiRouter;

use crate::changes::Feed;
use crate::follower::{Source, follow};
use crate::invariants::{Findings, LedgerSource};
use crate::{
    Committer, DatabaseClock, Handle, Ledger, Publisher, Reply, Update, audit, changes, committer,
    min_revision, stale_responses, status,
};

/// The fixed properties of a service.
pub struct ServiceSpec {
    /// Name of the service, of its token and of its scope.
    pub name: &'static str,
    pub about: Description,
    pub feed: Feed,
    pub migrator: &'static Migrator,
    pub publications: &'static [&'static str],
}

impl ServiceSpec {
    /// Opens keys and database, and binds the address.
    ///
    /// # Errors
    /// When a setting is missing or wrong, or the database or the address is not available.
    pub async fn open(
        &'static self,
        settings: &ServerSettings,
        connections: u32,
        shutdown: Shutdown,
    ) -> anyhow::Result<OpenService> {
        let keys = settings.open_keys()?;
        let pool = hayward_postgres::connect(settings.database_url()?, connections).await?;
        let clock: Arc<dyn Clock> = DatabaseClock::start(&pool, &shutdown).await?;
        let listener = server::bind(settings)?;
        let address = listener
            .local_addr()
            .context("the listener has no address")?;
        Ok(OpenService {
            spec: self,
            settings: settings.clone(),
            keys,
            pool,
            clock,
            address,
            listener,
            background: shutdown.child(),
            shutdown,
        })
    }

    /// Returns the description of the API. The golden file in `openapi/` has the same text.
    pub fn openapi<S: Clone + Send + Sync + 'static>(&self, routes: OpenApiRouter<S>) -> String {
        let health = Health::new(self.name, Arc::new(ServiceState::default));
        // A description needs no state.
        let (_, document) = routes.split_for_parts();
        let routes = OpenApiRouter::with_openapi(document)
            .merge(health.routes())
            .merge(InvariantMonitor::without_source(self.name).routes())
            .merge(audit::openapi_routes(self.name))
            .merge(changes::openapi_routes(self.feed));
        golden(routes, self.about)
    }
}

/// A service with a database and an address, before it tries to lead.
pub struct OpenService {
    spec: &'static ServiceSpec,
    settings: ServerSettings,
    pub keys: Keys,
    pub pool: PgPool,
    pub clock: Arc<dyn Clock>,
    address: SocketAddr,
    listener: TcpListener,
    shutdown: Shutdown,
    background: Shutdown,
}

impl OpenService {
    pub fn start_committer<L: Ledger>(self, context: Arc<L::Context>) -> Service<L::Command> {
        let name = self.spec.name;
        let holder = format!("{name} {} {}", self.address, std::process::id());
        let lease = Duration::from_millis(self.settings.lease_ms);
        let (committer, handle) = Committer::start::<L>(
            committer::Settings::new(name, holder, lease),
            self.pool.clone(),
            self.spec.publications,
            Arc::clone(&self.clock),
            context,
        );
        Service {
            opened: self,
            committer,
            handle,
            open_routes: Vec::new(),
        }
    }
}

/// A service with a committer, before it serves.
pub struct Service<C> {
    opened: OpenService,
    committer: Committer,
    pub handle: Handle<C>,
    open_routes: Vec<(Method, &'static str)>,
}

impl<C: Send + 'static> Service<C> {
    pub fn pool(&self) -> PgPool {
        self.opened.pool.clone()
    }

    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.opened.clock)
    }

    pub fn publisher(&self) -> Arc<Publisher> {
        Arc::clone(self.handle.publisher())
    }

    /// Returns the shutdown of background tasks, such as followers and sweepers. It begins when the
    /// service ends.
    pub fn background(&self) -> Shutdown {
        self.opened.background.clone()
    }

    /// Creates a client of a neighbour. `urls` is a comma-separated list.
    ///
    /// # Errors
    /// When the list has no valid address.
    pub fn client(&self, urls: &str) -> anyhow::Result<Client> {
        let token = self.opened.keys.token_path(self.opened.spec.name);
        Client::from_list(urls, TokenSource::file(token))
    }

    /// Follows a publication of a neighbour. Each update becomes one command.
    pub fn follow<T: DeserializeOwned + Send + 'static>(
        &self,
        neighbour: &Client,
        publication: &'static str,
        command: fn(Update<T>, Reply<()>) -> C,
    ) {
        let source = Source {
            name: publication,
            path: format!("/v1/{publication}/publication"),
        };
        let handle = self.handle.clone();
        let absorb = move |update| {
            let handle = handle.clone();
            async move { handle.execute(|reply| command(update, reply)).await }
        };
        let (client, publisher) = (neighbour.clone(), self.publisher());
        tokio::spawn(follow(source, client, publisher, self.background(), absorb));
    }

    /// Lets a route accept requests without a token. Its handler checks another proof.
    #[must_use]
    pub fn open_route(mut self, method: Method, route: &'static str) -> Self {
        self.open_routes.push((method, route));
        self
    }

    /// Serves `routes` and the common routes of every service: health, invariants, audit and
    /// changes.
    ///
    /// # Errors
    /// When the settings of the server are not usable.
    pub fn serve(
        self,
        routes: OpenApiRouter,
        invariants: fn(Reply<Findings>) -> C,
    ) -> anyhow::Result<Running> {
        let (publisher, opened) = (self.publisher(), self.opened);
        let ServiceSpec {
            name,
            about,
            feed,
            migrator,
            ..
        } = opened.spec;
        let source = LedgerSource {
            handle: self.handle.clone(),
            command: invariants,
        };
        let monitor = InvariantMonitor::new(name, source);
        monitor.spawn(opened.background.clone());
        let state = Arc::clone(&publisher);
        let state = move || status::service_state(&state);
        let health = Health::new(name, Arc::new(state))
            .with_schema(hayward_postgres::newest_version(migrator));
        let routes = routes
            .merge(health.routes())
            .merge(monitor.routes())
            .merge(audit::routes(&self.handle, name))
            .merge(changes::routes(&publisher, *feed));
        let router = documented(routes, *about);
        let router = min_revision::wait_for_min_revision(router, &publisher);
        let router = stale_responses::mark_stale(router, &publisher);
        let verifier = Arc::new(opened.keys.verifier(opened.clock)?);
        let mut server = Server::new(name, Some(verifier))
            .configure(&opened.settings)?
            .observe_refusals(Arc::clone(self.handle.auditor()) as _);
        for (method, route) in self.open_routes {
            server = server.open_route(method, route);
        }
        Ok(Running {
            address: opened.address,
            publisher,
            committer: self.committer,
            server: tokio::spawn(server.serve(router, opened.listener, opened.shutdown)),
            background: opened.background,
            on_stop: None,
        })
    }
}

/// A running service.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: JoinHandle<anyhow::Result<()>>,
    background: Shutdown,
    on_stop: Option<Box<dyn FnOnce() + Send>>,
}

impl Running {
    /// Sets a hook that runs after the server has ended and before the last commit.
    #[must_use]
    pub fn on_stop(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.on_stop = Some(Box::new(hook));
        self
    }

    /// Returns after the shutdown, when every request is answered and the lease is released.
    ///
    /// # Errors
    /// If the server ended for another reason.
    pub async fn wait_until_stopped(self) -> anyhow::Result<()> {
        let result = self.server.await.context("the server did not end in order");
        if let Some(hook) = self.on_stop {
            hook();
        }
        self.background.begin();
        self.committer.stop().await;
        result?
    }

    /// Ends the service like a crash: no further commit follows, and the lease expires.
    pub fn kill(self) {
        self.server.abort();
        self.background.begin();
        self.committer.kill();
    }
}
