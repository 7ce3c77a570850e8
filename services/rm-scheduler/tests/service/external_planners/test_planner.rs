//! A planner over HTTP whose answers a test chooses.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode, header};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The answer of a planner: status, an additional header, and body.
type Answers = Box<dyn Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send>;

#[derive(Clone)]
pub struct TestPlanner {
    pub url: String,
    state: Arc<TestPlannerState>,
}

struct TestPlannerState {
    answers: Mutex<Answers>,
    /// Does not answer while true.
    hangs: Mutex<bool>,
    questions: Mutex<Vec<Value>>,
}

impl TestPlanner {
    pub async fn start(answers: impl Fn(&Value) -> Value + Send + 'static) -> Self {
        let state = Arc::new(TestPlannerState {
            answers: Mutex::new(Box::new(|_| (StatusCode::OK, None, Vec::new()))),
            hangs: Mutex::new(false),
            questions: Mutex::new(Vec::new()),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/plan", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/plan", post(answer))
            .with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let planner = Self { url, state };
        planner.answers_with(answers);
        planner
    }

    pub fn answers_with(&self, answers: impl Fn(&Value) -> Value + Send + 'static) {
        self.answers_raw(move |ask| {
            let body = serde_json::to_vec(&answers(ask)).unwrap();
            (StatusCode::OK, None, body)
        });
    }

    pub fn answers_raw(
        &self,
        answers: impl Fn(&Value) -> (StatusCode, Option<String>, Vec<u8>) + Send + 'static,
    ) {
        *self.state.hangs.lock() = false;
        *self.state.answers.lock() = Box::new(answers);
    }

    pub fn hangs(&self) {
        *self.state.hangs.lock() = true;
    }

    pub fn question_count(&self) -> usize {
        self.state.questions.lock().len()
    }

    pub fn first_question(&self) -> Value {
        self.state.questions.lock()[0].clone()
    }
}

async fn answer(State(state): State<Arc<TestPlannerState>>, body: Bytes) -> Response<Body> {
    let ask: Value = serde_json::from_slice(&body).unwrap();
    state.questions.lock().push(ask.clone());
    if *state.hangs.lock() {
        std::future::pending::<()>().await;
    }
    let (status, location, body) = (state.answers.lock())(&ask);
    let mut answer = Response::builder().status(status);
    if let Some(location) = location {
        answer = answer.header(header::LOCATION, location);
    }
    answer.body(Body::from(body)).unwrap()
}

/// Grants each piece of work what it lacks, while quanta are free.
pub fn first_fit(ask: &Value) -> Value {
    let mut free: Vec<(String, u64)> = ask["nodes"]
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
    for work in ask["work"].as_array().unwrap() {
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
    json!({ "revision": ask["revision"], "grants": grants })
}

pub fn nothing(ask: &Value) -> Value {
    json!({ "revision": ask["revision"] })
}
