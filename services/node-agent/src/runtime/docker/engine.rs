//! Client of a container engine on its local socket. Each call has a time limit. After a missing
//! response, the effect of a call is unknown (F31).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, ListContainersOptions, LogsOptions,
    RemoveContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::{Stream, StreamExt as _};
use parking_lot::Mutex;

use super::inspect::Inspection;

/// Timeout of the HTTP client. It is longer than all limits below.
const CLIENT_TIMEOUT_SECONDS: u64 = 86_400;

/// Time limits of calls.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Limit for calls that the engine answers at once.
    pub quick_call: Duration,
    /// Limit for creating, starting and removing a container.
    pub slow_call: Duration,
    /// Limit for pulling an image.
    pub pull: Duration,
    /// Time for which a launch waits for an engine that does not answer, before the launch fails.
    pub launch_retry: Duration,
    /// Time after a start request without a response, during which the container may still start.
    pub start_confirmation: Duration,
    /// Interval of sweeps for orphaned containers.
    pub sweep_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            quick_call: Duration::from_secs(10),
            slow_call: Duration::from_mins(1),
            pull: Duration::from_mins(10),
            launch_retry: Duration::from_secs(20),
            start_confirmation: Duration::from_secs(30),
            sweep_interval: Duration::from_secs(20),
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Fault {
    /// There is no response, or an unreadable one. The effect is unknown.
    NoResponse(String),
    /// The object does not exist.
    Missing(String),
    /// The object exists already.
    Conflict(String),
    /// The engine reports any other error.
    Refused {
        /// HTTP status.
        status: u16,
        message: String,
    },
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError {
                status_code,
                message,
            } => match status_code {
                404 => Self::Missing(message),
                409 => Self::Conflict(message),
                503 => Self::NoResponse(message),
                status => Self::Refused { status, message },
            },
            Error::DockerStreamError { error } => Self::Refused {
                status: 500,
                message: error,
            },
            other => Self::NoResponse(other.to_string()),
        }
    }
}

impl Fault {
    pub fn message(&self) -> &str {
        match self {
            Self::NoResponse(message)
            | Self::Missing(message)
            | Self::Conflict(message)
            | Self::Refused { message, .. } => message,
        }
    }
}

pub struct Engine {
    socket: PathBuf,
    /// Client of the API. It is created after the first response, which gives the version.
    client: Mutex<Option<Docker>>,
    pub limits: Limits,
}

impl Engine {
    pub fn new(socket: &Path, limits: Limits) -> Self {
        Self {
            socket: socket.to_owned(),
            client: Mutex::default(),
            limits,
        }
    }

    async fn client(&self) -> Result<Docker, Fault> {
        if let Some(client) = self.client.lock().clone() {
            return Ok(client);
        }
        let path = self.socket.to_string_lossy();
        let client = Docker::connect_with_unix(&path, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)?
            .negotiate_version()
            .await?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    async fn call<T, F>(
        &self,
        limit: Duration,
        request: impl FnOnce(Docker) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let response = async { Ok(request(self.client().await?).await?) };
        tokio::time::timeout(limit, response)
            .await
            .unwrap_or_else(|_| {
                let limit = limit.as_millis();
                Err(Fault::NoResponse(format!("no answer within {limit} ms")))
            })
    }

    /// Checks whether the engine answers.
    pub async fn ping(&self) -> Result<(), Fault> {
        self.call(self.limits.quick_call, async move |engine| {
            engine.ping().await
        })
        .await
        .map(drop)
    }

    /// Creates a container without starting it. Returns its id and warnings.
    pub async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<(String, Vec<String>), Fault> {
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        };
        let created = self
            .call(self.limits.slow_call, async move |engine| {
                engine.create_container(Some(options), body).await
            })
            .await?;
        Ok((created.id, created.warnings))
    }

