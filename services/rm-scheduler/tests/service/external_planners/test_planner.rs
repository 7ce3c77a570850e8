//! An external planner for tests. Each test chooses its responses.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode, header};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Returns the response to a request: status, `Location` header if any, and body.
type Responder = Box<dyn Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send>;

/// An HTTP server that records all requests.
#[derive(Clone)]
pub struct TestPlanner {
    pub url: String,
    state: Arc<TestPlannerState>,
}

struct TestPlannerState {
    responder: Mutex<Responder>,
    /// While true, the planner accepts requests and does not respond.
    hangs: Mutex<bool>,
    requests: Mutex<Vec<Value>>,
}

impl TestPlanner {
    pub async fn start(responder: impl Fn(&Value) -> Value + Send + 'static) -> Self {
        let state = Arc::new(TestPlannerState {
            responder: Mutex::new(Box::new(|_| (StatusCode::OK, None, Vec::new()))),
            hangs: Mutex::new(false),
            requests: Mutex::new(Vec::new()),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/plan", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/plan", post(respond))
            .with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let planner = Self { url, state };
        planner.respond_with(responder);
        planner
    }

    /// Sets the responses, as JSON.
    pub fn respond_with(&self, responder: impl Fn(&Value) -> Value + Send + 'static) {
        self.respond_raw(move |request| {
            let body = serde_json::to_vec(&responder(request)).unwrap();
            (StatusCode::OK, None, body)
        });
    }

    /// Sets the responses, each with status, `Location` header if any, and body.
    pub fn respond_raw(
        &self,
        responder: impl Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send + 'static,
    ) {
        *self.state.hangs.lock() = false;
        *self.state.responder.lock() = Box::new(responder);
    }

    /// Accepts further requests and does not respond.
    pub fn hang(&self) {
        *self.state.hangs.lock() = true;
    }

    pub fn request_count(&self) -> usize {
        self.state.requests.lock().len()
    }

    pub fn first_request(&self) -> Value {
        self.state.requests.lock()[0].clone()
    }
}

async fn respond(State(state): State<Arc<TestPlannerState>>, body: Bytes) -> Response<Body> {
    let request: Value = serde_json::from_slice(&body).unwrap();
    state.requests.lock().push(request.clone());
    if *state.hangs.lock() {
        std::future::pending::<()>().await;
    }
    let (status, location, body) = (state.responder.lock())(&request);
    let mut response = Response::builder().status(status);
    if let Some(location) = location {
        response = response.header(header::LOCATION, location);
    }
    response.body(Body::from(body)).unwrap()
}

/// Responds with grants: each piece of work gets its missing processes on the first nodes with free
/// quanta.
pub fn first_fit(request: &Value) -> Value {
    let mut free: Vec<(String, u64)> = request["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["schedulable"] == true)
        .map(|node| {
            let name = node["node"].as_str().unwrap().to_owned();
            (name, node["free_quanta"].as_u64().unwrap())
        })
        .collect();
    let mut grants = Vec::new();
    for work in request["work"].as_array().unwrap() {
        let mut missing = work["missing"].as_u64().unwrap();
        let quanta = work["quanta"].as_u64().unwrap();
        for (node, free) in &mut free {
            let processes = (*free / quanta).min(missing);
            if processes > 0 {
                missing -= processes;
                *free -= processes * quanta;
                grants.push(json!({
                    "work": work["work"], "node": node, "processes": processes,
                }));
            }
        }
    }
    json!({ "revision": request["revision"], "grants": grants })
}

/// Responds without grants and vacates.
pub fn no_steps(request: &Value) -> Value {
    json!({ "revision": request["revision"] })
}
