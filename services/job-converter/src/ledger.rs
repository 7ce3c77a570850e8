//! The working set: all work that is not over, and what is needed to answer at once.
//!
//! State changes in three places: [`commands`] (someone asked), [`absorb`] (news came) and
//! [`round`] (time passed, or what the other two touched is put in words again). Each touches one
//! piece of work at a time; nothing here looks at all of it but the first full update of a term.

pub mod absorb;
pub mod commands;
pub mod keys;
mod life;
mod restore;
mod round;
pub mod tasks;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_publication::committer::{Batch, Ledger as Kept, Moment, Reply, Wake};
use hayward_publication::{Followed, Update};
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_vocabulary::{AllocationId, UserName, WorkId};
use rustc_hash::FxHashMap;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Refusal;
use crate::room::Room;
use crate::store::{self, Rows};
use crate::work::Work;

use self::commands::{Accepted, Cancel, Submit};
use self::keys::Keys;
use self::tasks::{Grant, Lease};

/// Someone asked, or news came.
pub enum Command {
    Submit(Box<Submit>, Reply<Result<Accepted, Refusal>>),
    Cancel(Cancel, Reply<Result<(), Refusal>>),
    Lease(Box<Lease>, Reply<Result<Grant, Refusal>>),
    Allocations(Update<AllocationEntry>, Reply<()>),
    Verdicts(Update<VerdictEntry>, Reply<()>),
}

/// Work that is over. Its view stays published until it is forgotten.
pub struct Final {
    pub id: WorkId,
    pub user: UserName,
    pub runner: Option<WorkId>,
}

/// A runner token and how much open work uses it.
pub struct Shared {
    pub token: Arc<str>,
    pub works: usize,
}

pub struct Ledger {
    room: Arc<Room>,
    works: FxHashMap<Uuid, Box<Work>>,
    finals: FxHashMap<Uuid, Final>,
    /// When each ended, oldest first.
    final_order: VecDeque<(i64, Uuid)>,
    runners: FxHashMap<WorkId, Shared>,
    keys: Keys,
    allocations: Followed<AllocationEntry>,
    verdicts_heard: Option<hayward_publication::Cursor>,
    /// When each lease ends, and the same in order; an entry of the order may be early, never late.
    lease_ends: FxHashMap<AllocationId, (Uuid, u64)>,
    lease_order: BTreeSet<(u64, AllocationId)>,
    /// When work that is held back may go on.
    holds: BTreeSet<(u64, Uuid)>,
    /// Leases whose rows have to be written.
    touched: BTreeSet<(Uuid, AllocationId)>,
    /// Work whose meaning may have changed.
    dirty: BTreeSet<Uuid>,
    /// Work that only made progress, and when that is told next.
    moving: BTreeSet<Uuid>,
    tell_progress_ms: u64,
}

impl Kept for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Room;

    async fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Room>,
    ) -> Result<Self, sqlx::Error> {
        let stored = store::load::stored(tx).await?;
        Self::restored(stored, moment, context.clone())
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Submit(submit, reply) => {
                let answer = self.submit(*submit, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Cancel(cancel, reply) => {
                let answer = self.cancel(&cancel, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Lease(lease, reply) => {
                let answer = self.lease(*lease, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Allocations(update, reply) => {
                self.absorb_allocations(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Verdicts(update, reply) => {
                self.absorb_verdicts(update, batch);
                batch.answer(reply, ());
            }
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.take_turn(moment, batch)
    }

    fn is_empty(rows: &Rows) -> bool {
        rows.is_empty()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
