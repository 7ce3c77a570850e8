//! The working set: all work that is not over, and what is needed to answer at once.
//!
//! State changes in three places: [`commands`] (someone asked), [`absorb`] (news came) and
//! [`round`] (time passed, or what the other two touched is put in words again). Each touches one
//! piece of work at a time; nothing here looks at all of it but the first full update of a term.

pub mod absorb;
pub mod amend;
pub mod commands;
mod dry_run;
mod endings;
pub mod keys;
pub mod last_hosts;
mod orchestrators;
mod processors;
mod report;
mod restore;
mod round;
pub mod tasks;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_publication::Followed;
use hayward_publication::committer::{Batch, DryRunSupport, Ledger as Kept, Moment, Wake};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::block_in_place;
use hayward_vocabulary::{AllocationId, WorkId};
use rustc_hash::FxHashMap;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::applications::{Access, Act, Applications};
use crate::command::Command;
use crate::invariants::Stages;
use crate::metrics::{self, Counts};
use crate::model::{Final, Shared};
use crate::orchestrators::Orchestrators;
use crate::shared_view::Room;
use crate::store::{self, Rows};
use crate::work::Work;

use self::keys::Keys;
use self::last_hosts::Homes;

pub struct Ledger {
    room: Arc<Room>,
    works: FxHashMap<Uuid, Box<Work>>,
    finals: FxHashMap<Uuid, Final>,
    /// When each ended, oldest first.
    final_order: VecDeque<(i64, Uuid)>,
    runners: FxHashMap<WorkId, Shared>,
    homes: Homes,
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
    /// Work that comes and goes with the maps of orchestrators; none of it is in `works`.
    orchestrators: Orchestrators,
    pub applications: Applications,
    /// From look to look at the invariants.
    stages: Stages,
    adrift: crate::invariants::Adrift,
}

impl Ledger {
    fn counts(&self) -> Counts {
        let open = |kind| {
            self.works
                .values()
                .filter(|work| work.kind() == kind)
                .count()
        };
        Counts {
            open: metrics::KINDS.map(|kind| (kind, open(kind))),
            gangs: self.applications.gang_counts(),
        }
    }

    fn act_on_applications(&mut self, act: Act, moment: &Moment, batch: &mut Batch<Rows>) {
        act(Access {
            applications: &mut self.applications,
            verdicts: &self.room.verdicts.read(),
            moment,
            batch,
        });
    }
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
        let of_orchestrators = store::orchestrators::stored(tx).await?;
        let strikes = stored.strikes.iter();
        let strikes = strikes.map(|row| (row.work, row.strikes)).collect();
        let mut ledger = Self::restored(stored, moment, context.clone())?;
        ledger.orchestrators = Orchestrators::restored(of_orchestrators)?;
        let brakes = ledger
            .orchestrators
            .restore_brakes(strikes, moment.monotonic_ms);
        ledger.holds.extend(brakes);
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Submit(submit, reply) => {
                let answer = self.submit(*submit, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Amend(amend, reply) => {
                let answer = self.amend(*amend, moment, batch);
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
            Command::Invariants(reply) => {
                let report = block_in_place(|| self.report(moment));
                batch.answer(reply, report);
            }
            Command::Orchestrator(act) if batch.is_dry_run() => {
                self.try_to_orchestrate(*act, moment, batch);
            }
            Command::Orchestrator(act) => self.orchestrate(*act, moment, batch),
            Command::Applications(of, act) if batch.is_dry_run() => {
                self.try_on(&of, act, moment, batch);
            }
            Command::Applications(_, act) | Command::Looked(act) => {
                self.act_on_applications(act, moment, batch);
            }
        }
    }

    fn repeats(&self, command: &Command) -> bool {
        match command {
            Command::Submit(submit, _) => {
                matches!(self.keys.look(submit.once), keys::Known::Same(_))
            }
            _ => false,
        }
    }

    /// There is too much work to copy all of it: what is tried knows that, or a copy is made of the
    /// one application or orchestrator that is meant.
    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Submit(..)
            | Command::Amend(..)
            | Command::Cancel(..)
            | Command::Orchestrator(..)
            | Command::Applications(..)
            | Command::Looked(..) => DryRunSupport::InPlace,
            _ => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.take_turn(moment, batch)
    }

    fn readings(&self, _moment: &Moment) -> Vec<Reading> {
        metrics::readings(&self.counts())
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
