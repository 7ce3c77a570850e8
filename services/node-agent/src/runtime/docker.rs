//! Containers of a container engine on this machine, through its own API on a local socket (S21).
//!
//! The engine is what keeps them alive: they outlive the agent, and each is found again by its
//! name and its labels. What the agent has to know of one beyond that is in `engine/<id>/`, made
//! before the engine hears of it. Only containers with this agent's own label are ever touched.

mod container;
pub mod container_spec;
mod engine;
mod folder;
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
use hayward_node_agent_domain::Trace;
use hayward_service::Shutdown;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::AllocationId;
use parking_lot::Mutex;

use super::{Event, Found, News, NewsSender, Piece};
use crate::run_as::Accounts;
use crate::{files, log_segments};
use container_spec::Rules;
use engine::Engine;
use folder::{Folder, Order};

pub use container::Ordered;
pub use engine::Limits;

/// How often an engine is asked whether it is there.
const PULSE: Duration = Duration::from_secs(5);

/// How containers are run here.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub node: String,
    pub network: String,
    pub mounts: Vec<String>,
    /// Hosts images may be fetched from.
    pub registries: Vec<String>,
    pub mountable: Vec<PathBuf>,
    /// Whom the work of users runs as.
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
    rules: Rules,
    registries: Vec<String>,
    dir: PathBuf,
    news: NewsSender,
    /// One per container that is not over: how to ask for its end.
    live: Mutex<HashMap<AllocationId, Shutdown>>,
    answers: AtomicBool,
}

impl Docker {
    pub fn new(conditions: Conditions, news: NewsSender) -> anyhow::Result<Self> {
        let dir = conditions.state_dir.join("engine");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let rules = Rules {
            node: conditions.node,
            owner: owner(&conditions.state_dir)?,
            mountable: conditions.mountable,
            socket: conditions.socket.clone(),
            state_dir: conditions.state_dir.clone(),
            accounts: conditions.accounts,
            uid: conditions.uid,
            gid: conditions.gid,
            network: conditions.network,
            mounts: conditions.mounts,
            processes_limit: conditions.processes_limit,
            output_limit_bytes: conditions.output_limit_bytes,
        };
        let docker = Self(Arc::new(Inner {
            engine: Engine::at(&conditions.socket, conditions.limits),
            rules,
            registries: conditions.registries,
            dir,
            news,
            live: Mutex::default(),
            answers: AtomicBool::new(false),
        }));
        tokio::spawn(docker.clone().feel_pulse());
        tokio::spawn(docker.clone().sweep());
        Ok(docker)
    }

    /// Notes whether the engine answers, and says when that changes.
    async fn feel_pulse(self) {
        let mut said = None;
        loop {
            let pulse = self.0.engine.ping().await;
            self.0.answers.store(pulse.is_ok(), Ordering::Relaxed);
            if said != Some(pulse.is_ok()) {
                said = Some(pulse.is_ok());
                match pulse {
                    Ok(()) => tracing::info!("the container engine answers"),
                    Err(fault) => {
                        let error = fault.message();
                        tracing::warn!(error, "the container engine does not answer");
                    }
                }
            }
            tokio::time::sleep(PULSE).await;
        }
    }

    /// Whether an earlier agent left containers that are not over, as far as its folders tell.
    pub fn left_behind(state_dir: &Path) -> bool {
        let folders = folder::all(&state_dir.join("engine")).unwrap_or_default();
        folders.iter().any(|(_, folder)| folder.exit().is_none())
    }

    pub fn answers(&self) -> bool {
        self.0.answers.load(Ordering::Relaxed)
    }

    fn folder(&self, id: &AllocationId) -> Folder {
        Folder::at(self.0.dir.join(id.as_str()))
    }

    /// Whether this container is, or was, one of the engine's.
    pub fn has(&self, id: &AllocationId) -> bool {
        self.0.live.lock().contains_key(id) || self.0.dir.join(id.as_str()).exists()
    }

    /// What folders prove; the engine need not answer for it. What may live is watched from now.
    pub fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>> {
        let folders = folder::all(&self.0.dir)?;
        let found = folders.into_iter().filter_map(|(id, folder)| {
            let Some(order) = folder.order() else {
                // Made without an order: the engine never heard of it.
                folder.remove();
                return None;
            };
            let started = folder.started();
            let found = Found {
                incarnation: order.incarnation,
                epoch: order.epoch,
                boot_id: None,
                pid: started.as_ref().map(|started| started.pid),
                started_at: started.map(|started| started.at),
                trace: folder.exit().map_or(Trace::Alive, Trace::Exited),
            };
            if found.trace == Trace::Alive {
                let stop = self.hold(&id);
                tokio::spawn(self.clone().adopt(folder, order, stop));
            }
            Some((id, found))
        });
        Ok(found.collect())
    }

    pub fn launch(&self, ordered: Ordered) {
        let stop = self.hold(&ordered.container.id);
        tokio::spawn(self.clone().live(ordered, stop));
    }

    pub fn stop(&self, id: &AllocationId) {
        if let Some(stop) = self.0.live.lock().get(id) {
            stop.begin();
        }
    }

    /// Its container is gone, or the next sweep finds it without a folder.
    pub fn forget(&self, id: &AllocationId) {
        self.folder(id).remove();
    }

    pub fn output(&self, id: &AllocationId, offset: u64, most: u64, backlog: u64) -> Option<Piece> {
        let folder = self.folder(id);
        let (offset, bytes) = log_segments::read(folder.dir(), offset, most, backlog)?;
        Some(Piece { offset, bytes })
    }

    fn hold(&self, id: &AllocationId) -> Shutdown {
        let stop = Shutdown::new();
        self.0.live.lock().insert(id.clone(), stop.clone());
        stop
    }

    /// Drops the engine's container in the background; a sweep does what fails here.
    fn remove(&self, order: &Order) {
        let docker = self.clone();
        let name = container_spec::name(&order.id, order.incarnation);
        let order = order.clone();
        tokio::spawn(async move {
            if let Ok(seen) = docker.0.engine.inspect(&name).await
                && container_spec::is_ours(
                    &seen.labels,
                    &docker.0.rules,
                    &order.id,
                    order.incarnation,
                )
            {
                let _ = docker.0.engine.remove(&seen.id).await;
            }
        });
    }

    async fn say(&self, id: &AllocationId, incarnation: u64, event: Event) {
        if matches!(event, Event::Ended(_)) {
            self.0.live.lock().remove(id);
        }
        let news = News {
            id: id.clone(),
            incarnation,
            event,
        };
        // Nobody listens when the agent is ending; the folder keeps the news.
        let _ = self.0.news.send(news).await;
    }
}

/// Who this agent is to its engine, for as long as its directory lasts.
fn owner(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join("engine-owner");
    if let Ok(owner) = std::fs::read_to_string(&path)
        && !owner.is_empty()
    {
        return Ok(owner);
    }
    let owner = fresh_uuid().simple().to_string();
    files::replace(&path, owner.as_bytes()).context("cannot write the owner's mark")?;
    Ok(owner)
}

#[cfg(test)]
mod tests;