    pub async fn pull(&self, image: &str) -> Result<(), Fault> {
        // Without a tag the engine would pull all tags.
        let tagged = image.contains('@')
            || image
                .rsplit('/')
                .next()
                .is_some_and(|name| name.contains(':'));
        let options = CreateImageOptions {
            from_image: Some(image.to_owned()),
            tag: (!tagged).then(|| "latest".to_owned()),
            ..CreateImageOptions::default()
        };
        self.call(self.limits.pull, async move |engine| {
            let mut progress = engine.create_image(Some(options), None, None);
            while let Some(item) = progress.next().await {
                item?;
            }
            Ok(())
        })
        .await
    }

    pub async fn start(&self, id: &str) -> Result<(), Fault> {
        self.call(self.limits.slow_call, async move |engine| {
            engine.start_container(id, None).await
        })
        .await
    }

    pub async fn inspect(&self, name: &str) -> Result<Inspection, Fault> {
        let response: ContainerInspectResponse = self
            .call(self.limits.quick_call, async move |engine| {
                engine.inspect_container(name, None).await
            })
            .await?;
        Inspection::from_response(response).ok_or_else(|| {
            Fault::NoResponse("the engine's description of a container has no state".to_owned())
        })
    }

    /// Waits for the end of a container, at most for `limit`.
    pub async fn wait(&self, id: &str, limit: Duration) -> Result<(), Fault> {
        let client = tokio::time::timeout(self.limits.quick_call, self.client()).await;
        let client = client.unwrap_or_else(|_| Err(Fault::NoResponse("no answer".to_owned())))?;
        let mut ends = client.wait_container(id, None);
        match tokio::time::timeout(limit, ends.next()).await {
            // A nonzero exit code is returned as an error.
            Err(_) | Ok(Some(Ok(_) | Err(Error::DockerContainerWaitError { .. }))) => Ok(()),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => Err(Fault::NoResponse(
                "the engine closed the connection".to_owned(),
            )),
        }
    }

    /// Stops a container, kills it after the grace, and returns when it has ended.
    pub async fn stop(&self, id: &str, grace_seconds: i32) -> Result<(), Fault> {
        let options = StopContainerOptions {
            signal: None,
            t: Some(grace_seconds),
        };
        let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
        self.call(grace + self.limits.slow_call, async move |engine| {
            engine.stop_container(id, Some(options)).await
        })
        .await
    }

    /// Kills and removes a container. Succeeds if it does not exist.
    pub async fn remove(&self, id: &str) -> Result<(), Fault> {
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        let removed = self
            .call(self.limits.slow_call, async move |engine| {
                engine.remove_container(id, Some(options)).await
            })
            .await;
        match removed {
            Err(Fault::Missing(_)) => Ok(()),
            other => other,
        }
    }

    /// Returns ids and labels of all containers with this label, in any state.
    pub async fn list_with_label(
        &self,
        label: String,
    ) -> Result<Vec<(String, HashMap<String, String>)>, Fault> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
            ..ListContainersOptions::default()
        };
        let containers = self
            .call(self.limits.quick_call, async move |engine| {
                engine.list_containers(Some(options)).await
            })
            .await?;
        let labelled = containers
            .into_iter()
            .filter_map(|container| Some((container.id?, container.labels.unwrap_or_default())));
        Ok(labelled.collect())
    }

    /// Streams the output from the Unix second `since` until the container ends. Each piece begins
    /// with a timestamp.
    pub async fn logs(
        &self,
        id: &str,
        since: i32,
    ) -> Result<impl Stream<Item = Result<LogOutput, Error>> + use<>, Fault> {
        let options = LogsOptions {
            follow: true,
            stdout: true,
            stderr: true,
            since,
            timestamps: true,
            ..LogsOptions::default()
        };
        let client = tokio::time::timeout(self.limits.quick_call, self.client()).await;
        let client = client.unwrap_or_else(|_| Err(Fault::NoResponse("no answer".to_owned())))?;
        Ok(client.logs(id, Some(options)))
    }
}
