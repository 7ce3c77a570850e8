//! The lifecycle of one container of the engine, from its folder to its exit.
//!
//! Invariants:
//! - The engine is asked to start a container at most once. The request is recorded before (I3).
//! - A program that may run does not count as ended while the engine does not answer.
//! - An exit is on disk before the container is removed from the engine.

use std::time::{Duration, Instant};

use hayward_service::Shutdown;
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{ContainerForm, Exit, ExitCause};
use tokio::task::JoinHandle;

use super::container_folder::{ContainerFolder, LaunchRecord, Started};
use super::engine::Fault;
use super::inspect::{ContainerEnd, Stage};
use super::{Docker, container_spec, logs, mounts};
use crate::backoff::Backoff;
use crate::runtime::{Container, Event};

/// Interval of inspections while the engine reports no change.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of inspections while a start is not confirmed, or after a failed call.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for reading the remaining output after the end of a container.
const REMAINING_OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

pub const RUNTIME_DOWN: &str = "runtime_down";
const IMAGE_PULL: &str = "image_pull";

/// A container to launch from an image.
pub struct ImageLaunch {
    pub container: Container,
    pub argv: Vec<String>,
    pub image: ContainerForm,
}

impl Docker {
    /// Launches a container and watches it until its end.
    pub(super) async fn run(self, launch: ImageLaunch, stop: Shutdown) {
        let container = &launch.container;
        let record = LaunchRecord {
            id: container.id.clone(),
            incarnation: container.incarnation,
            epoch: container.epoch,
            stop_grace_ms: container.launch.stop_grace_ms,
        };
        let folder = self.folder(&record.id);
        let exit = match self.start(&launch, &folder, &record, &stop).await {
            Ok(()) => self.watch_until_end(&folder, &record, &stop).await,
            Err(exit) => exit,
        };
        self.finish(&folder, &record, exit).await;
    }

    /// Watches a container of a previous agent until its end.
    pub(super) async fn adopt(self, folder: ContainerFolder, record: LaunchRecord, stop: Shutdown) {
        let exit = if folder.start_requested() {
            self.watch_until_end(&folder, &record, &stop).await
        } else {
            Exit::of(ExitCause::Node, "the agent ended before it was launched")
        };
        self.finish(&folder, &record, exit).await;
    }

    async fn start(
        &self,
        launch: &ImageLaunch,
        folder: &ContainerFolder,
        record: &LaunchRecord,
        stop: &Shutdown,
    ) -> Result<(), Exit> {
        let folder_failure = |error| {
            let message = format!("its folder cannot be made: {error}");
            Exit::of(ExitCause::Node, message)
        };
        folder.create(record).map_err(folder_failure)?;
        let id = self.create(launch, stop).await?;
        if stop.has_begun() {
            return Err(stopped_before_start());
        }
        folder.record_start_request().map_err(folder_failure)?;
        match self.0.engine.start(&id).await {
            Ok(()) | Err(Fault::NoResponse(_)) => Ok(()),
            // The container may run despite the error, so it is removed.
            Err(fault) => match self.0.engine.remove(&id).await {
                Ok(()) => Err(exit_of_refusal(&fault)),
                Err(_) => Ok(()),
            },
        }
    }

    /// Creates the container without starting it. Returns its id.
    async fn create(&self, launch: &ImageLaunch, stop: &Shutdown) -> Result<String, Exit> {
        let ImageLaunch {
            container,
            argv,
            image,
        } = launch;
        let body = container_spec::create_body(container, argv, image, &self.0.settings)?;
        // Another node may permit the mount, so the work is not at fault.
        mounts::check_permitted(image, &self.0.settings)
            .map_err(|message| exit_with_code(ExitCause::Node, NOT_OFFERED, message))?;
        let name = container_spec::container_name(&container.id, container.incarnation);
        let deadline = Instant::now() + self.0.engine.limits.launch_retry;
        let mut backoff = Backoff::default();
        let mut pulled = false;
        loop {
            if stop.has_begun() {
                return Err(stopped_before_start());
            }
            let engine = &self.0.engine;
            match engine.create(&name, body.clone()).await {
                Ok((id, warnings)) => {
                    for warning in warnings {
                        tracing::warn!(container = %container.id, warning, "warning of the engine");
                    }
                    return Ok(id);
                }
                Err(Fault::Missing(_)) if !pulled => {
                    self.pull(&image.image).await?;
                    pulled = true;
                }
                Err(Fault::Missing(message)) => return Err(image_error(message)),
                Err(Fault::Conflict(message)) => {
                    return self.reuse_existing(&name, container, &message).await;
                }
                Err(Fault::NoResponse(message)) if Instant::now() >= deadline => {
                    // The container may exist, but its start was never requested.
                    let message = format!("the container engine does not answer: {message}");
                    return Err(exit_with_code(ExitCause::Node, RUNTIME_DOWN, message));
                }
                Err(Fault::NoResponse(_)) => backoff.wait().await,
                Err(fault) => return Err(exit_of_refusal(&fault)),
            }
        }
    }

