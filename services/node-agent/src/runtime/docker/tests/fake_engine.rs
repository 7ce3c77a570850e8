//! A fake container engine on a socket. It can misbehave.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Made,
    Runs,
    Over(i64),
}

#[derive(Debug, Clone)]
pub struct Made {
    pub name: String,
    pub stage: Stage,
    pub out_of_memory: bool,
    pub labels: Value,
    pub body: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    Has,
    HasNot,
    Fails,
}

/// Misbehaviour of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    /// The engine accepts requests and answers none.
    Hangs,
    /// The engine sends invalid responses.
    Babbles,
    /// The engine starts containers without answering.
    StartsInSilence,
    /// The engine neither starts containers nor answers.
    StartsNothing,
    /// The engine has the image but cannot start the program.
    RefusesStart,
}

#[derive(Debug, Clone, Default)]
pub struct EngineState {
    pub mood: Mood,
    pub containers: BTreeMap<String, Made>,
    /// Missing images, and the response of their registry.
    pub missing: HashMap<String, Registry>,
    pub starts: u32,
    pub pulls: u32,
    pub output: Vec<(String, String)>,
    next: u32,
}

#[derive(Clone)]
pub struct FakeEngine(pub Arc<watch::Sender<EngineState>>);

impl FakeEngine {
    pub fn new() -> Self {
        Self(Arc::new(watch::channel(EngineState::default()).0))
    }

    pub fn listen(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
    }

    pub fn change(&self, change: impl FnOnce(&mut EngineState)) {
        self.0.send_modify(change);
    }

    pub fn read<T>(&self, read: impl FnOnce(&EngineState) -> T) -> T {
        read(&self.0.borrow())
    }

    pub async fn until(&self, what: impl FnMut(&EngineState) -> bool) {
        self.0.subscribe().wait_for(what).await.unwrap();
    }

    /// Ends all running containers with this exit code.
    pub fn end_all(&self, code: i64) {
        self.change(|state| {
            for made in state.containers.values_mut() {
                if made.stage == Stage::Runs {
                    made.stage = Stage::Over(code);
                }
            }
        });
    }

    /// Adds a container of another owner.
    pub fn plant(&self, id: &str, labels: Value) {
        let made = Made {
            name: id.to_owned(),
            stage: Stage::Runs,
            out_of_memory: false,
            labels,
            body: Value::Null,
        };
        self.change(|state| drop(state.containers.insert(id.to_owned(), made)));
    }
}

async fn answer(
    State(engine): State<FakeEngine>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    match engine.read(|state| state.mood) {
        Mood::Hangs => std::future::pending().await,
        Mood::Babbles => return "[1, 2".into_response(),
        _ => {}
    }
    let parts: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty() && !part.starts_with("v1."))
        .collect();
    let query = uri.query().unwrap_or_default();
    match (method.as_str(), parts.as_slice()) {
        (_, ["_ping"]) => "OK".into_response(),
        (_, ["version"]) => reported(200, &json!({"ApiVersion": "1.41", "Version": "20"})),
        ("POST", ["containers", "create"]) => engine.create(query, &body),
        ("POST", ["images", "create"]) => engine.pull(query),
        ("GET", ["containers", "json"]) => engine.list(query),
        ("GET", ["containers", id, "json"]) => engine.inspect(id),
        ("POST", ["containers", id, "start"]) => engine.start(id).await,
        ("POST", ["containers", id, "stop"]) => engine.stop(id),
        ("POST", ["containers", id, "wait"]) => engine.wait(id).await,
        ("GET", ["containers", id, "logs"]) => engine.logs(id).await,
        ("DELETE", ["containers", id]) => engine.remove(id),
        _ => refusal(500, "no such question"),
    }
}

