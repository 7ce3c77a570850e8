//! Submits the work of users, and reads the proofs of its runs. Each run of a task writes lines
//! with a random number into the proof file of its work, and prints that number. An outcome is
//! proven if its output shows the number of a run that wrote its end.

mod operations;
mod pool_owner;
mod proof_files;
mod request_bodies;
mod retry;
mod submit_and_cancel;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hayward_service::Client;

use crate::fleet::Fleet;
use crate::plan::{Agent, Choice, Operation, PhaseNumber, Service, Work};

pub use operations::{execute_operation, withdraw};
pub use proof_files::{Proof, live_workers, read_proof};
pub use submit_and_cancel::{cancel, submit};

/// Argument of each process of exclusive work, which marks the process in its command line.
pub const EXCLUSIVE: &str = "never-two-at-once";

/// Clients of one user and of an operator.
#[derive(Clone)]
pub struct Clients {
    /// Client of the user for job-converter.
    pub jobs: Client,
    /// Client of the user for container-manager.
    pub containers: Client,
    /// Clients of the operator.
    pub operators: BTreeMap<Service, Client>,
    /// Folder of the tokens of pool owners.
    token_folder: PathBuf,
    /// Addresses of rm-scheduler, for owners of pools.
    scheduler_urls: String,
}

impl Clients {
    pub fn new(fleet: &Fleet) -> anyhow::Result<Self> {
        let operators = Service::ALL
            .into_iter()
            .map(|service| Ok((service, fleet.client(service, "operator")?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            jobs: fleet.client(Service::JobConverter, "user-ada")?,
            containers: fleet.client(Service::ContainerManager, "user-ada")?,
            operators,
            token_folder: fleet.keys.dir().to_owned(),
            scheduler_urls: fleet
                .relays
                .urls(crate::plan::Caller::Users, Service::RmScheduler),
        })
    }

    /// Returns the client that submits this kind of work.
    pub fn for_work(&self, work: Work) -> &Client {
        match work {
            Work::Pool { .. } => &self.operators[&Service::RmScheduler],
            _ => &self.jobs,
        }
    }
}

/// Progress of the cancellation of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancellation {
    None,
    Requested,
    Acknowledged,
}

/// One piece of submitted work and its state.
#[derive(Debug, Clone)]
pub struct Item {
    /// Idempotency key of the submission, which is also the name of the work.
    pub key: String,
    pub work: Work,
    /// Id of the work. `None` until the submission was acknowledged.
    pub id: Option<String>,
    pub cancellation: Cancellation,
    /// Folder of the proof file, to which the runs of the work write.
    pub proofs: PathBuf,
}

impl Item {
    /// Returns the path of the work. Returns `None` if its id is not known.
    pub fn path(&self) -> Option<String> {
        let id = self.id.as_ref()?;
        Some(format!("/v1/{}/{id}", collection_path(self.work)))
    }

    pub fn is_service(&self) -> bool {
        matches!(self.work, Work::Service { .. } | Work::ExclusiveService)
    }
}

fn collection_path(work: Work) -> &'static str {
    match work {
        Work::Job { .. } | Work::FailingJob { .. } => "jobs",
        Work::Service { .. } | Work::ExclusiveService => "services",
        Work::Reservation => "reservations",
        Work::Gang { .. } => "applications",
        Work::Pool { .. } => "pools",
    }
}

/// An operation that was acknowledged.
#[derive(Debug, Clone)]
pub struct AcknowledgedOperation {
    pub operation: Operation,
    /// URL path at which the state of the operation can be read.
    pub path: String,
}

/// All requests of a phase and their results.
#[derive(Default)]
pub struct Ledger {
    pub items: Vec<Item>,
    pub acknowledged_operations: Vec<AcknowledgedOperation>,
    /// Number of requests in flight.
    pub in_flight: usize,
    /// Number of requests that were acknowledged.
    pub acknowledged_count: u64,
    /// Submissions that were refused, or were acknowledged with different ids.
    pub broken_promises: Vec<String>,
    /// Refused operations and cancellations. They are not violations.
    pub refusals: Vec<String>,
}

pub type SharedLedger = Rc<RefCell<Ledger>>;

impl Ledger {
    /// Adds an item that will be submitted. Returns its index.
    pub fn add_item(&mut self, dir: &Path, phase: PhaseNumber, work: Work) -> usize {
        let number = self.items.len();
        let key = format!("p{}-{}-{number}", phase.0, collection_path(work));
        let proofs = dir.join("proofs").join(&key);
        self.items.push(Item {
            key,
            work,
            id: None,
            cancellation: Cancellation::None,
            proofs,
        });
        number
    }

    /// Selects one of the items that are acknowledged, not cancelled, and accepted by `filter`.
    /// Returns its index.
    fn choose(&self, Choice(number): Choice, filter: impl Fn(&Item) -> bool) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.items.len())
            .filter(|index| {
                let item = &self.items[*index];
                item.id.is_some() && item.cancellation == Cancellation::None && filter(item)
            })
            .collect();
        candidates
            .get(number as usize % candidates.len().max(1))
            .copied()
    }
}

/// Selects a node of the pool that is divided by classes. Services run only there.
fn choose_class_node(choice: Choice) -> Agent {
    let number = choice.0 % u32::from(Agent::LAST_IN_CLASS_POOL) + 1;
    Agent(u8::try_from(number).unwrap_or(1))
}