    /// Handles a name that is already in use. Reuses the container if an earlier attempt of this
    /// agent created it and the response was lost.
    async fn reuse_existing(
        &self,
        name: &str,
        container: &Container,
        message: &str,
    ) -> Result<String, Exit> {
        let launch_unknown = |message: &str| Exit::of(ExitCause::LaunchUnknown, message);
        let Ok(inspection) = self.0.engine.inspect(name).await else {
            return Err(launch_unknown(message));
        };
        let (id, incarnation) = (&container.id, container.incarnation);
        let is_ours =
            container_spec::is_ours(&inspection.labels, &self.0.settings, id, incarnation);
        if is_ours && inspection.stage == Stage::Created {
            return Ok(inspection.id);
        }
        Err(launch_unknown(
            "a container of this incarnation exists already and is not of this agent",
        ))
    }

    async fn pull(&self, image: &str) -> Result<(), Exit> {
        let registry = container_spec::registry_of(image);
        if !self.0.registries.iter().any(|listed| listed == registry) {
            return Err(image_error(format!(
                "the image {image} is not on this node, and the agent may not pull it: \
                 {registry} is not in docker_registries"
            )));
        }
        let result = self.0.engine.pull(image).await;
        result.map_err(|fault| {
            let message = format!("the image {image} cannot be pulled: {}", fault.message());
            match fault {
                // The image does not exist in the registry.
                Fault::Missing(_) => image_error(message),
                _ => exit_with_code(ExitCause::Node, IMAGE_PULL, message),
            }
        })
    }

    /// Watches a container that may have been started, until its end. Returns its exit.
    async fn watch_until_end(
        &self,
        folder: &ContainerFolder,
        record: &LaunchRecord,
        stop: &Shutdown,
    ) -> Exit {
        let mut watch = Watch::new(self, folder, record);
        if folder.stop_requested() {
            stop.begin();
        }
        let name = container_spec::container_name(&record.id, record.incarnation);
        let mut backoff = Backoff::default();
        loop {
            let inspection = match self.0.engine.inspect(&name).await {
                Ok(inspection) => inspection,
                Err(Fault::Missing(_)) => return exit_of_removed(folder),
                Err(fault) => {
                    if backoff.is_first_failure() {
                        let error = fault.message();
                        tracing::warn!(container = %record.id, error, "the engine does not answer");
                    }
                    backoff.wait().await;
                    continue;
                }
            };
            backoff.reset();
            match inspection.stage {
                Stage::Ended(end) => {
                    watch.read_remaining_output(&inspection.id).await;
                    return exit_from_end(folder, &end);
                }
                Stage::Running { pid, at } => {
                    watch.handle_running(&inspection.id, pid, at, stop).await;
                }
                Stage::Created if watch.may_still_start(stop) => {
                    tokio::time::sleep(SHORT_POLL_INTERVAL).await;
                    continue;
                }
                Stage::Created => match self.0.engine.remove(&inspection.id).await {
                    Ok(()) if stop.has_begun() => return stopped_before_start(),
                    Ok(()) => return exit_of_unconfirmed_start(),
                    Err(_) => {
                        backoff.wait().await;
                        continue;
                    }
                },
            }
            tokio::select! {
                waited = self.0.engine.wait(&inspection.id, POLL_INTERVAL) => if waited.is_err() {
                    tokio::time::sleep(SHORT_POLL_INTERVAL).await;
                },
                () = stop.wait(), if !watch.is_ending() => {}
            }
        }
    }

    /// Writes the exit, removes the container from the engine, and reports the end.
    async fn finish(&self, folder: &ContainerFolder, record: &LaunchRecord, mut exit: Exit) {
        exit.ended_at = exit.ended_at.or_else(|| Some(SystemClock.now()));
        match folder.write_exit(&exit) {
            Ok(()) => self.remove(record),
            // Without the exit on disk, the container stays in the engine.
            Err(error) => {
                tracing::warn!(container = %record.id, %error, "its exit cannot be written");
            }
        }
        self.send_event(&record.id, record.incarnation, Event::Ended(exit))
            .await;
    }
}

/// Background tasks of a watched container.
struct Watch<'a> {
    docker: &'a Docker,
    folder: &'a ContainerFolder,
    record: &'a LaunchRecord,
    watched_since: Instant,
    start_reported: bool,
    copy_task: Option<JoinHandle<()>>,
    stop_task: Option<JoinHandle<()>>,
}

impl<'a> Watch<'a> {
    fn new(docker: &'a Docker, folder: &'a ContainerFolder, record: &'a LaunchRecord) -> Self {
        Self {
            docker,
            folder,
            record,
            watched_since: Instant::now(),
            start_reported: false,
            copy_task: None,
            stop_task: None,
        }
    }

    fn is_ending(&self) -> bool {
        self.stop_task.is_some()
    }

    fn may_still_start(&self, stop: &Shutdown) -> bool {
        !stop.has_begun()
            && self.watched_since.elapsed() < self.docker.0.engine.limits.start_confirmation
    }

