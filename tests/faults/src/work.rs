//! The work of users, and the proofs of its runs. Each run of a task writes lines with a random
//! number of the kernel into a file of its own. The outcome of the run has to show that number.

mod bodies;
mod orders;
mod owner;
mod proof;
mod submit;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hayward_service::Client;

use crate::fleet::Fleet;
use crate::plan::{Agent, Chosen, Order, PhaseNumber, Service, Work};

pub use orders::{carry_out, take_back};
pub use proof::{Proof, alive, proof};
pub use submit::{cancel, submit};

/// An argument of every process of exclusive work.
pub const EXCLUSIVE: &str = "never-two-at-once";

/// Clients of one user and of an operator.
#[derive(Clone)]
pub struct Doors {
    pub jobs: Client,
    pub containers: Client,
    pub operators: BTreeMap<Service, Client>,
    /// Folder of the tokens of pool owners.
    keys: PathBuf,
    /// Addresses of rm-scheduler, for owners of pools.
    scheduler: String,
}

impl Doors {
    pub fn new(fleet: &Fleet) -> anyhow::Result<Self> {
        let operators = Service::ALL
            .into_iter()
            .map(|service| Ok((service, fleet.client(service, "operator")?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            jobs: fleet.client(Service::JobConverter, "user-ada")?,
            containers: fleet.client(Service::ContainerManager, "user-ada")?,
            operators,
            keys: fleet.keys.dir().to_owned(),
            scheduler: fleet
                .wires
                .urls(crate::plan::Caller::Users, Service::RmScheduler),
        })
    }

    /// Returns the client that submits this kind of work.
    pub fn of_work(&self, work: Work) -> &Client {
        match work {
            Work::Pool { .. } => &self.operators[&Service::RmScheduler],
            _ => &self.jobs,
        }
    }
}

/// Progress of a request to end something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    No,
    Asked,
    Acknowledged,
}

/// One submission.
#[derive(Debug, Clone)]
pub struct Item {
    /// Idempotency key of the submission, which is also its name.
    pub key: String,
    pub work: Work,
    /// Id of the work. `None` until the submission was acknowledged.
    pub id: Option<String>,
    pub cancelled: Cancelled,
    /// Folder of the proofs of its runs.
    pub proofs: PathBuf,
}

impl Item {
    /// Returns the path of the work. Returns `None` if its id is not known.
    pub fn path(&self) -> Option<String> {
        let id = self.id.as_ref()?;
        Some(format!("/v1/{}/{id}", collection(self.work)))
    }

    pub fn is_service(&self) -> bool {
        matches!(self.work, Work::Service { .. } | Work::ExclusiveService)
    }
}

fn collection(work: Work) -> &'static str {
    match work {
        Work::Job { .. } | Work::FailingJob { .. } => "jobs",
        Work::Service { .. } | Work::ExclusiveService => "services",
        Work::Reservation => "reservations",
        Work::Gang { .. } => "applications",
        Work::Pool { .. } => "pools",
    }
}

/// An order that was acknowledged.
#[derive(Debug, Clone)]
pub struct Given {
    pub order: Order,
    /// Path for reading the state of the order.
    pub path: String,
}

/// All requests of a phase.
#[derive(Default)]
pub struct Ledger {
    pub items: Vec<Item>,
    pub given: Vec<Given>,
    /// Number of requests in flight.
    pub open: usize,
    /// Number of requests that were acknowledged.
    pub acknowledged: u64,
    /// Promises that were broken in answers.
    pub broken: Vec<String>,
    /// Refused orders. They are not violations.
    pub refused: Vec<String>,
}

pub type Shared = Rc<RefCell<Ledger>>;

impl Ledger {
    pub fn new_item(&mut self, dir: &Path, phase: PhaseNumber, work: Work) -> usize {
        let number = self.items.len();
        let key = format!("p{}-{}-{number}", phase.0, collection(work));
        let proofs = dir.join("proofs").join(&key);
        self.items.push(Item {
            key,
            work,
            id: None,
            cancelled: Cancelled::No,
            proofs,
        });
        number
    }

    /// Chooses an item that exists and was not cancelled.
    fn choose(&self, Chosen(number): Chosen, wanted: impl Fn(&Item) -> bool) -> Option<usize> {
        let there: Vec<usize> = (0..self.items.len())
            .filter(|at| {
                let item = &self.items[*at];
                item.id.is_some() && item.cancelled == Cancelled::No && wanted(item)
            })
            .collect();
        there.get(number as usize % there.len().max(1)).copied()
    }
}

/// Returns a node of the pool of classes.
fn other_host(chosen: Chosen) -> Agent {
    let number = chosen.0 % u32::from(Agent::IN_CLASSES) + 1;
    Agent(u8::try_from(number).unwrap_or(1))
}
