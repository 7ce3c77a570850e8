//! Audit records: the actor, time, source and beneficiary of each change. The committer writes them
//! in the transaction of the change, so every change has a record (S24).
//!
//! Records form a chain: each contains a digest of itself and of the previous record. Revisions
//! have no gap. The check therefore detects altered, missing and cut off records ([`record`]). The
//! database role of the service can add and read records but cannot change them. Refused requests
//! are recorded too, within limits ([`refusals`]). Records are stored for 400 days. Pruning stores
//! the position from which the chain continues.

mod attribution;
mod check;
pub(crate) mod queries;
pub mod record;
mod refusals;
mod route;

use std::sync::Arc;
use std::time::Instant;

use hayward_service::http::request_origin::{CommandOrigin, RefusalObserver};
use hayward_service::runtime::clock::Clock;
use parking_lot::Mutex;
use sqlx::PgPool;

pub(crate) use self::attribution::Attribution;
pub use self::record::{AuditOutcome, AuditRecord, Break, Digest, Link};
use self::refusals::Refusals;
pub use self::route::{AuditPage, openapi_routes, routes};

/// Read access to the audit records of one service.
pub struct Auditor {
    pool: PgPool,
    clock: Arc<dyn Clock>,
    refusals: Refusals,
    check_progress: tokio::sync::Mutex<check::Progress>,
    /// Number of the record up to which the chain was checked. `None` before the first check.
    checked_to: Mutex<Option<u64>>,
}

impl Auditor {
    pub(crate) fn new(pool: PgPool, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            clock,
            refusals: Refusals::new(Instant::now()),
            check_progress: tokio::sync::Mutex::default(),
            checked_to: Mutex::default(),
        })
    }

    /// Returns the number of the record up to which this process has checked the chain. `None`
    /// before the first check.
    pub(crate) fn checked_to(&self) -> Option<u64> {
        *self.checked_to.lock()
    }

    /// Takes the refusal records that may be written now.
    pub(crate) fn take_refusals(&self) -> Vec<AuditRecord> {
        self.refusals.take(Instant::now())
    }

    /// Puts back refusal records that could not be written.
    pub(crate) fn restore(&self, refusals: Vec<AuditRecord>) {
        self.refusals.restore(refusals);
    }
}

impl RefusalObserver for Auditor {
    fn refused(&self, request: CommandOrigin, status: u16) {
        self.refusals.add(&request, status, self.clock.now());
    }
}
