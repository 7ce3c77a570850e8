//! Client of a container engine on its local socket. Each call has a time limit, and a missing
//! response proves nothing (F31).

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
const NEVER_SECONDS: u64 = 86_400;

/// Time limits of calls.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Limit for calls that the engine answers at once.
    pub soon: Duration,
    /// Limit for creating, starting and removing a container.
    pub later: Duration,
    pub pull: Duration,
    /// Time that a launch waits for an engine that does not answer, before it fails.
    pub patience: Duration,
    /// Time during which a start without a response may still happen.
    pub unclear: Duration,
    /// Interval of sweeps for orphaned containers.
    pub sweep: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            soon: Duration::from_secs(10),
            later: Duration::from_mins(1),
            pull: Duration::from_mins(10),
            patience: Duration::from_secs(20),
            unclear: Duration::from_secs(30),
            sweep: Duration::from_secs(20),
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Fault {
    /// There is no response, or an unreadable one. The effect is unknown.
    Silent(String),
    /// The object does not exist.
    Missing(String),
    /// The object exists already.
    Conflict(String),
    Refused {
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
                503 => Self::Silent(message),
                status => Self::Refused { status, message },
            },
            Error::DockerStreamError { error } => Self::Refused {
                status: 500,
                message: error,
            },
            other => Self::Silent(other.to_string()),
        }
    }
}

impl Fault {
    pub fn message(&self) -> &str {
        match self {
            Self::Silent(message)
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
    pub fn at(socket: &Path, limits: Limits) -> Self {
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
        let client = Docker::connect_with_unix(&path, NEVER_SECONDS, API_DEFAULT_VERSION)?
            .negotiate_version()
            .await?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    async fn ask<T, F>(
        &self,
        limit: Duration,
        question: impl FnOnce(Docker) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answer = async { Ok(question(self.client().await?).await?) };
        tokio::time::timeout(limit, answer)
            .await
            .unwrap_or_else(|_| {
                let limit = limit.as_millis();
                Err(Fault::Silent(format!("no answer within {limit} ms")))
            })
    }

    /// Checks whether the engine answers.
    pub async fn ping(&self) -> Result<(), Fault> {
        self.ask(self.limits.soon, async move |engine| engine.ping().await)
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
        let made = self
            .ask(self.limits.later, async move |engine| {
                engine.create_container(Some(options), body).await
            })
            .await?;
        Ok((made.id, made.warnings))
    }

    pub async fn pull(&self, image: &str) -> Result<(), Fault> {
        // Without a tag the engine would pull all tags.
        let tagged = image.contains('@')
            || image
                .rsplit('/')
                .next()
                .is_some_and(|last| last.contains(':'));
        let options = CreateImageOptions {
            from_image: Some(image.to_owned()),
            tag: (!tagged).then(|| "latest".to_owned()),
            ..CreateImageOptions::default()
        };
        self.ask(self.limits.pull, async move |engine| {
            let mut steps = engine.create_image(Some(options), None, None);
            while let Some(step) = steps.next().await {
                step?;
            }
            Ok(())
        })
        .await
    }

    pub async fn start(&self, id: &str) -> Result<(), Fault> {
        self.ask(self.limits.later, async move |engine| {
            engine.start_container(id, None).await
        })
        .await
    }

    pub async fn inspect(&self, name: &str) -> Result<Inspection, Fault> {
        let found: ContainerInspectResponse = self
            .ask(self.limits.soon, async move |engine| {
                engine.inspect_container(name, None).await
            })
            .await?;
        Inspection::read(found).ok_or_else(|| {
            Fault::Silent("the engine's description of a container has no state".to_owned())
        })
    }

    /// Waits for the end of a container, at most for `limit`.
    pub async fn wait(&self, id: &str, limit: Duration) -> Result<(), Fault> {
        let client = tokio::time::timeout(self.limits.soon, self.client()).await;
        let client = client.unwrap_or_else(|_| Err(Fault::Silent("no answer".to_owned())))?;
        let mut ends = client.wait_container(id, None);
        match tokio::time::timeout(limit, ends.next()).await {
            // A nonzero exit code is returned as an error.
            Err(_) | Ok(Some(Ok(_) | Err(Error::DockerContainerWaitError { .. }))) => Ok(()),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => Err(Fault::Silent("the engine closed the connection".to_owned())),
        }
    }

    /// Stops a container, kills it after the grace, and returns when it has ended.
    pub async fn stop(&self, id: &str, grace_seconds: i32) -> Result<(), Fault> {
        let options = StopContainerOptions {
            signal: None,
            t: Some(grace_seconds),
        };
        let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
        self.ask(grace + self.limits.later, async move |engine| {
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
            .ask(self.limits.later, async move |engine| {
                engine.remove_container(id, Some(options)).await
            })
            .await;
        match removed {
            Err(Fault::Missing(_)) => Ok(()),
            other => other,
        }
    }

    /// Returns ids and labels of all containers with this label, in any state.
    pub async fn labelled(
        &self,
        label: String,
    ) -> Result<Vec<(String, HashMap<String, String>)>, Fault> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
            ..ListContainersOptions::default()
        };
        let found = self
            .ask(self.limits.soon, async move |engine| {
                engine.list_containers(Some(options)).await
            })
            .await?;
        let known = found
            .into_iter()
            .filter_map(|one| Some((one.id?, one.labels.unwrap_or_default())));
        Ok(known.collect())
    }

    /// Streams the output from this second until the end. Each piece begins with a timestamp.
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
        let client = tokio::time::timeout(self.limits.soon, self.client()).await;
        let client = client.unwrap_or_else(|_| Err(Fault::Silent("no answer".to_owned())))?;
        Ok(client.logs(id, Some(options)))
    }
}
