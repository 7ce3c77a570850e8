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

use hayward_job_converter_api::applications::ApplicationView;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_publication::committer::{Batch, Ledger as Kept, Moment, Reply, Trial, Wake};
use hayward_publication::invariants::Findings;
use hayward_publication::{Followed, Update};
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::lengthy;
use hayward_vocabulary::{AllocationId, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::applications::{self, Act, Applications, Whose};
use crate::error::Refusal;
use crate::invariants::Stages;
use crate::metrics;
use crate::orchestrators::Orchestrators;
use crate::orchestrators::commands::Act as OrchestratorAct;
use crate::shared_view::Room;
use crate::store::{self, Rows};
use crate::work::Work;

use self::amend::{Amend, Amended};
use self::commands::{Accepted, Cancel, Submit};
use self::keys::Keys;
use self::last_hosts::Homes;
use self::tasks::{Grant, Lease};

/// Someone asked, or news came.
pub enum Command {
    Submit(Box<Submit>, Reply<Result<Accepted, Refusal>>),
    Amend(Box<Amend>, Reply<Result<Amended, Refusal>>),
    Cancel(Cancel, Reply<Result<(), Refusal>>),
    Lease(Box<Lease>, Reply<Result<Grant, Refusal>>),
    Allocations(Update<AllocationEntry>, Reply<()>),
    Verdicts(Update<VerdictEntry>, Reply<()>),
    Orchestrator(Box<OrchestratorAct>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
    /// Somebody changes an application, and is answered by what they asked.
    Applications(AppId, Act),
    /// Somebody looks at applications, also for the sake of a dry run (A10).
    Looked(Act),
}

/// Work that is over. Its view stays published until it is forgotten.
pub struct Final {
    pub id: WorkId,
    pub user: UserName,
    pub runner: Option<WorkId>,
    /// The name under which hosts of its processors are remembered.
    pub home: Option<String>,
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
    pub fn show_application(
        &self,
        id: &AppId,
        whose: &Whose,
    ) -> Result<ApplicationView, applications::Refusal> {
        let verdicts = self.room.verdicts.read();
        self.applications.show(id, whose, &verdicts)
    }
}

impl Ledger {
    /// How much of a kind is not over.
    pub(crate) fn open(&self, kind: WorkKind) -> u64 {
        let open = self.works.values().filter(|work| work.kind() == kind);
        u64::try_from(open.count()).unwrap_or(u64::MAX)
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
                let report = lengthy(|| self.report(moment));
                batch.answer(reply, report);
            }
            Command::Orchestrator(act) if batch.is_trial() => {
                self.try_to_orchestrate(*act, moment, batch);
            }
            Command::Orchestrator(act) => self.orchestrate(*act, moment, batch),
            Command::Applications(of, act) if batch.is_trial() => {
                self.try_on(&of, act, moment, batch);
            }
            Command::Applications(_, act) | Command::Looked(act) => act(self, moment, batch),
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
    fn trial(&self, command: &Command) -> Trial<Self> {
        match command {
            Command::Submit(..)
            | Command::Amend(..)
            | Command::Cancel(..)
            | Command::Orchestrator(..)
            | Command::Applications(..)
            | Command::Looked(..) => Trial::ByItself,
            _ => Trial::Never,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.take_turn(moment, batch)
    }

    fn readings(&self, _moment: &Moment) -> Vec<Reading> {
        metrics::readings(self)
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
