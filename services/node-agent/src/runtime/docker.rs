//! Containers of a container engine on this node, through the API on its local socket (S21).
//!
//! The engine keeps containers alive, so containers outlive the agent. A later agent finds them
//! again by name and labels. Further data of a container is in the folder `engine/<id>/`, which is
//! written before the engine is called. Containers without the label of this agent are never
//! touched.

mod container_folder;
mod container_lifecycle;
pub mod container_spec;
mod engine;
mod inspect;
mod logs;
mod mounts;
mod orphans;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use hayward_node_agent_domain::Evidence;
use hayward_service::Shutdown;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::AllocationId;
use parking_lot::Mutex;

use super::{Event, EventSender, FoundContainer, OutputPiece, RuntimeEvent};
use crate::run_as::Accounts;
use crate::{atomic_files, log_segments};
use container_folder::{ContainerFolder, LaunchRecord};
use container_spec::SpecSettings;
use engine::Engine;

pub use container_lifecycle::ImageLaunch;
pub use engine::Limits;

/// Interval of health checks of the engine.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct DockerSettings {
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub node: String,
    pub network: String,
    /// Mounts of every container, as `HOST:INSIDE` or `HOST:INSIDE:ro`.
    pub mounts: Vec<String>,
    /// Registries from which images may be pulled.
    pub registries: Vec<String>,
    /// Directories of the node below which work may request mounts.
    pub mountable: Vec<PathBuf>,
    /// Accounts of the node, by user of the work.
    pub accounts: Accounts,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub processes_limit: u64,
    pub output_limit_bytes: u64,
    pub limits: Limits,
}

#[derive(Clone)]
pub struct Docker(Arc<Inner>);

struct Inner {
    engine: Engine,
    settings: SpecSettings,
    registries: Vec<String>,
    /// Directory with the folders of all containers.
    dir: PathBuf,
    events: EventSender,
    /// Stop signals of the containers that have not ended.
    live: Mutex<HashMap<AllocationId, Shutdown>>,
    /// Whether the engine answered the last health check.
    available: AtomicBool,
}

impl Docker {
    pub fn new(settings: DockerSettings, events: EventSender) -> anyhow::Result<Self> {
        let dir = settings.state_dir.join("engine");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let spec_settings = SpecSettings {
            node: settings.node,
            owner: read_or_create_owner(&settings.state_dir)?,
            mountable: settings.mountable,
            socket: settings.socket.clone(),
            state_dir: settings.state_dir.clone(),
            accounts: settings.accounts,
            uid: settings.uid,
            gid: settings.gid,
            network: settings.network,
            mounts: settings.mounts,
            processes_limit: settings.processes_limit,
            output_limit_bytes: settings.output_limit_bytes,
        };
        let docker = Self(Arc::new(Inner {
            engine: Engine::new(&settings.socket, settings.limits),
            settings: spec_settings,
            registries: settings.registries,
            dir,
            events,
            live: Mutex::default(),
            available: AtomicBool::new(false),
        }));
        tokio::spawn(docker.clone().monitor_health());
        tokio::spawn(docker.clone().sweep());
        Ok(docker)
    }

    /// Checks whether the engine answers, and logs changes.
    async fn monitor_health(self) {
        let mut last_logged = None;
        loop {
            let health = self.0.engine.ping().await;
            self.0.available.store(health.is_ok(), Ordering::Relaxed);
            if last_logged != Some(health.is_ok()) {
                last_logged = Some(health.is_ok());
                match health {
                    Ok(()) => tracing::info!("the container engine answers"),
                    Err(fault) => {
                        let error = fault.message();
                        tracing::warn!(error, "the container engine does not answer");
                    }
                }
            }
            tokio::time::sleep(HEALTH_INTERVAL).await;
        }
    }

    /// Returns whether a previous agent left containers that have not ended, according to their
    /// folders.
    pub fn has_leftovers(state_dir: &Path) -> bool {
        let folders = container_folder::list_folders(&state_dir.join("engine")).unwrap_or_default();
        folders
            .iter()
            .any(|(_, folder)| folder.read_exit().is_none())
    }

