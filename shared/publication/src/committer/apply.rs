//! Applies one command under the conditions of its request (A10).

use hayward_service::http::origin::CommandOrigin;
use tokio::sync::oneshot;

use super::{Batch, Conditions, DryRunSupport, Generation, Ledger, Moment, Sent};
use crate::{CommitError, Publisher};

type Refusal = oneshot::Receiver<CommitError>;

impl Conditions {
    /// The conditions of a request; none when it has none.
    pub(super) fn for_request(
        asked: Option<&CommandOrigin>,
        if_generation: Option<Generation>,
    ) -> Result<Option<(Self, Refusal)>, CommitError> {
        let if_revision = asked.map_or(Ok(None), |asked| asked.origin.if_revision());
        let if_revision = if_revision.map_err(|bad| CommitError::Unreadable(Box::new(bad)))?;
        let dry_run = asked.is_some_and(|asked| asked.origin.is_dry_run());
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
pub(super) fn apply<L: Ledger>(
    ledger: &mut L,
    sent: Sent<L::Command>,
    (publisher, moment): (&Publisher, &Moment),
    batch: &mut Batch<L::Rows>,
) {
    let weight = L::weight(&batch.rows);
    if let Some(conditions) = sent.conditions {
        // Earlier changes of this batch count as a new revision.
        let untouched = weight == 0 && batch.is_unchanged();
        let now = moment.revision.saturating_sub(u64::from(untouched));
        let moved = conditions.if_revision.filter(|asked| *asked != now);
        if let Some(asked) = moved.filter(|_| !ledger.repeats(&sent.command)) {
            // Fails only when the caller is gone.
            let _ = conditions.refused.send(CommitError::Moved { asked, now });
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

/// Answers a read from the last committed state. Other commands get no answer.
pub(super) fn answer_read<L: Ledger>(ledger: &mut L, sent: Sent<L::Command>, moment: &Moment) {
    if sent.reads {
        dry_run(ledger, sent.command, moment);
    }
}

fn dry_run<L: Ledger>(ledger: &mut L, command: L::Command, moment: &Moment) {
    let mut discarded = Batch::discarded(moment.revision.saturating_sub(1));
    ledger.apply(command, moment, &mut discarded);
    discarded.answer_dry_run();
}