    async fn handle_running(
        &mut self,
        id: &str,
        pid: u32,
        started_at: Option<hayward_vocabulary::Timestamp>,
        stop: &Shutdown,
    ) {
        self.start_copying(id);
        if !self.start_reported {
            self.start_reported = true;
            let started_at = started_at.unwrap_or_else(|| SystemClock.now());
            self.folder.record_start(&Started {
                pid,
                at: started_at,
            });
            let event = Event::Started {
                pid,
                at: started_at,
            };
            let LaunchRecord {
                id, incarnation, ..
            } = self.record;
            self.docker.send_event(id, *incarnation, event).await;
        }
        if stop.has_begun() && self.stop_task.is_none() {
            self.folder.record_stop_request();
            let (docker, id) = (self.docker.clone(), id.to_owned());
            let grace = self.record.stop_grace_ms;
            self.stop_task = Some(tokio::spawn(async move {
                docker.stop_until_ended(&id, grace).await;
            }));
        }
    }

    /// Starts to copy the output, unless that has begun.
    fn start_copying(&mut self, id: &str) {
        let (docker, id, folder) = (self.docker.clone(), id.to_owned(), self.folder.clone());
        self.copy_task.get_or_insert_with(|| {
            tokio::spawn(async move {
                let limit = docker.0.settings.output_limit_bytes;
                logs::copy_output(&docker.0.engine, &id, &folder, limit).await;
            })
        });
    }

    /// Waits until all output is copied, within the time limit.
    async fn read_remaining_output(&mut self, id: &str) {
        self.start_copying(id);
        if let Some(copy_task) = &mut self.copy_task
            && tokio::time::timeout(REMAINING_OUTPUT_TIMEOUT, copy_task)
                .await
                .is_err()
        {
            tracing::warn!(container = %self.record.id, "the last of its output was not read");
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for task in [&self.copy_task, &self.stop_task].into_iter().flatten() {
            task.abort();
        }
    }
}

impl Docker {
    /// Stops the container, and retries until it has ended. The container keeps its space until
    /// then (W16).
    async fn stop_until_ended(&self, id: &str, grace_ms: u64) {
        // The engine takes the grace in whole seconds.
        let mut grace = i32::try_from(grace_ms.div_ceil(1000)).unwrap_or(i32::MAX);
        let mut backoff = Backoff::default();
        loop {
            match self.0.engine.stop(id, grace).await {
                Err(Fault::Missing(_)) => return,
                Ok(()) => grace = 1,
                Err(fault) => {
                    let error = fault.message();
                    tracing::warn!(container = id, error, "the engine does not stop it");
                }
            }
            backoff.wait().await;
        }
    }
}

fn exit_with_code(cause: ExitCause, code: &str, message: String) -> Exit {
    Exit {
        cause_code: Some(code.to_owned()),
        ..Exit::of(cause, message)
    }
}

fn image_error(message: String) -> Exit {
    exit_with_code(ExitCause::LaunchFailed, IMAGE_PULL, message)
}

fn stopped_before_start() -> Exit {
    Exit::of(ExitCause::Intended, "it was asked to end before it started")
}

fn exit_of_unconfirmed_start() -> Exit {
    Exit::of(
        ExitCause::LaunchUnknown,
        "the engine did not confirm the start; the container was removed",
    )
}

/// Returns the exit after a refusal of the engine. Internal errors of the engine are attributed to
/// the node, and errors of the container to the user. An error of the OCI runtime, such as a
/// missing program, concerns the container, although its status is 500.
fn exit_of_refusal(fault: &Fault) -> Exit {
    let message = format!("the container engine refused it: {}", fault.message());
    if fault.message().contains("no space left on device") {
        return exit_with_code(ExitCause::Node, "disk_full", message);
    }
    match fault {
        Fault::Refused { status: 500.., .. } if !fault.message().contains("OCI runtime create") => {
            exit_with_code(ExitCause::Node, RUNTIME_DOWN, message)
        }
        _ => Exit::of(ExitCause::LaunchFailed, message),
    }
}

/// Returns the exit of a container that was removed from the engine.
fn exit_of_removed(folder: &ContainerFolder) -> Exit {
    if folder.stop_requested() {
        Exit::of(ExitCause::Intended, "asked to end")
    } else if folder.read_start().is_some() {
        Exit::of(ExitCause::Node, "its container was removed from the engine")
    } else {
        Exit::of(
            ExitCause::LaunchUnknown,
            "its container was lost while it was being started",
        )
    }
}

fn exit_from_end(folder: &ContainerFolder, end: &ContainerEnd) -> Exit {
    let failed = end.code != 0;
    let (cause, message) = if folder.stop_requested() {
        (ExitCause::Intended, Some("asked to end".to_owned()))
    } else if failed && end.out_of_memory {
        let message = "it used more memory than it was granted".to_owned();
        (ExitCause::UserLimit, Some(message))
    } else if failed {
        (ExitCause::UserError, end.error.clone())
    } else {
        (ExitCause::Success, None)
    };
    Exit {
        cause,
        cause_code: None,
        code: Some(end.code),
        // The signal is unknown, because the engine reports it as code 128 + signal.
        signal: None,
        message,
        ended_at: end.at,
    }
}
