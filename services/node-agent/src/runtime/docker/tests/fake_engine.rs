//! A fake container engine on a socket, with the part of the Docker API that the agent uses. Tests
//! can make the engine misbehave.

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

/// Process id of every container.
pub const PID: u32 = 4242;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Created,
    Running,
    Ended(i64),
}

#[derive(Debug, Clone)]
pub struct FakeContainer {
    pub name: String,
    pub stage: Stage,
    pub out_of_memory: bool,
    pub labels: Value,
    pub body: Value,
}

/// Response of a registry to a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    Found,
    NotFound,
    Fails,
}

/// Misbehaviour of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behaviour {
    #[default]
    Normal,
    /// The engine accepts requests and answers none.
    Hangs,
    /// The engine sends invalid responses.
    InvalidResponses,
    /// The engine starts containers without answering.
    StartsWithoutResponse,
    /// The engine neither starts containers nor answers.
    IgnoresStart,
    /// The engine has the image but cannot start the program.
    RefusesStart,
}

#[derive(Debug, Clone, Default)]
pub struct EngineState {
    pub behaviour: Behaviour,
    pub containers: BTreeMap<String, FakeContainer>,
    /// Missing images, and the response of their registry.
    pub missing: HashMap<String, Registry>,
    /// Number of start requests.
    pub starts: u32,
    /// Number of pull requests.
    pub pulls: u32,
    /// Output of every container, as timestamps and text.
    pub output: Vec<(String, String)>,
    /// Number of created containers, which gives the next id.
    created_count: u32,
}

#[derive(Clone)]
pub struct FakeEngine(pub Arc<watch::Sender<EngineState>>);

impl FakeEngine {
    pub fn new() -> Self {
        Self(Arc::new(watch::channel(EngineState::default()).0))
    }

    pub fn listen(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let router = Router::new().fallback(respond).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
    }

    pub fn change(&self, change: impl FnOnce(&mut EngineState)) {
        self.0.send_modify(change);
    }

    pub fn read<T>(&self, read: impl FnOnce(&EngineState) -> T) -> T {
        read(&self.0.borrow())
    }

    pub async fn wait_until(&self, condition: impl FnMut(&EngineState) -> bool) {
        self.0.subscribe().wait_for(condition).await.unwrap();
    }

    /// Ends all running containers with this exit code.
    pub fn end_all(&self, code: i64) {
        self.change(|state| {
            for container in state.containers.values_mut() {
                if container.stage == Stage::Running {
                    container.stage = Stage::Ended(code);
                }
            }
        });
    }

    /// Adds a running container with these labels. The id is also its name.
    pub fn add_container(&self, id: &str, labels: Value) {
        let container = FakeContainer {
            name: id.to_owned(),
            stage: Stage::Running,
            out_of_memory: false,
            labels,
            body: Value::Null,
        };
        self.change(|state| drop(state.containers.insert(id.to_owned(), container)));
    }
}

async fn respond(
    State(engine): State<FakeEngine>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    match engine.read(|state| state.behaviour) {
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::InvalidResponses => return "[1, 2".into_response(),
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
        (_, ["version"]) => json_response(200, &json!({"ApiVersion": "1.41", "Version": "20"})),
        ("POST", ["containers", "create"]) => engine.create(query, &body),
        ("POST", ["images", "create"]) => engine.pull(query),
        ("GET", ["containers", "json"]) => engine.list(query),
        ("GET", ["containers", id, "json"]) => engine.inspect(id),
        ("POST", ["containers", id, "start"]) => engine.start(id).await,
        ("POST", ["containers", id, "stop"]) => engine.stop(id),
        ("POST", ["containers", id, "wait"]) => engine.wait(id).await,
        ("GET", ["containers", id, "logs"]) => engine.logs(id).await,
        ("DELETE", ["containers", id]) => engine.remove(id),
        _ => error_response(500, "no such path"),
    }
}