fn reported(status: u16, body: &Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

fn refusal(status: u16, message: &str) -> Response {
    reported(status, &json!({"message": message}))
}

fn key(state: &EngineState, id_or_name: &str) -> Option<String> {
    let mut all = state.containers.iter();
    all.find(|(id, made)| id.as_str() == id_or_name || made.name == id_or_name)
        .map(|(id, _)| id.clone())
}

impl FakeEngine {
    fn create(&self, query: &str, body: &Bytes) -> Response {
        let name = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("name="))
            .unwrap();
        let body: Value = serde_json::from_slice(body).unwrap();
        let image = body["Image"].as_str().unwrap().to_owned();
        if self.read(|state| state.missing.contains_key(&image)) {
            return refusal(404, &format!("No such image: {image}"));
        }
        if self.read(|state| key(state, name)).is_some() {
            return refusal(409, "Conflict. The container name is already in use");
        }
        let mut id = String::new();
        self.change(|state| {
            state.next += 1;
            id = format!("c{}", state.next);
            let made = Made {
                name: name.to_owned(),
                stage: Stage::Made,
                out_of_memory: false,
                labels: body["Labels"].clone(),
                body,
            };
            state.containers.insert(id.clone(), made);
        });
        reported(201, &json!({"Id": id, "Warnings": []}))
    }

    fn pull(&self, query: &str) -> Response {
        let image = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fromImage="));
        let image = image.unwrap().replace("%2F", "/").replace("%3A", ":");
        self.change(|state| state.pulls += 1);
        match self.read(|state| state.missing.get(&image).copied()) {
            Some(Registry::HasNot) => refusal(404, "manifest unknown"),
            Some(Registry::Fails) => refusal(500, "connection refused"),
            Some(Registry::Has) | None => {
                self.change(|state| state.missing.retain(|missing, _| *missing != image));
                reported(200, &json!({"status": "done"}))
            }
        }
    }

    fn list(&self, query: &str) -> Response {
        assert!(
            query.contains("all=true") && query.contains("hayward.node"),
            "{query}"
        );
        let all: Vec<Value> = self.read(|state| {
            let labelled = |made: &Made| made.labels.get("hayward.node") == Some(&json!("node-1"));
            let mine = state.containers.iter().filter(|(_, made)| labelled(made));
            mine.map(|(id, made)| json!({"Id": id, "Labels": made.labels}))
                .collect()
        });
        reported(200, &json!(all))
    }

    fn inspect(&self, id: &str) -> Response {
        let found = self.read(|state| {
            let id = key(state, id)?;
            let made = state.containers[&id].clone();
            Some((id, made))
        });
        let Some((id, made)) = found else {
            return refusal(404, "No such container");
        };
        let at = "2026-11-21T21:00:00.5Z";
        let (status, started, code) = match made.stage {
            Stage::Made => ("created", "0001-01-01T00:00:00Z", 0),
            Stage::Runs => ("running", at, 0),
            Stage::Over(code) => ("exited", at, code),
        };
        let state = json!({
            "Status": status, "Pid": 4242, "StartedAt": started, "FinishedAt": at,
            "ExitCode": code, "OOMKilled": made.out_of_memory, "Error": "",
        });
        reported(
            200,
            &json!({"Id": id, "State": state, "Config": {"Labels": made.labels}}),
        )
    }

    async fn start(&self, id: &str) -> Response {
        self.change(|state| state.starts += 1);
        match self.read(|state| state.mood) {
            Mood::StartsNothing => return std::future::pending().await,
            Mood::RefusesStart => return refusal(400, "OCI runtime create failed: no such file"),
            _ => {}
        }
        self.change(|state| {
            if let Some(id) = key(state, id) {
                state.containers.get_mut(&id).unwrap().stage = Stage::Runs;
            }
        });
        if self.read(|state| state.mood) == Mood::StartsInSilence {
            return std::future::pending().await;
        }
        StatusCode::NO_CONTENT.into_response()
    }

    fn stop(&self, id: &str) -> Response {
        self.change(|state| {
            if let Some(id) = key(state, id) {
                state.containers.get_mut(&id).unwrap().stage = Stage::Over(143);
            }
        });
        StatusCode::NO_CONTENT.into_response()
    }

    async fn over(&self, id: &str) {
        let runs = |state: &EngineState| {
            let made = key(state, id).map(|id| state.containers[&id].stage);
            matches!(made, Some(Stage::Runs))
        };
        self.until(|state| !runs(state)).await;
    }

    async fn wait(&self, id: &str) -> Response {
        self.over(id).await;
        reported(200, &json!({"StatusCode": 0}))
    }

    async fn logs(&self, id: &str) -> Response {
        self.over(id).await;
        let mut frames = Vec::new();
        for (at, text) in self.read(|state| state.output.clone()) {
            let text = format!("{at} {text}");
            frames.extend_from_slice(&[1, 0, 0, 0]);
            frames.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            frames.extend_from_slice(text.as_bytes());
        }
        frames.into_response()
    }

    fn remove(&self, id: &str) -> Response {
        let mut removed = false;
        self.change(|state| {
            removed = key(state, id).is_some_and(|id| state.containers.remove(&id).is_some());
        });
        if removed {
            StatusCode::NO_CONTENT.into_response()
        } else {
            refusal(404, "No such container")
        }
    }
}
