//! Simulated neighbours of rm-scheduler with their five publications, and example entries of these
//! publications.

use std::collections::BTreeMap;
use std::time::Duration;

use hayward_blocklist_api::{BLOCKS, BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_container_manager_api::{CONTAINERS, ContainerEntry, ContainerState, REQUESTS};
use hayward_job_converter_api::{DEMAND, DemandEntry};
use hayward_node_status_api::{Health, NODES, NodeEntry};
use hayward_testkit::{Feed, start_neighbour};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{
    Launch, NodeName, Program, Size, Timestamp, UserName, WhenUnreachable, WorkId, WorkKind,
};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Secret in the environment of each launch. It must not appear in views and requests.
pub const SECRET: &str = "hush";

/// All neighbours, at one address.
#[derive(Clone)]
pub struct Neighbours {
    pub url: String,
    pub nodes: Feed,
    pub demand: Feed,
    pub blocks: Feed,
    pub containers: Feed,
    pub requests: Feed,
}

impl Neighbours {
    pub async fn start() -> Self {
        let feeds = [(); 5].map(|()| Feed::default());
        let [nodes, demand, blocks, containers, requests] = feeds;
        let url = start_neighbour(&[
            (NODES, &nodes),
            (DEMAND, &demand),
            (BLOCKS, &blocks),
            (CONTAINERS, &containers),
            (REQUESTS, &requests),
        ])
        .await;
        Self {
            url,
            nodes,
            demand,
            blocks,
            containers,
            requests,
        }
    }

    /// Waits until the scheduler has absorbed all changes.
    pub async fn until_absorbed(&self) {
        let Self {
            nodes,
            demand,
            blocks,
            containers,
            requests,
            ..
        } = self;
        let all = async {
            for feed in [nodes, demand, blocks, containers, requests] {
                feed.wait_until_absorbed().await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, all).await;
        result.expect("all changes to be absorbed");
    }

    pub fn node(&self, name: &str, quanta: u64) {
        self.nodes.put(name, &node(name, quanta));
    }

    pub fn submit(&self, entry: &DemandEntry) {
        self.demand.put(entry.work.as_str(), entry);
    }

    pub fn block(&self, entry: &BlockEntry) {
        self.blocks.put(&entry.key(), entry);
    }
}

/// Returns a healthy node with this number of quanta.
pub fn node(name: &str, quanta: u64) -> NodeEntry {
    NodeEntry {
        node: NodeName::new(name).unwrap(),
        pool: "default".into(),
        capacity: Size {
            cpu_milli: 64_000,
            ..Size::memory(quanta * GIB)
        },
        labels: BTreeMap::new(),
        runtimes: vec!["simulated".into()],
        health: Health::Healthy,
        schedulable: true,
        reason: "heartbeats arrive".into(),
        since: Timestamp::from_unix_ms(1),
        drain: None,
        boot_id: "boot".into(),
        agent_instance: "first".into(),
    }
}

fn new_demand(id: &str, kind: WorkKind, user: &str, quanta: u64) -> DemandEntry {
    let launch = Launch {
        program: Program::Command {
            argv: vec!["/bin/true".into()],
        },
        environment: BTreeMap::from([("SECRET".into(), SECRET.into())]),
        working_directory: None,
        stop_grace_ms: 1_000,
        traceparent: None,
        within: None,
        account: None,
        limits: None,
    };
    let single = kind != WorkKind::Job;
    DemandEntry {
        work: WorkId::new(id).unwrap(),
        kind,
        user: UserName::new(user).unwrap(),
        class: None,
        submitted_at: Timestamp::from_unix_ms(1),
        size: Size::memory(quanta * GIB),
        max_processes: if single { 1 } else { 1_000 },
        remaining_tasks: if single { 1 } else { 1_000_000 },
        threads: 1,
        task_ms: (!single).then_some(1_000),
        machines: Vec::new(),
        service: None,
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        processor: None,
        apart: None,
        host: None,
        queued: None,
        orchestrated: None,
        part: None,
        settled: std::collections::BTreeSet::new(),
        launch: (kind != WorkKind::Reservation).then_some(launch),
        traceparent: None,
    }
}

/// Returns a job with up to 1000 processes of one quantum, and a million tasks of one second.
pub fn job(id: &str, user: &str) -> DemandEntry {
    new_demand(id, WorkKind::Job, user, 1)
}

pub fn service(id: &str, user: &str) -> DemandEntry {
    new_demand(id, WorkKind::Service, user, 1)
}

pub fn reservation(id: &str, user: &str, quanta: u64) -> DemandEntry {
    new_demand(id, WorkKind::Reservation, user, quanta)
}

/// Returns a block that evacuates its node or worker at once. Without `end` it is permanent.
pub fn block(kind: BlockKind, identifier: &str, end: Option<Timestamp>) -> BlockEntry {
    BlockEntry {
        kind,
        identifier: identifier.into(),
        action: BlockAction::Evacuate,
        cause: "it smells".into(),
        start: Timestamp::from_unix_ms(1),
        end,
        sources: ["manual:operator".to_owned()].into(),
        removal_no: 0,
        job: None,
        automatic: false,
        canary: false,
        evacuation: EvacuationPolicy::Immediate,
    }
}

/// Returns the container of an allocation.
pub fn container(
    allocation: &hayward_rm_scheduler_api::AllocationEntry,
    state: ContainerState,
) -> ContainerEntry {
    ContainerEntry {
        id: allocation.id.clone(),
        work: allocation.work.clone(),
        node: allocation.node.clone(),
        state,
        started_at: None,
        reason: None,
        exit: None,
    }
}
