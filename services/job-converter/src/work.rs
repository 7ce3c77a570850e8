//! A piece of work in memory while it is not over. It has one *slot* for each demand entry: a job
//! and a reservation have one, a service has one per instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission,
};
use hayward_job_converter_domain::{Brake, Facts, Pace, TaskBook};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_vocabulary::{AllocationId, Exit, NodeName, Timestamp, UserName, WorkId, WorkKind};
use uuid::Uuid;

/// How often a task may fail unless its job says otherwise.
pub const DEFAULT_ATTEMPTS: u32 = 3;

pub struct Work {
    pub id: WorkId,
    pub uuid: Uuid,
    pub user: UserName,
    pub submitted_at: Timestamp,
    pub traceparent: Option<String>,
    pub what: What,
    pub slots: Vec<Slot>,
    pub cancelled: bool,
    /// Lines of its history written so far.
    pub events: u32,
}

pub enum What {
    Job(Box<Job>),
    Service(Box<ServiceSubmission>),
    Reservation(Box<ReservationSubmission>),
}

pub struct Job {
    pub submission: Arc<JobSubmission>,
    pub book: TaskBook,
    pub runner: Runner,
    /// Tasks in one answer at most, so that a large environment does not make a huge answer.
    pub most_leased: u32,
    /// Runs that counted since this term began, and how many there were when a process last ended.
    pub counted: u64,
    pub counted_at_last_end: u64,
}

/// The token of a job's runners, and the work id its scope names.
#[derive(Debug, Clone)]
pub struct Runner {
    pub id: WorkId,
    pub token: Arc<str>,
}

#[derive(Default)]
pub struct Slot {
    pub brake: Brake,
    pub settled: BTreeSet<AllocationId>,
    pub processes: BTreeMap<AllocationId, Process>,
    /// The mean said last in the demand.
    pub task_ms: Option<u64>,
    /// How the last process ended, when that holds the work back.
    pub note: Option<String>,
}

pub struct Process {
    pub node: NodeName,
    pub incarnation: u64,
    pub state: AllocationState,
    pub vacating: bool,
    pub exit: Option<Exit>,
    /// By the monotonic clock, since it was first seen running in this term.
    pub running_since_ms: Option<u64>,
}

impl Process {
    pub fn of(entry: &AllocationEntry) -> Self {
        Self {
            node: entry.node.clone(),
            incarnation: entry.incarnation,
            state: entry.state,
            vacating: entry.vacate.is_some(),
            exit: entry.exit.clone(),
            running_since_ms: None,
        }
    }

    pub fn alive(&self) -> bool {
        self.state != AllocationState::Ended
    }
}

impl Slot {
    pub fn alive(&self) -> usize {
        self.processes
            .values()
            .filter(|process| process.alive())
            .count()
    }
}

impl Work {
    pub fn kind(&self) -> WorkKind {
        match self.what {
            What::Job(_) => WorkKind::Job,
            What::Service(_) => WorkKind::Service,
            What::Reservation(_) => WorkKind::Reservation,
        }
    }

    pub fn job(&self) -> Option<&Job> {
        match &self.what {
            What::Job(job) => Some(job),
            _ => None,
        }
    }

    pub fn job_mut(&mut self) -> Option<&mut Job> {
        match &mut self.what {
            What::Job(job) => Some(job),
            _ => None,
        }
    }

    /// The id of a slot's demand entry.
    pub fn slot_id(&self, slot: usize) -> WorkId {
        match self.what {
            What::Service(_) => self.id.instance(u32::try_from(slot).unwrap_or(u32::MAX)),
            _ => self.id.clone(),
        }
    }

    pub fn pace(&self) -> Pace {
        match self.what {
            What::Service(_) => Pace::SERVICE,
            _ => Pace::JOB,
        }
    }

    pub fn process(&self, allocation: &AllocationId) -> Option<&Process> {
        self.slots
            .iter()
            .find_map(|slot| slot.processes.get(allocation))
    }

    pub fn facts(&self, refused: bool) -> Facts {
        let held = matches!(self.what, What::Reservation(_));
        let runs = |process: &&Process| match process.state {
            AllocationState::Running | AllocationState::Stopping => true,
            // Nothing is started for a reservation: granted is held.
            _ => held && process.alive() && !process.vacating,
        };
        let processes = || self.slots.iter().flat_map(|slot| slot.processes.values());
        Facts {
            cancelled: self.cancelled,
            alive: processes().filter(|process| process.alive()).count(),
            running: processes().filter(runs).count(),
            leased: self.job().map_or(0, |job| job.book.leased()),
            refused,
        }
    }
}

/// Fresh slots for so many demand entries.
pub fn slots(count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::default()).collect()
}

/// The kind, number and instance an id is made of.
pub fn read_id(id: &WorkId) -> Option<(WorkKind, Uuid, Option<usize>)> {
    let (prefix, rest) = id.as_str().split_once('_')?;
    let kind = [WorkKind::Job, WorkKind::Service, WorkKind::Reservation]
        .into_iter()
        .find(|kind| kind.prefix() == prefix)?;
    let (number, instance) = match rest.split_once('.') {
        Some((number, instance)) => (number, Some(instance.parse().ok()?)),
        None => (rest, None),
    };
    let uuid = Uuid::try_parse(number).ok()?;
    // Only the one way of writing it that we use: no two texts for one thing.
    (uuid.simple().to_string() == number).then_some((kind, uuid, instance))
}

pub fn kind_name(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Job => "job",
        WorkKind::Service => "service",
        WorkKind::Reservation => "reservation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_has_one_spelling() {
        let uuid = Uuid::from_u128(77);
        let id = WorkId::fresh(WorkKind::Service, uuid);
        assert_eq!(read_id(&id), Some((WorkKind::Service, uuid, None)));
        assert_eq!(
            read_id(&id.instance(4)),
            Some((WorkKind::Service, uuid, Some(4)))
        );
        for other in ["job_1", "svc_x.1", "x", &format!("job_{uuid}"), "alc_0"] {
            assert_eq!(read_id(&WorkId::new(other).unwrap()), None, "{other}");
        }
    }
}
