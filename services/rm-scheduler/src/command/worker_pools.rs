//! Commands to worker pools, and their responses.

use std::collections::BTreeSet;

use hayward_publication::Reply;
use hayward_rm_scheduler_api::worker_pools::{
    CheckAnswer, EventList, IdleAnswer, OwnerConnected, PoolView, SizeAnswer, WorkerView,
};
use hayward_rm_scheduler_worker_pools::{Caller, Connect, Final, Mode, SizeRequest};
use hayward_vocabulary::{AllocationId, WorkId};

use crate::error::PoolRefusal;
use crate::model::PoolDescription;

pub type PoolReply<T> = Reply<Result<T, PoolRefusal>>;

pub enum PoolCommand {
    Create(Box<CreatePool>, PoolReply<CreatedPool>),
    List(PoolReply<Vec<PoolView>>),
    Show(WorkId, PoolReply<PoolView>),
    ListWorkers(WorkId, PoolReply<Vec<WorkerView>>),
    ReadEvents {
        pool: WorkId,
        /// Owner that identifies itself. `None` for other readers.
        caller: Option<Caller>,
        /// Number of the last event that the caller has read.
        after: u64,
        reply: PoolReply<EventList>,
    },
    ConnectOwner {
        pool: WorkId,
        connect: Connect,
        reply: PoolReply<OwnerConnected>,
    },
    DisconnectOwner {
        pool: WorkId,
        epoch: u64,
        reply: PoolReply<()>,
    },
    Change(PoolCall, PoolChange),
}

/// The pool of a change, and its caller.
pub struct PoolCall {
    pub pool: WorkId,
    pub caller: Caller,
}

/// A change by the owner or an operator.
pub enum PoolChange {
    SetSize(SizeRequest, PoolReply<SizeAnswer>),
    /// A report that a worker has started. The reply is true if the worker belongs to the pool.
    WorkerStarted(AllocationId, PoolReply<bool>),
    RemoveWorker(AllocationId, PoolReply<()>),
    ReportIdle(BTreeSet<AllocationId>, PoolReply<IdleAnswer>),
    Check(PoolReply<CheckAnswer>),
    Stop(StopPool, PoolReply<StoppedPool>),
}

/// Request of `POST /v1/pools`.
pub struct CreatePool {
    pub description: PoolDescription,
    pub mode: Mode,
    /// Number of workers that the pool starts with.
    pub initial_size: u64,
    pub max_failed: Option<i64>,
}

/// A new pool, or the pool that an earlier identical request created.
pub struct CreatedPool {
    pub pool: PoolView,
    pub replayed: bool,
}

/// Request of `POST /v1/pools/{pool}/stop`.
pub struct StopPool {
    pub status: Final,
    pub message: String,
}

/// A stopped pool.
pub struct StoppedPool {
    pub pool: PoolView,
    /// False if the pool had been stopped before.
    pub was_running: bool,
}
