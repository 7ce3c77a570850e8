//! The life of one container, from its folder to its exit.
//!
//! Invariants: the engine is asked to start a container at most once, and that is noted before
//! (I3); without its answer nothing is concluded of a program that may run (F31); an exit is on
//! disk before the engine drops the container.

use std::time::{Duration, Instant};

use hayward_service::Shutdown;
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{ContainerForm, Exit, ExitCause};
use tokio::task::JoinHandle;

use super::engine::Fault;
use super::folder::{Folder, Order, Started};
use super::inspect::{Ending, Stage};
use super::{Docker, container_spec, logs, mounts};
use crate::backoff::Pause;
use crate::runtime::{Container, Event};

const LOOK_AGAIN: Duration = Duration::from_secs(30);
const LOOK_SOON: Duration = Duration::from_millis(500);
/// For the last of the output, once the program is over.
const LAST_WORDS: Duration = Duration::from_secs(10);

pub const RUNTIME_DOWN: &str = "runtime_down";
const IMAGE_PULL: &str = "image_pull";

/// What a container is to be.
pub struct Ordered {
    pub container: Container,
    pub argv: Vec<String>,
    pub image: ContainerForm,
}

impl Docker {
    /// Everything of a container that was just ordered.
    pub(super) async fn live(self, ordered: Ordered, stop: Shutdown) {
        let container = &ordered.container;
        let order = Order {
            id: container.id.clone(),
            incarnation: container.incarnation,
            epoch: container.epoch,
            stop_grace_ms: container.launch.stop_grace_ms,
        };
        let folder = self.folder(&order.id);
        let exit = match self.begin(&ordered, &folder, &order, &stop).await {
            Ok(()) => self.attend(&folder, &order, &stop).await,
            Err(exit) => exit,
        };
        self.conclude(&folder, &order, exit).await;
    }

    /// Everything of a container that an earlier agent ordered.
    pub(super) async fn adopt(self, folder: Folder, order: Order, stop: Shutdown) {
        let exit = if folder.start_asked() {
            self.attend(&folder, &order, &stop).await
        } else {
            Exit::of(ExitCause::Node, "the agent ended before it was launched")
        };
        self.conclude(&folder, &order, exit).await;
    }

    async fn begin(
        &self,
        ordered: &Ordered,
        folder: &Folder,
        order: &Order,
        stop: &Shutdown,
    ) -> Result<(), Exit> {
        let no_folder = |error| {
            let message = format!("its folder cannot be made: {error}");
            Exit::of(ExitCause::Node, message)
        };
        folder.make(order).map_err(no_folder)?;
        let id = self.make(ordered, stop).await?;
        if stop.begun() {
            return Err(never_started());
        }
        folder.note_start_asked().map_err(no_folder)?;
        match self.0.engine.start(&id).await {
            Ok(()) | Err(Fault::Silent(_)) => Ok(()),
            // It may run in spite of what was said: only a container that is gone surely does not.
            Err(fault) => match self.0.engine.remove(&id).await {
                Ok(()) => Err(refused(&fault)),
                Err(_) => Ok(()),
            },
        }
    }

    /// Makes the container, without starting it: its id.
    async fn make(&self, ordered: &Ordered, stop: &Shutdown) -> Result<String, Exit> {
        let Ordered {
            container,
            argv,
            image,
        } = ordered;
        let body = container_spec::body(container, argv, image, &self.0.rules)
            .map_err(|message| Exit::of(ExitCause::LaunchFailed, message))?;
        // Another node may give what this one does not: no fault of the work's.
        mounts::permitted(image, &self.0.rules)
            .map_err(|message| coded(ExitCause::Node, NOT_OFFERED, message))?;
        let name = container_spec::name(&container.id, container.incarnation);
        let deadline = Instant::now() + self.0.engine.limits.patience;
        let mut pause = Pause::default();
        let mut pulled = false;
        loop {
            if stop.begun() {
                return Err(never_started());
            }
            let engine = &self.0.engine;
            match engine.create(&name, body.clone()).await {
                Ok((id, warnings)) => {
                    for warning in warnings {
                        tracing::warn!(container = %container.id, warning, "the engine says");
                    }
                    return Ok(id);
                }
                Err(Fault::Missing(_)) if !pulled => {
                    self.fetch(&image.image).await?;
                    pulled = true;
                }
                Err(Fault::Missing(message)) => return Err(no_image(message)),
                Err(Fault::Conflict(message)) => {
                    return self.made_before(&name, container, &message).await;
                }
                Err(Fault::Silent(message)) if Instant::now() >= deadline => {
                    // Made or not, nobody asked for its start.
                    let message = format!("the container engine does not answer: {message}");
                    return Err(coded(ExitCause::Node, RUNTIME_DOWN, message));
                }
                Err(Fault::Silent(_)) => pause.wait().await,
                Err(fault) => return Err(refused(&fault)),
            }
        }
    }

