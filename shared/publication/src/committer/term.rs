//! A term of leadership: stand for it, load, serve batch after batch, step down.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_service::runtime::clock::Clock;
use hayward_vocabulary::Timestamp;
use serde_json::value::RawValue;
use sqlx::PgPool;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::batch::Answers;
use super::metrics::Pulse;
use super::{Batch, Ledger, Moment, Sent, Settings, Wake, apply};
use crate::audit::{AuditRecord, Auditor, Link, rows as records};
use crate::lease::{self, Term};
use crate::publisher::{Entry, Publisher, Standing};
use crate::{CommitError, Cursor, WentBack, rows};

/// How often old audit records are looked for, and how soon again while there are more.
const PRUNE_EACH: Duration = Duration::from_hours(1);
const PRUNE_SOON: Duration = Duration::from_secs(1);

/// Everything a term needs besides the ledger.
pub(super) struct Office<L: Ledger> {
    pub pulse: Pulse,
    pub settings: Settings,
    pub pool: PgPool,
    pub publications: &'static [&'static str],
    pub clock: Arc<dyn Clock>,
    pub publisher: Arc<Publisher>,
    pub auditor: Arc<Auditor>,
    pub context: Arc<L::Context>,
}

/// Why a term ended.
enum End {
    Stopped,
    Deposed,
    /// The database went back in time (R9).
    WentBack,
    /// The database failed us; the working set has to be read again.
    Uncertain(sqlx::Error),
}

