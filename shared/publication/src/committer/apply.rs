//! Applies commands under the conditions of their requests (A10).

use std::panic::AssertUnwindSafe;

use hayward_service::http::request_actor::CommandOrigin;
use tokio::sync::{mpsc, oneshot};

use super::{Batch, Conditions, DryRunSupport, Generation, Ledger, Moment, Sent, Wake};
use crate::{CommitError, Publisher};

type Refusal = oneshot::Receiver<CommitError>;

impl Conditions {
    /// Reads the conditions of a request. They are empty if the request has none.
    pub(super) fn for_request(
        request: Option<&CommandOrigin>,
        if_generation: Option<Generation>,
    ) -> Result<Option<(Self, Refusal)>, CommitError> {
        let if_revision = request.map_or(Ok(None), |request| request.origin.if_revision());
        let if_revision = if_revision.map_err(|bad| CommitError::Unreadable(Box::new(bad)))?;
        let dry_run = request.is_some_and(|request| request.origin.is_dry_run());
        if if_revision.is_none() && if_generation.is_none() && !dry_run {
            return Ok(None);
        }
        let (refused, refusal) = oneshot::channel();
        let conditions = Self {
            if_revision,
            if_generation,
            dry_run,
            refused,
        };
        Ok(Some((conditions, refusal)))
    }
}

/// Applies a command, runs it as a dry run, or refuses it.
fn apply<L: Ledger>(
    ledger: &mut L,
    sent: Sent<L::Command>,
    publisher: &Publisher,
    moment: &Moment,
    batch: &mut Batch<L::Rows>,
) {
    let weight = L::weight(&batch.rows);
    if let Some(conditions) = sent.conditions {
        // Earlier changes of this batch count as a new revision.
        let untouched = weight == 0 && batch.is_unchanged();
        let now = moment.revision.saturating_sub(u64::from(untouched));
        let moved = conditions.if_revision.filter(|expected| *expected != now);
        if let Some(expected) = moved.filter(|_| !ledger.repeats(&sent.command)) {
            // Sending fails only if the caller no longer waits.
            let _ = conditions.refused.send(CommitError::Moved {
                asked: expected,
                now,
            });
            return;
        }
        if let Some(seen) = &conditions.if_generation
            && (batch.puts_into(seen.publication, &seen.key)
                || publisher.generation(seen.publication, &seen.key) != Some(seen.generation))
        {
            let _ = conditions.refused.send(CommitError::Changed);
            return;
        }
        if conditions.dry_run {
            return match ledger.dry_run(&sent.command) {
                DryRunSupport::Unsupported => {
                    let _ = conditions.refused.send(CommitError::NoDryRun);
                }
                DryRunSupport::InPlace => dry_run(ledger, sent.command, moment),
                DryRunSupport::OnCopy(mut copy) => dry_run(&mut *copy, sent.command, moment),
            };
        }
    }
    batch.begin(sent.origin);
    ledger.apply(sent.command, moment, batch);
    batch.end(L::weight(&batch.rows) > weight);
}

/// Applies the commands of one batch, then a round.
pub(super) fn apply_all<L: Ledger>(
    ledger: &mut L,
    commands: &mut Vec<Sent<L::Command>>,
    publisher: &Publisher,
    moment: &Moment,
    batch: &mut Batch<L::Rows>,
) -> Result<Wake, sqlx::Error> {
    let applied = std::panic::catch_unwind(AssertUnwindSafe(|| {
        for sent in commands.drain(..) {
            apply(ledger, sent, publisher, moment, batch);
        }
        ledger.round(moment, batch)
    }));
    applied.map_err(|_| sqlx::Error::Protocol("a command panicked".into()))
}

/// The last committed working set of a term.
pub(super) struct LastState<L> {
    pub ledger: L,
    pub moment: Moment,
}

/// Answers reads from the last state. Returns when the queue is closed.
pub(super) async fn answer_reads<L: Ledger>(
    commands: &mut mpsc::Receiver<Sent<L::Command>>,
    last_state: &mut Option<LastState<L>>,
) {
    while let Some(sent) = commands.recv().await {
        let Some(LastState { ledger, moment }) = last_state else {
            continue;
        };
        let answered = std::panic::catch_unwind(AssertUnwindSafe(|| {
            answer_read(ledger, sent, moment);
        }));
        if answered.is_err() {
            *last_state = None;
        }
    }
}

/// Answers a read from the last committed state. Other commands get no reply.
fn answer_read<L: Ledger>(ledger: &mut L, sent: Sent<L::Command>, moment: &Moment) {
    if sent.reads {
        dry_run(ledger, sent.command, moment);
    }
}

fn dry_run<L: Ledger>(ledger: &mut L, command: L::Command, moment: &Moment) {
    let mut discarded = Batch::discarded(moment.revision.saturating_sub(1));
    ledger.apply(command, moment, &mut discarded);
    discarded.answer_dry_run();
}