fn json_response(status: u16, body: &Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

fn error_response(status: u16, message: &str) -> Response {
    json_response(status, &json!({"message": message}))
}

fn find_id(state: &EngineState, id_or_name: &str) -> Option<String> {
    let mut containers = state.containers.iter();
    containers
        .find(|(id, container)| id.as_str() == id_or_name || container.name == id_or_name)
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
            return error_response(404, &format!("No such image: {image}"));
        }
        if self.read(|state| find_id(state, name)).is_some() {
            return error_response(409, "Conflict. The container name is already in use");
        }
        let mut id = String::new();
        self.change(|state| {
            state.created_count += 1;
            id = format!("c{}", state.created_count);
            let container = FakeContainer {
                name: name.to_owned(),
                stage: Stage::Created,
                out_of_memory: false,
                labels: body["Labels"].clone(),
                body,
            };
            state.containers.insert(id.clone(), container);
        });
        json_response(201, &json!({"Id": id, "Warnings": []}))
    }

    fn pull(&self, query: &str) -> Response {
        let image = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fromImage="));
        let image = image.unwrap().replace("%2F", "/").replace("%3A", ":");
        self.change(|state| state.pulls += 1);
        match self.read(|state| state.missing.get(&image).copied()) {
            Some(Registry::NotFound) => error_response(404, "manifest unknown"),
            Some(Registry::Fails) => error_response(500, "connection refused"),
            Some(Registry::Found) | None => {
                self.change(|state| state.missing.retain(|missing, _| *missing != image));
                json_response(200, &json!({"status": "done"}))
            }
        }
    }

    fn list(&self, query: &str) -> Response {
        assert!(
            query.contains("all=true") && query.contains("hayward.node"),
            "{query}"
        );
        let containers: Vec<Value> = self.read(|state| {
            let labelled = |container: &FakeContainer| {
                container.labels.get("hayward.node") == Some(&json!("node-1"))
            };
            let selected = state
                .containers
                .iter()
                .filter(|(_, container)| labelled(container));
            selected
                .map(|(id, container)| json!({"Id": id, "Labels": container.labels}))
                .collect()
        });
        json_response(200, &json!(containers))
    }

    fn inspect(&self, id: &str) -> Response {
        let found = self.read(|state| {
            let id = find_id(state, id)?;
            let container = state.containers[&id].clone();
            Some((id, container))
        });
        let Some((id, container)) = found else {
            return error_response(404, "No such container");
        };
        let started_at = "2026-11-21T21:00:00.5Z";
        let (status, started, code) = match container.stage {
            Stage::Created => ("created", "0001-01-01T00:00:00Z", 0),
            Stage::Running => ("running", started_at, 0),
            Stage::Ended(code) => ("exited", started_at, code),
        };
        let state = json!({
            "Status": status, "Pid": PID, "StartedAt": started, "FinishedAt": started_at,
            "ExitCode": code, "OOMKilled": container.out_of_memory, "Error": "",
        });
        json_response(
            200,
            &json!({"Id": id, "State": state, "Config": {"Labels": container.labels}}),
        )
    }

    async fn start(&self, id: &str) -> Response {
        self.change(|state| state.starts += 1);
        match self.read(|state| state.behaviour) {
            Behaviour::IgnoresStart => return std::future::pending().await,
            Behaviour::RefusesStart => {
                return error_response(400, "OCI runtime create failed: no such file");
            }
            _ => {}
        }
        self.change(|state| {
            if let Some(id) = find_id(state, id) {
                state.containers.get_mut(&id).unwrap().stage = Stage::Running;
            }
        });
        if self.read(|state| state.behaviour) == Behaviour::StartsWithoutResponse {
            return std::future::pending().await;
        }
        StatusCode::NO_CONTENT.into_response()
    }

    fn stop(&self, id: &str) -> Response {
        self.change(|state| {
            if let Some(id) = find_id(state, id) {
                state.containers.get_mut(&id).unwrap().stage = Stage::Ended(143);
            }
        });
        StatusCode::NO_CONTENT.into_response()
    }

    async fn wait_until_ended(&self, id: &str) {
        let is_running = |state: &EngineState| {
            let stage = find_id(state, id).map(|id| state.containers[&id].stage);
            matches!(stage, Some(Stage::Running))
        };
        self.wait_until(|state| !is_running(state)).await;
    }

    async fn wait(&self, id: &str) -> Response {
        self.wait_until_ended(id).await;
        json_response(200, &json!({"StatusCode": 0}))
    }

    async fn logs(&self, id: &str) -> Response {
        self.wait_until_ended(id).await;
        let mut frames = Vec::new();
        for (timestamp, text) in self.read(|state| state.output.clone()) {
            // A frame has the number of its stream, three zeros, the length of its text in
            // big-endian order, and the text. Stream 1 is stdout.
            let text = format!("{timestamp} {text}");
            frames.extend_from_slice(&[1, 0, 0, 0]);
            frames.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            frames.extend_from_slice(text.as_bytes());
        }
        frames.into_response()
    }

    fn remove(&self, id: &str) -> Response {
        let mut removed = false;
        self.change(|state| {
            removed = find_id(state, id).is_some_and(|id| state.containers.remove(&id).is_some());
        });
        if removed {
            StatusCode::NO_CONTENT.into_response()
        } else {
            error_response(404, "No such container")
        }
    }
}
