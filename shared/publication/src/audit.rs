//! Audit records: who changed what, when, from where and on whose behalf (S24), written by the
//! committer in the transaction of the change, so that no change is without one (I19).
//!
//! Records form a chain: each carries a digest of itself and of the one before, and revisions go on
//! without a gap, so what is altered, left out or cut off is found ([`record`]). The role of the
//! service may add and read records; it cannot change one. Refused requests are written as well,
//! bounded ([`refusals`]). They are kept for 400 days; what is pruned leaves the place where the
//! chain goes on.

mod attribution;
mod check;
pub mod record;
mod refusals;
mod route;
pub(crate) mod rows;

use std::sync::Arc;
use std::time::Instant;

use hayward_service::http::origin::{CommandOrigin, RefusalObserver};
use hayward_service::runtime::clock::Clock;
use parking_lot::Mutex;
use sqlx::PgPool;

pub(crate) use self::attribution::Attribution;
pub use self::record::{AuditOutcome, AuditRecord, Break, Digest, Link};
use self::refusals::Refusals;
pub use self::route::{AuditPage, described, routes};

/// The audit records of one service, for those who do not write them.
pub struct Auditor {
    pool: PgPool,
    clock: Arc<dyn Clock>,
    refusals: Refusals,
    checked: tokio::sync::Mutex<check::Progress>,
    /// Number of the record up to which looks have followed the chain.
    checked_to: Mutex<Option<u64>>,
}

impl Auditor {
    pub(crate) fn new(pool: PgPool, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            clock,
            refusals: Refusals::new(Instant::now()),
            checked: tokio::sync::Mutex::default(),
            checked_to: Mutex::default(),
        })
    }

    /// How far the looks of this process have followed the chain, once there was one.
    pub(crate) fn checked_to(&self) -> Option<u64> {
        *self.checked_to.lock()
    }

    /// Those that may be written now.
    pub(crate) fn take_refusals(&self) -> Vec<AuditRecord> {
        self.refusals.take(Instant::now())
    }

    pub(crate) fn restore(&self, refusals: Vec<AuditRecord>) {
        self.refusals.restore(refusals);
    }
}

impl RefusalObserver for Auditor {
    fn refused(&self, asked: CommandOrigin, status: u16) {
        self.refusals.add(&asked, status, self.clock.now());
    }
}