    /// The name is taken: by an attempt of ours whose answer was lost, or this is not to be.
    async fn made_before(
        &self,
        name: &str,
        container: &Container,
        message: &str,
    ) -> Result<String, Exit> {
        let unknown = |message: &str| Exit::of(ExitCause::LaunchUnknown, message);
        let Ok(seen) = self.0.engine.inspect(name).await else {
            return Err(unknown(message));
        };
        let (id, incarnation) = (&container.id, container.incarnation);
        let ours = container_spec::is_ours(&seen.labels, &self.0.rules, id, incarnation);
        if ours && seen.stage == Stage::Made {
            return Ok(seen.id);
        }
        Err(unknown(
            "a container of this incarnation was made before, and not by this agent",
        ))
    }

    async fn fetch(&self, image: &str) -> Result<(), Exit> {
        let registry = container_spec::registry(image);
        if !self.0.registries.iter().any(|listed| listed == registry) {
            return Err(no_image(format!(
                "the image {image} is not on this node, and the agent may not fetch it: \
                 {registry} is not in docker_registries"
            )));
        }
        let fetched = self.0.engine.pull(image).await;
        fetched.map_err(|fault| {
            let message = format!("the image {image} cannot be fetched: {}", fault.message());
            match fault {
                // The registry does not have it, for anybody.
                Fault::Missing(_) => no_image(message),
                _ => coded(ExitCause::Node, IMAGE_PULL, message),
            }
        })
    }

    /// Until it is over.
    async fn attend(&self, folder: &Folder, order: &Order, stop: &Shutdown) -> Exit {
        let mut watch = Watch::new(self, folder, order);
        if folder.stop_asked() {
            stop.begin();
        }
        let name = container_spec::name(&order.id, order.incarnation);
        let mut pause = Pause::default();
        loop {
            let seen = match self.0.engine.inspect(&name).await {
                Ok(seen) => seen,
                Err(Fault::Missing(_)) => return gone(folder),
                Err(fault) => {
                    if pause.is_new() {
                        let error = fault.message();
                        tracing::warn!(container = %order.id, error, "its engine is silent");
                    }
                    pause.wait().await;
                    continue;
                }
            };
            pause.reset();
            match seen.stage {
                Stage::Over(ending) => {
                    watch.last_words(&seen.id).await;
                    return explain(folder, &ending);
                }
                Stage::Running { pid, at } => watch.runs(&seen.id, pid, at, stop).await,
                Stage::Made if watch.may_still_start(stop) => {
                    tokio::time::sleep(LOOK_SOON).await;
                    continue;
                }
                Stage::Made => match self.0.engine.remove(&seen.id).await {
                    Ok(()) if stop.begun() => return never_started(),
                    Ok(()) => return unclear(),
                    Err(_) => {
                        pause.wait().await;
                        continue;
                    }
                },
            }
            tokio::select! {
                looked = self.0.engine.wait(&seen.id, LOOK_AGAIN) => if looked.is_err() {
                    tokio::time::sleep(LOOK_SOON).await;
                },
                () = stop.wait(), if !watch.is_ending() => {}
            }
        }
    }

    async fn conclude(&self, folder: &Folder, order: &Order, mut exit: Exit) {
        exit.ended_at = exit.ended_at.or_else(|| Some(SystemClock.now()));
        match folder.note_exit(&exit) {
            Ok(()) => self.remove(order),
            // The engine keeps what the disk refuses.
            Err(error) => tracing::warn!(container = %order.id, %error, "its exit cannot be kept"),
        }
        self.say(&order.id, order.incarnation, Event::Ended(exit))
            .await;
    }
}

/// What goes on beside the watching of one container.
struct Watch<'a> {
    docker: &'a Docker,
    folder: &'a Folder,
    order: &'a Order,
    since: Instant,
    told: bool,
    logs: Option<JoinHandle<()>>,
    ending: Option<JoinHandle<()>>,
}

