//! Applies commands under the conditions of their requests (A10).

use std::panic::AssertUnwindSafe;

use hayward_service::http::request_origin::CommandOrigin;
use tokio::sync::{mpsc, oneshot};

use super::{Batch, Conditions, DryRunSupport, Generation, Ledger, Moment, QueuedCommand, Wake};
use crate::{CommitError, Publisher};

type RefusalReceiver = oneshot::Receiver<CommitError>;

impl Conditions {
    /// Reads the conditions of a request, and creates a channel for a refusal because of them.
    /// Returns `None` if the request has no conditions.
    pub(super) fn for_request(
        origin: Option<&CommandOrigin>,
        if_generation: Option<Generation>,
    ) -> Result<Option<(Self, RefusalReceiver)>, CommitError> {
        let if_revision = origin.map_or(Ok(None), |origin| origin.request.if_revision());
        let if_revision =
            if_revision.map_err(|problem| CommitError::InvalidCondition(Box::new(problem)))?;
        let dry_run = origin.is_some_and(|origin| origin.request.is_dry_run());
        if if_revision.is_none() && if_generation.is_none() && !dry_run {
            return Ok(None);
        }
        let (refusal_sender, refusal) = oneshot::channel();
        let conditions = Self {
            if_revision,
            if_generation,
            dry_run,
            refusal_sender,
        };
        Ok(Some((conditions, refusal)))
    }
}

/// Applies a command, runs it as a dry run, or refuses it.
fn apply<L: Ledger>(
    ledger: &mut L,
    queued: QueuedCommand<L::Command>,
    publisher: &Publisher,
    moment: &Moment,
    batch: &mut Batch<L::Rows>,
) {
    let changes_before = L::count_changes(&batch.rows);
    if let Some(conditions) = queued.conditions {
        // Earlier changes of this batch count as a new revision.
        let is_unchanged = changes_before == 0 && batch.is_unchanged();
        let current = moment.revision.saturating_sub(u64::from(is_unchanged));
        let mismatch = conditions
            .if_revision
            .filter(|expected| *expected != current);
        if let Some(expected) = mismatch.filter(|_| !ledger.is_repeat(&queued.command)) {
            // Sending fails only if the caller no longer waits.
            let _ = conditions
                .refusal_sender
                .send(CommitError::Moved { expected, current });
            return;
        }
        if let Some(expected) = &conditions.if_generation
            && (batch.has_changed(expected.publication, &expected.key)
                || publisher.generation(expected.publication, &expected.key)
                    != Some(expected.generation))
        {
            let _ = conditions.refusal_sender.send(CommitError::Changed);
            return;
        }
        if conditions.dry_run {
            return match ledger.dry_run(&queued.command) {
                DryRunSupport::Unsupported => {
                    let _ = conditions.refusal_sender.send(CommitError::NoDryRun);
                }
                DryRunSupport::InPlace => dry_run(ledger, queued.command, moment),
                DryRunSupport::OnCopy(mut copy) => dry_run(&mut *copy, queued.command, moment),
            };
        }
    }
    batch.begin_command(queued.origin);
    ledger.apply(queued.command, moment, batch);
    batch.end_command(L::count_changes(&batch.rows) > changes_before);
}

/// Applies the commands of one batch, then a round. After a panic, the caller discards the batch
/// and loads the working set again, because it may be in an inconsistent state.
pub(super) fn apply_all<L: Ledger>(
    ledger: &mut L,
    commands: &mut Vec<QueuedCommand<L::Command>>,
    publisher: &Publisher,
    moment: &Moment,
    batch: &mut Batch<L::Rows>,
) -> Result<Wake, sqlx::Error> {
    let applied = std::panic::catch_unwind(AssertUnwindSafe(|| {
        for queued in commands.drain(..) {
            apply(ledger, queued, publisher, moment, batch);
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
    commands: &mut mpsc::Receiver<QueuedCommand<L::Command>>,
    last_state: &mut Option<LastState<L>>,
) {
    while let Some(queued) = commands.recv().await {
        let Some(LastState { ledger, moment }) = last_state else {
            continue;
        };
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            answer_read(ledger, queued, moment);
        }));
        // After a panic, the working set may be in an inconsistent state.
        if result.is_err() {
            *last_state = None;
        }
    }
}

/// Answers a read from the last committed state. Other commands get no reply.
fn answer_read<L: Ledger>(ledger: &mut L, queued: QueuedCommand<L::Command>, moment: &Moment) {
    if queued.is_read {
        dry_run(ledger, queued.command, moment);
    }
}

fn dry_run<L: Ledger>(ledger: &mut L, command: L::Command, moment: &Moment) {
    let mut batch = Batch::for_dry_run(moment.revision.saturating_sub(1));
    ledger.apply(command, moment, &mut batch);
    batch.answer_dry_run();
}