/// Stands for leadership until told to stop.
pub(super) async fn stand<L: Ledger>(
    office: Office<L>,
    mut commands: mpsc::Receiver<Sent<L::Command>>,
    mut stop: watch::Receiver<bool>,
) {
    let pause = (office.settings.lease / 4).min(Duration::from_millis(500));
    let pulse = &office.pulse;
    let mut last = None;
    // The working set as it was committed last, once the database went back in time (R9).
    let mut remains: Option<Remains<L>> = None;
    loop {
        let stood = stand_once(&office, &mut last).await;
        if !matches!(office.publisher.standing(), Standing::WentBack(_)) {
            remains = None;
        }
        match stood {
            Ok(Some(term)) => {
                pulse.leads(term.epoch);
                info!(
                    holder = office.settings.holder,
                    epoch = term.epoch,
                    "leading"
                );
                let end = serve(&office, term, &mut commands, &mut stop, &mut remains).await;
                office.publisher.stand_by();
                pulse.stands_by();
                // Nobody may wait for an answer that this term can no longer give.
                while commands.try_recv().is_ok() {}
                let released = lease::release(&office.pool, term.epoch).await;
                match end {
                    End::Stopped => return,
                    End::WentBack => continue,
                    End::Deposed => {
                        pulse.fenced();
                        warn!(epoch = term.epoch, "deposed");
                    }
                    End::Uncertain(error) => {
                        pulse.retries(if matches!(error, sqlx::Error::Protocol(_)) {
                            "panic"
                        } else {
                            "failed"
                        });
                        warn!(%error, ?released, "the database failed; reading everything again");
                    }
                }
            }
            Ok(None) => {}
            Err(error) => {
                pulse.retries("lease_unknown");
                warn!(%error, "cannot ask for the lease");
            }
        }
        tokio::select! {
            () = recall(&mut commands, &mut remains) => return,
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// What a term leaves that nothing was committed after, and when that was.
struct Remains<L> {
    ledger: L,
    moment: Moment,
}

/// Answers who only reads; returns when nobody can ask any more.
async fn recall<L: Ledger>(
    commands: &mut mpsc::Receiver<Sent<L::Command>>,
    remains: &mut Option<Remains<L>>,
) {
    while let Some(sent) = commands.recv().await {
        let Some(Remains { ledger, moment }) = remains else {
            continue;
        };
        let answered = std::panic::catch_unwind(AssertUnwindSafe(|| {
            apply::recall(ledger, sent, moment);
        }));
        if answered.is_err() {
            *remains = None;
        }
    }
}

/// Asks for the lease; a term of a history that went back is none (R9).
async fn stand_once<L: Ledger>(
    office: &Office<L>,
    last: &mut Option<Term>,
) -> Result<Option<Term>, sqlx::Error> {
    if let Standing::WentBack(found) = office.publisher.standing() {
        let now = lease::verdict(&office.pool).await?;
        if now.lineage != found.lineage {
            office.publisher.forgive();
        } else if now.went_back.is_none() {
            lease::hold(&office.pool, found.lineage, &found.evidence).await?;
        }
        return Ok(None);
    }
    let settings = &office.settings;
    let asked = lease::acquire(&office.pool, &settings.holder, settings.lease);
    let Some(term) = office.pulse.operation("acquire lease", asked).await? else {
        let now = lease::verdict(&office.pool).await?;
        if let Some(evidence) = now.went_back {
            let lineage = now.lineage;
            office.publisher.went_back(WentBack { lineage, evidence });
        }
        return Ok(None);
    };
    let seen = i64::try_from(office.publisher.revision()).unwrap_or(i64::MAX);
    if let Some(found) = older(&term, last.as_ref(), seen) {
        office.publisher.went_back(found);
        return Ok(None);
    }
    *last = Some(term);
    Ok(Some(term))
}

/// R9: rows of the history of our last term, from before what we saw of it.
fn older(term: &Term, last: Option<&Term>, seen: i64) -> Option<WentBack> {
    let last = last.filter(|last| last.lineage == term.lineage)?;
    let evidence = if term.revision < seen {
        format!(
            "this service has seen revision {seen}, the database holds {}",
            term.revision
        )
    } else if term.epoch <= last.epoch {
        format!(
            "this service has led in term {}, the database gives out {} once more",
            last.epoch, term.epoch
        )
    } else {
        return None;
    };
    let lineage = term.lineage;
    Some(WentBack { lineage, evidence })
}

async fn serve<L: Ledger>(
    office: &Office<L>,
    term: Term,
    commands: &mut mpsc::Receiver<Sent<L::Command>>,
    stop: &mut watch::Receiver<bool>,
    remains: &mut Option<Remains<L>>,
) -> End {
    let started = Instant::now();
    let mut writer = Writer {
        office,
        term,
        started,
        at: term.revision,
        chain: Link::default(),
        prune_at: started + PRUNE_EACH,
    };
    let loading = office.pulse.operation("load working set", writer.load());
    let mut ledger = match loading.await {
        Ok(ledger) => ledger,
        Err(error) => return End::Uncertain(error),
    };
    office
        .publisher
        .lead(u64::try_from(term.epoch).unwrap_or(0), term.until);
    let mut gathered = Vec::new();
    let mut wake = Wake::After(Duration::ZERO);
    loop {
        let limit = office.settings.max_batch;
        let due = match wake {
            // A commit took longer than the lease lasts: if nobody else took it, it is ours again.
            _ if writer.term.until <= Instant::now() => Duration::ZERO,
            Wake::After(pause) => pause.min(office.settings.lease / 3),
            Wake::OnNews => office.settings.lease / 3,
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return End::Stopped,
            count = commands.recv_many(&mut gathered, limit) => {
                if count == 0 {
                    return End::Stopped;
                }
            }
            () = tokio::time::sleep(due) => {}
        }
        let moment = writer.moment();
        if matches!(office.publisher.standing(), Standing::WentBack(_)) {
            *remains = Some(Remains { ledger, moment });
            return End::WentBack;
        }
        let mut batch = Batch::default();
        office.pulse.batch(gathered.len());
        let applied = std::panic::catch_unwind(AssertUnwindSafe(|| {
            for sent in gathered.drain(..) {
                apply::take(&mut ledger, sent, (&office.publisher, &moment), &mut batch);
            }
            ledger.round(&moment, &mut batch)
        }));
        let Ok(next) = applied else {
            // F4: a record that panics its reader fails this batch, not the service; what it may
            // have half changed is read again from the rows.
            gathered.clear();
            return End::Uncertain(sqlx::Error::Protocol("a command panicked".into()));
        };
        wake = next;
        let changed = L::weight(&batch.rows) > 0 || !batch.is_quiet();
        match writer.commit(batch, moment.now).await {
            Ok(true) => {}
            Ok(false) => {
                // Why is not known yet. What was to be committed now is in the working set already.
                *remains = (!changed).then_some(Remains { ledger, moment });
                return End::Deposed;
            }
            Err(error) => return End::Uncertain(error),
        }
        office.pulse.read(|| ledger.readings(&moment));
    }
}

/// Writes batches under one term.
struct Writer<'a, L: Ledger> {
    office: &'a Office<L>,
    term: Term,
    started: Instant,
    /// Revision of the last commit.
    at: i64,
    /// The last audit record.
    chain: Link,
    /// When old audit records are looked for.
    prune_at: Instant,
}

impl<L: Ledger> Writer<'_, L> {
    fn moment(&self) -> Moment {
        Moment {
            now: self.office.clock.now(),
            monotonic_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            revision: u64::try_from(self.at + 1).unwrap_or(0),
            epoch: u64::try_from(self.term.epoch).unwrap_or(0),
        }
    }

    /// Reads the working set and the published entries as of one instant.
    async fn load(&mut self) -> Result<L, sqlx::Error> {
        let mut tx = self.office.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read")
            .execute(&mut *tx)
            .await?;
        let ledger = L::load(&mut tx, &self.moment(), &self.office.context).await?;
        let stored = rows::load_entries(&mut tx).await?;
        let positions = rows::load_followed(&mut tx).await?;
        self.chain = records::head(&mut tx).await?;
        self.office.pulse.records_until(self.chain.number);
        tx.commit().await?;
        self.office.publisher.remember(positions);
        let at = u64::try_from(self.at).unwrap_or(0);
        let entries = stored.into_iter().filter_map(|row| {
            // Entries of a publication this version does not know stay in the table, unseen.
            let name = self
                .office
                .publications
                .iter()
                .find(|name| **name == row.publication)?;
            let body = row
                .body
                .and_then(|body| RawValue::from_string(body).ok())
                .map(Into::into);
            let revision = u64::try_from(row.revision).unwrap_or(0);
            Some((revision, ((*name, row.scope, row.key), body)))
        });
        self.office.publisher.replace(
            Cursor {
                lineage: self.term.lineage,
                revision: at,
            },
            entries,
            at.saturating_sub(self.office.settings.keep_removals),
        );
        Ok(ledger)
    }

    /// Commits a batch; `false` when the lease is no longer ours.
    async fn commit(
        &mut self,
        mut batch: Batch<L::Rows>,
        now: Timestamp,
    ) -> Result<bool, sqlx::Error> {
        self.prune_when_due().await?;
        let news = batch.news(&self.office.publisher);
        let deeds = batch.deeds();
        let (rows, followed, answers) = batch.into_parts();
        let refusals = self.office.auditor.take_refusals();
        if news.is_empty() && L::weight(&rows) == 0 {
            answers.give(&Ok(u64::try_from(self.at).unwrap_or(0)));
            return self.rest(refusals).await;
        }
        let revision = u64::try_from(self.at + 1).unwrap_or(0);
        let deeds = deeds.records(&self.office.settings.holder, revision, now);
        let (records, chain) = self.chained(&refusals, deeds);
        let pulse = &self.office.pulse;
        let writing = self.write(rows, (&news, &records), &followed);
        let done = pulse.transaction(writing).await;
        if !matches!(done, Ok(true)) {
            self.office.auditor.give_back(refusals);
        }
        match done {
            Ok(true) => {}
            Ok(false) => {
                answers.give(&Err(CommitError::Standby));
                return Ok(false);
            }
            Err(error) => {
                answers.give(&Err(CommitError::Unavailable));
                return Err(error);
            }
        }
        self.chain = chain;
        self.office.pulse.recorded(&records);
        self.show(news, answers);
        Ok(true)
    }

    /// Gives records their places, refusals of before this commit first, and says where the chain
    /// goes on after them.
    fn chained(
        &self,
        refusals: &[AuditRecord],
        deeds: Vec<AuditRecord>,
    ) -> (Vec<AuditRecord>, Link) {
        let mut chain = self.chain;
        let revision = u64::try_from(self.at).unwrap_or(0);
        let refusals = refusals.iter().cloned();
        let refusals = refusals.map(|record| AuditRecord { revision, ..record });
        let records = refusals.chain(deeds).map(|record| chain.chain(record));
        (records.collect(), chain)
    }

    async fn prune_when_due(&mut self) -> Result<(), sqlx::Error> {
        if Instant::now() >= self.prune_at {
            let mut connection = self.office.pool.acquire().await?;
            let gone = records::prune(&mut connection).await?;
            // As long as there are more, soon again.
            self.prune_at = Instant::now() + if gone > 0 { PRUNE_SOON } else { PRUNE_EACH };
        }
        Ok(())
    }

    /// Nothing was changed: time for the lease, and for refusals. These have a transaction of
    /// their own, which raises no revision.
    async fn rest(&mut self, refusals: Vec<AuditRecord>) -> Result<bool, sqlx::Error> {
        if refusals.is_empty() {
            return self.renew_when_due().await;
        }
        let (records, chain) = self.chained(&refusals, Vec::new());
        let done = self.append(&records).await;
        match done {
            Ok(true) => {
                self.chain = chain;
                self.office.pulse.recorded(&records);
            }
            _ => self.office.auditor.give_back(refusals),
        }
        done
    }

    async fn append(&mut self, records: &[AuditRecord]) -> Result<bool, sqlx::Error> {
        let (asked, lease) = (Instant::now(), self.office.settings.lease);
        let mut tx = self.office.pool.begin().await?;
        records::append(&mut tx, records).await?;
        if !lease::renew(&mut *tx, self.term.epoch, self.at, lease).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        tx.commit().await?;
        self.prolong(asked);
        Ok(true)
    }

    async fn write(
        &mut self,
        rows: L::Rows,
        (news, records): (&[Entry], &[AuditRecord]),
        followed: &BTreeMap<&'static str, Cursor>,
    ) -> Result<bool, sqlx::Error> {
        let asked = Instant::now();
        let mut tx = self.office.pool.begin().await?;
        self.office.pulse.waited(asked.elapsed());
        L::write(rows, &mut tx).await?;
        if !news.is_empty() {
            rows::write_entries(&mut tx, self.at + 1, news).await?;
        }
        rows::write_followed(&mut tx, followed).await?;
        records::append(&mut tx, records).await?;
        if let Some(revision) = self.trim_due() {
            rows::forget(&mut tx, i64::try_from(revision).unwrap_or(0)).await?;
        }
        let lease = self.office.settings.lease;
        if !lease::fence(&mut tx, self.term.epoch, self.at + 1, lease).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        tx.commit().await?;
        self.office.pulse.committed();
        self.prolong(asked);
        Ok(true)
    }

    fn show(&mut self, news: Vec<Entry>, answers: Answers) {
        let forget = self.trim_due();
        self.at += 1;
        let revision = u64::try_from(self.at).unwrap_or(0);
        self.office.publisher.advance(revision, news, forget);
        answers.give(&Ok(revision));
    }

    /// Old removals are forgotten once in a while, in rows and in memory alike.
    fn trim_due(&self) -> Option<u64> {
        let keep = self.office.settings.keep_removals.max(1);
        let next = u64::try_from(self.at + 1).unwrap_or(0);
        (next > keep && next.is_multiple_of(keep / 4 + 1)).then(|| next - keep)
    }

    async fn renew_when_due(&mut self) -> Result<bool, sqlx::Error> {
        let lease = self.office.settings.lease;
        let asked = Instant::now();
        if self.term.until.saturating_duration_since(asked) > lease * 2 / 3 {
            return Ok(true);
        }
        let renewing = lease::renew(&self.office.pool, self.term.epoch, self.at, lease);
        let ours = self.office.pulse.operation("renew lease", renewing).await?;
        if ours {
            self.prolong(asked);
        }
        Ok(ours)
    }

    fn prolong(&mut self, asked: Instant) {
        self.term.until = asked + self.office.settings.lease;
        let epoch = u64::try_from(self.term.epoch).unwrap_or(0);
        self.office.publisher.lead(epoch, self.term.until);
    }
}
