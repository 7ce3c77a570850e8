//! One command is taken in: on the terms of its request (A10), and with its name in the audit.

use hayward_service::http::origin::CommandOrigin;
use tokio::sync::oneshot;

use super::{Batch, Generation, Ledger, Moment, Sent, Terms, Trial};
use crate::{CommitError, Publisher};

type Refusal = oneshot::Receiver<CommitError>;

impl Terms {
    /// Those of a request that has any.
    pub(super) fn of(
        asked: Option<&CommandOrigin>,
        only_if: Option<Generation>,
    ) -> Result<Option<(Self, Refusal)>, CommitError> {
        let only_at = asked.map_or(Ok(None), |asked| asked.origin.if_revision());
        let only_at = only_at.map_err(|bad| CommitError::Unreadable(Box::new(bad)))?;
        let dry_run = asked.is_some_and(|asked| asked.origin.is_dry_run());
        if only_at.is_none() && only_if.is_none() && !dry_run {
            return Ok(None);
        }
        let (refused, refusal) = oneshot::channel();
        let terms = Self {
            only_at,
            only_if,
            dry_run,
            refused,
        };
        Ok(Some((terms, refusal)))
    }
}

/// Applies a command, tries it, or refuses it.
pub(super) fn take<L: Ledger>(
    ledger: &mut L,
    sent: Sent<L::Command>,
    (publisher, moment): (&Publisher, &Moment),
    batch: &mut Batch<L::Rows>,
) {
    let weight = L::weight(&batch.rows);
    if let Some(terms) = sent.terms {
        // Whatever this batch has changed already counts as moved: it will be seen at the same
        // revision.
        let untouched = weight == 0 && batch.is_quiet();
        let now = moment.revision.saturating_sub(u64::from(untouched));
        let moved = terms.only_at.filter(|asked| *asked != now);
        if let Some(asked) = moved.filter(|_| !ledger.repeats(&sent.command)) {
            // Whoever asked may have gone.
            let _ = terms.refused.send(CommitError::Moved { asked, now });
            return;
        }
        if let Some(seen) = &terms.only_if
            && (batch.puts_into(seen.publication, &seen.key)
                || publisher.generation(seen.publication, &seen.key) != Some(seen.generation))
        {
            let _ = terms.refused.send(CommitError::Changed);
            return;
        }
        if terms.dry_run {
            return match ledger.trial(&sent.command) {
                Trial::Never => {
                    let _ = terms.refused.send(CommitError::NoDryRun);
                }
                Trial::ByItself => tried(ledger, sent.command, moment),
                Trial::OnACopy(mut copy) => tried(&mut *copy, sent.command, moment),
            };
        }
    }
    batch.begin(sent.asked);
    ledger.apply(sent.command, moment, batch);
    batch.end(L::weight(&batch.rows) > weight);
}

/// Answers what only reads, from what was committed last; whoever wants more is not answered.
pub(super) fn recall<L: Ledger>(ledger: &mut L, sent: Sent<L::Command>, moment: &Moment) {
    if sent.reads {
        tried(ledger, sent.command, moment);
    }
}

fn tried<L: Ledger>(ledger: &mut L, command: L::Command, moment: &Moment) {
    let mut aside = Batch::aside(moment.revision.saturating_sub(1));
    ledger.apply(command, moment, &mut aside);
    aside.answer_alone();
}
