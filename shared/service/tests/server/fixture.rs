//! A small service with a real server, and a client that can misbehave.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use hayward_service::auth::Scope;
use hayward_service::health::{Health, ServiceState};
use hayward_service::http::deprecation::{DeprecationNotice, deprecated};
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::limits;
use hayward_service::http::server;
use hayward_service::{
    Caller, Clock, Description, Issuer, Keys, Limits, Problem, Server, ServerSettings, Shutdown,
    SystemClock, documented,
};
use hayward_vocabulary::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use utoipa_axum::router::OpenApiRouter;

/// Timeout of the tests. It is long enough for a busy node, and short enough to notice a hang.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A running server with the routes below, and an issuer of tokens that the server accepts.
pub struct Fixture {
    pub address: SocketAddr,
    pub issuer: Issuer,
    pub shutdown: Shutdown,
    pub server_task: JoinHandle<anyhow::Result<()>>,
    /// Notification that a handler has started. Handlers then wait for `release`.
    pub entered: Arc<Notify>,
    pub release: Arc<Notify>,
    dir: tempfile::TempDir,
}

#[derive(serde::Deserialize)]
pub struct Item {
    pub size: u32,
}

#[derive(serde::Deserialize)]
pub struct PollQuery {
    #[serde(default)]
    pub wait: u32,
}

#[utoipa::path(get, path = "/v1/old", responses((status = 200, description = "as ever")))]
async fn deprecated_route() -> &'static str {
    "as ever"
}

fn routes(entered: Arc<Notify>, release: Arc<Notify>) -> Router {
    Router::new()
        .route(
            "/v1/echo",
            get(|caller: Caller| async move { caller.name.clone() }),
        )
        .route(
            "/v1/items",
            post(|_: Caller, Json(items): Json<Vec<Item>>| async move {
                Json(items.iter().map(|item| item.size).sum::<u32>())
            }),
        )
        .route(
            "/v1/labels",
            post(|Json(labels): Json<BTreeMap<String, u32>>| async move {
                Json(labels.values().sum::<u32>())
            }),
        )
        .route("/v1/things/{name}", get(thing_name))
        .route(
            "/v1/bulk",
            post(|body: axum::body::Bytes| async move { body.len().to_string() })
                .layer(limits::bulk_body_limit()),
        )
        .route(
            "/v1/panic",
            get(|| async { panic!("the tea is cold") as () }),
        )
        .route(
            "/v1/careless",
            get(|| async { "a handler without a caller argument" }),
        )
        .route(
            "/v1/broken",
            get(|| async { Problem::internal(anyhow::anyhow!("secret host name")) }),
        )
        .merge(blocking_routes(entered, release))
}

/// Creates routes that wait for the test.
fn blocking_routes(entered: Arc<Notify>, release: Arc<Notify>) -> Router {
    let (poll_entered, lease_entered) = (Arc::clone(&entered), Arc::clone(&entered));
    let (work_entered, work_release) = (entered, release);
    Router::new()
        .route(
            "/v1/poll",
            get(move |Query(query): Query<PollQuery>| async move {
                poll_entered.notify_one();
                tokio::time::sleep(Duration::from_secs(query.wait.into())).await;
                "changes"
            }),
        )
        .route(
            "/v1/work",
            get(move || async move {
                work_entered.notify_one();
                work_release.notified().await;
                "done"
            }),
        )
        .route(
            "/v1/traceparent",
            get(|headers: http::HeaderMap| async move {
                Json(headers["traceparent"].to_str().unwrap().to_owned())
            }),
        )
        .route(
            "/v1/lease",
            post(move || async move {
                lease_entered.notify_one();
                std::future::pending::<()>().await;
            })
            .layer(axum::middleware::from_fn(server::long_poll)),
        )
        .route("/v1/flood", get(|| async { vec![b'x'; 64 << 20] }))
}

async fn thing_name(Path(name): Path<String>) -> String {
    name
}

pub async fn fixture(limits: Limits) -> Fixture {
    fixture_with(&ServerSettings::default(), limits).await
}

/// Creates a fixture whose server has these settings.
pub async fn fixture_with(settings: &ServerSettings, limits: Limits) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::create(dir.path()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock)).unwrap());
    let issuer = keys.issuer(clock).unwrap();
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let health = Health::new("test", Arc::new(ServiceState::default));
    let about = Description {
        title: "Test",
        text: "a service for tests",
    };
    let notice = DeprecationNotice {
        deprecated_since: 1_688_169_599,
        sunset: 1_719_791_999,
        successor: "/v1/echo",
    };
    let deprecated_routes = OpenApiRouter::default().routes(utoipa_axum::routes!(deprecated_route));
    let described_routes = health.routes().merge(deprecated(deprecated_routes, notice));
    let router = documented(described_routes, about)
        .merge(routes(Arc::clone(&entered), Arc::clone(&release)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = Server::new("test", Some(verifier))
        .configure(settings)
        .unwrap();
    let server = server.limits(limits);
    let server_task = tokio::spawn(server.serve(router, listener, shutdown.clone()));
    Fixture {
        address,
        issuer,
        shutdown,
        server_task,
        entered,
        release,
        dir,
    }
}

impl Fixture {
    pub fn keys(&self) -> Keys {
        Keys::open(self.dir.path()).unwrap()
    }

    pub fn token(&self) -> String {
        self.issuer
            .mint("ann", &[Scope::Submitter], 60_000)
            .unwrap()
    }

    /// Returns an expired token with a valid signature.
    pub fn expired_token(&self) -> String {
        let past_ms = SystemClock.now().unix_ms() - 120_000;
        let clock = hayward_service::ManualClock::new(Timestamp::from_unix_ms(past_ms));
        self.keys()
            .issuer(Arc::new(clock))
            .unwrap()
            .mint("ann", &[Scope::Submitter], 60_000)
            .unwrap()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        http_client()
            .request(method, self.url(path))
            .bearer_auth(self.token())
    }

    pub async fn get(&self, path: &str) -> reqwest::Response {
        self.request(reqwest::Method::GET, path)
            .send()
            .await
            .unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the head of a request with a valid token, without its final empty line.
    pub fn head(&self, line: &str) -> String {
        format!(
            "{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n",
            self.token()
        )
    }
}

pub fn http_client() -> reqwest::Client {
    hayward_service::client::install_crypto();
    reqwest::Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build()
        .unwrap()
}

pub async fn problem_of(response: reqwest::Response) -> (u16, Problem) {
    let status = response.status().as_u16();
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    (status, response.json().await.unwrap())
}

/// Reads until the server closes the connection.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // A reset also ends the connection, because the server may close it before it has read all our
    // bytes.
    let _ = tokio::time::timeout(TIMEOUT, read)
        .await
        .expect("the server never closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

pub async fn send_text(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Installs a subscriber that gives ids to spans, as telemetry with a collector does.
pub fn install_tracing() {
    use opentelemetry::trace::TracerProvider as _;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        opentelemetry::global::set_text_map_propagator(
            opentelemetry_sdk::propagation::TraceContextPropagator::new(),
        );
        let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
        tracing_subscriber::registry()
            .with(tracing_subscriber::filter::LevelFilter::INFO)
            .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")))
            .init();
    });
}
