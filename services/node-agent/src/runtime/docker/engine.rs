//! Talking to a container engine on its local socket. Each question has a limit: an engine that
//! hangs is told from one that answers, and silence proves nothing (F31).

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

use super::inspect::Seen;

/// Every limit is kept here, so the client's own only has to be longer.
const NEVER_SECONDS: u64 = 86_400;

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For whatever the engine does at once.
    pub soon: Duration,
    /// For making, starting and removing a container, on a busy machine.
    pub later: Duration,
    pub pull: Duration,
    /// How long a launch waits for an engine that does not answer before another node gets the
    /// work.
    pub patience: Duration,
    /// How long a start without an answer may still come true.
    pub unclear: Duration,
    /// Between two looks for containers nobody asks for.
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

/// Why there is no answer to work with.
#[derive(Debug)]
pub enum Fault {
    /// None came, or nothing that can be read: it is not known what was done.
    Silent(String),
    /// There is no such thing.
    Missing(String),
    /// There is such a thing already.
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
    /// Made once it answered, because only then its version is known.
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

    /// Whether it answers at all.
    pub async fn ping(&self) -> Result<(), Fault> {
        self.ask(self.limits.soon, async move |engine| engine.ping().await)
            .await
            .map(drop)
    }

    /// Makes a container without starting it: its id, and what of the order does not hold.
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
        // Without a tag the engine would fetch every one there is.
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

    pub async fn inspect(&self, name: &str) -> Result<Seen, Fault> {
        let found: ContainerInspectResponse = self
            .ask(self.limits.soon, async move |engine| {
                engine.inspect_container(name, None).await
            })
            .await?;
        Seen::read(found).ok_or_else(|| {
            Fault::Silent("the engine's description of a container has no state".to_owned())
        })
    }

    /// Until the container is over, or for so long.
    pub async fn wait(&self, id: &str, limit: Duration) -> Result<(), Fault> {
        let client = tokio::time::timeout(self.limits.soon, self.client()).await;
        let client = client.unwrap_or_else(|_| Err(Fault::Silent("no answer".to_owned())))?;
        let mut ends = client.wait_container(id, None);
        match tokio::time::timeout(limit, ends.next()).await {
            // An exit code that is not 0 comes as an error.
            Err(_) | Ok(Some(Ok(_) | Err(Error::DockerContainerWaitError { .. }))) => Ok(()),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => Err(Fault::Silent("the engine broke off".to_owned())),
        }
    }

    /// Asks it to end and forces it after the grace; answered when it is over.
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

    /// Ends it if need be and drops it. One that is not there is as good.
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

    /// Ids and labels of all containers that bear this label, whatever their state.
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

    /// What it wrote since this second, each piece with its instant in front, until it is over.
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