    pub fn is_available(&self) -> bool {
        self.0.available.load(Ordering::Relaxed)
    }

    fn folder(&self, id: &AllocationId) -> ContainerFolder {
        ContainerFolder::new(self.0.dir.join(id.as_str()))
    }

    /// Returns whether this container belongs to the engine, and not to another runtime.
    pub fn contains(&self, id: &AllocationId) -> bool {
        self.0.live.lock().contains_key(id) || self.0.dir.join(id.as_str()).exists()
    }

    /// Recovers containers from their folders, without the engine, and watches live ones.
    pub fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, FoundContainer>> {
        let folders = container_folder::list_folders(&self.0.dir)?;
        let containers = folders.into_iter().filter_map(|(id, folder)| {
            let Some(record) = folder.read_launch_record() else {
                // Without the order in the folder, the engine was never called.
                folder.remove();
                return None;
            };
            let started = folder.read_start();
            let container = FoundContainer {
                incarnation: record.incarnation,
                epoch: record.epoch,
                boot_id: None,
                pid: started.as_ref().map(|started| started.pid),
                started_at: started.map(|started| started.at),
                evidence: folder.read_exit().map_or(Evidence::Alive, Evidence::Exited),
            };
            if container.evidence == Evidence::Alive {
                let stop = self.register(&id);
                tokio::spawn(self.clone().adopt(folder, record, stop));
            }
            Some((id, container))
        });
        Ok(containers.collect())
    }

    pub fn launch(&self, launch: ImageLaunch) {
        let stop = self.register(&launch.container.id);
        tokio::spawn(self.clone().run(launch, stop));
    }

    pub fn stop(&self, id: &AllocationId) {
        if let Some(stop) = self.0.live.lock().get(id) {
            stop.begin();
        }
    }

    /// Removes the folder. The next sweep removes the container if it is still in the engine.
    pub fn forget(&self, id: &AllocationId) {
        self.folder(id).remove();
    }

    pub fn output(
        &self,
        id: &AllocationId,
        offset: u64,
        max_bytes: u64,
        backlog: u64,
    ) -> Option<OutputPiece> {
        let folder = self.folder(id);
        let (offset, bytes) = log_segments::read(folder.dir(), offset, max_bytes, backlog)?;
        Some(OutputPiece { offset, bytes })
    }

    fn register(&self, id: &AllocationId) -> Shutdown {
        let stop = Shutdown::new();
        self.0.live.lock().insert(id.clone(), stop.clone());
        stop
    }

    /// Removes the container from the engine in the background. The sweep retries failures.
    fn remove(&self, record: &LaunchRecord) {
        let docker = self.clone();
        let name = container_spec::container_name(&record.id, record.incarnation);
        let record = record.clone();
        tokio::spawn(async move {
            if let Ok(inspection) = docker.0.engine.inspect(&name).await
                && container_spec::is_ours(
                    &inspection.labels,
                    &docker.0.settings,
                    &record.id,
                    record.incarnation,
                )
            {
                let _ = docker.0.engine.remove(&inspection.id).await;
            }
        });
    }

    async fn send_event(&self, id: &AllocationId, incarnation: u64, event: Event) {
        if matches!(event, Event::Ended(_)) {
            self.0.live.lock().remove(id);
        }
        let runtime_event = RuntimeEvent {
            id: id.clone(),
            incarnation,
            event,
        };
        // The send fails only while the agent is stopping. The folder keeps the result.
        let _ = self.0.events.send(runtime_event).await;
    }
}

/// Returns the identity of this agent in the engine, which is stored in its directory.
fn read_or_create_owner(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join("engine-owner");
    if let Ok(owner) = std::fs::read_to_string(&path)
        && !owner.is_empty()
    {
        return Ok(owner);
    }
    let owner = fresh_uuid().simple().to_string();
    atomic_files::replace(&path, owner.as_bytes()).context("cannot write the owner's mark")?;
    Ok(owner)
}

#[cfg(test)]
mod tests;