impl<'a> Watch<'a> {
    fn new(docker: &'a Docker, folder: &'a Folder, order: &'a Order) -> Self {
        Self {
            docker,
            folder,
            order,
            since: Instant::now(),
            told: false,
            logs: None,
            ending: None,
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    fn may_still_start(&self, stop: &Shutdown) -> bool {
        !stop.begun() && self.since.elapsed() < self.docker.0.engine.limits.unclear
    }

    async fn runs(
        &mut self,
        id: &str,
        pid: u32,
        at: Option<hayward_vocabulary::Timestamp>,
        stop: &Shutdown,
    ) {
        self.listen(id);
        if !self.told {
            self.told = true;
            let at = at.unwrap_or_else(|| SystemClock.now());
            self.folder.note_started(&Started { pid, at });
            let event = Event::Started { pid, at };
            let Order {
                id, incarnation, ..
            } = self.order;
            self.docker.say(id, *incarnation, event).await;
        }
        if stop.begun() && self.ending.is_none() {
            self.folder.note_stop_asked();
            let (docker, id) = (self.docker.clone(), id.to_owned());
            let grace = self.order.stop_grace_ms;
            self.ending = Some(tokio::spawn(async move { docker.end(&id, grace).await }));
        }
    }

    fn listen(&mut self, id: &str) {
        let (docker, id, folder) = (self.docker.clone(), id.to_owned(), self.folder.clone());
        self.logs.get_or_insert_with(|| {
            tokio::spawn(async move {
                let limit = docker.0.rules.output_limit_bytes;
                logs::copy(&docker.0.engine, &id, &folder, limit).await;
            })
        });
    }

    /// All it wrote, as far as the engine gives it within the time.
    async fn last_words(&mut self, id: &str) {
        self.listen(id);
        if let Some(logs) = &mut self.logs
            && tokio::time::timeout(LAST_WORDS, logs).await.is_err()
        {
            tracing::warn!(container = %self.order.id, "the last of its output was not read");
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for task in [&self.logs, &self.ending].into_iter().flatten() {
            task.abort();
        }
    }
}

impl Docker {
    /// Asks for its end again and again: what cannot be killed keeps the container, and so its
    /// room (W16).
    async fn end(&self, id: &str, grace_ms: u64) {
        // The engine counts in seconds; a grace is never cut short.
        let mut grace = i32::try_from(grace_ms.div_ceil(1000)).unwrap_or(i32::MAX);
        let mut pause = Pause::default();
        loop {
            match self.0.engine.stop(id, grace).await {
                Err(Fault::Missing(_)) => return,
                Ok(()) => grace = 1,
                Err(fault) => {
                    let error = fault.message();
                    tracing::warn!(container = id, error, "the engine does not stop it");
                }
            }
            pause.wait().await;
        }
    }
}

fn coded(cause: ExitCause, code: &str, message: String) -> Exit {
    Exit {
        cause_code: Some(code.to_owned()),
        ..Exit::of(cause, message)
    }
}

fn no_image(message: String) -> Exit {
    coded(ExitCause::LaunchFailed, IMAGE_PULL, message)
}

fn never_started() -> Exit {
    Exit::of(ExitCause::Intended, "it was asked to end before it started")
}

fn unclear() -> Exit {
    Exit::of(
        ExitCause::LaunchUnknown,
        "the engine did not say whether it started it; it is removed",
    )
}

/// Words of an engine's inner workings are a matter of the machine; of the container's, the user's.
fn refused(fault: &Fault) -> Exit {
    let message = format!("the container engine refused it: {}", fault.message());
    if fault.message().contains("no space left on device") {
        return coded(ExitCause::Node, "disk_full", message);
    }
    match fault {
        Fault::Refused { status: 500.., .. } if !fault.message().contains("OCI runtime create") => {
            coded(ExitCause::Node, RUNTIME_DOWN, message)
        }
        _ => Exit::of(ExitCause::LaunchFailed, message),
    }
}

/// Somebody removed it.
fn gone(folder: &Folder) -> Exit {
    if folder.stop_asked() {
        Exit::of(ExitCause::Intended, "asked to end")
    } else if folder.started().is_some() {
        Exit::of(
            ExitCause::Node,
            "somebody removed its container from the engine",
        )
    } else {
        Exit::of(
            ExitCause::LaunchUnknown,
            "its container was lost while it was being started",
        )
    }
}

fn explain(folder: &Folder, ending: &Ending) -> Exit {
    let failed = ending.code != 0;
    let (cause, message) = if folder.stop_asked() {
        (ExitCause::Intended, Some("asked to end".to_owned()))
    } else if failed && ending.out_of_memory {
        let message = "it used more memory than it was granted".to_owned();
        (ExitCause::UserLimit, Some(message))
    } else if failed {
        (ExitCause::UserError, ending.error.clone())
    } else {
        (ExitCause::Success, None)
    };
    Exit {
        cause,
        cause_code: None,
        code: Some(ending.code),
        // Not told by the engine: what a signal ended has the code 128 and its number.
        signal: None,
        message,
        ended_at: ending.at,
    }
}
