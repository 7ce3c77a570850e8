//! Checks the chain of audit records while the service runs. Each check continues after the last
//! one and follows a limited number of records. The end of the chain must have the revision of the
//! state (I19).

use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};

use super::{Auditor, Break, Link, queries};

/// The invariant that this module checks.
pub const AUDITED: Rule = Rule {
    id: "I19",
    title: "every change is audited",
};

/// Maximum number of records that one check reads.
const RECORDS_PER_CHECK: u64 = 5_000;
/// Maximum number of unchecked records. Beyond that, a check starts again near the end. `hayward
/// audit verify` checks the whole chain.
const MAX_BEHIND: u64 = 50_000;

/// Progress of the checks.
#[derive(Debug, Default)]
pub(super) struct Progress {
    position: Option<Link>,
    verified_records: u64,
    /// First break of the chain. It stays reported until an operator has examined it and restarts
    /// the service.
    first_break: Option<Break>,
}

impl Auditor {
    /// Returns the result of one check as a finding (I19).
    pub async fn check(&self) -> Finding {
        let mut progress = self.check_progress.lock().await;
        if progress.first_break.is_none()
            && let Err(error) = self.verify_next(&mut progress).await
        {
            return Finding::not_checked(AUDITED, format!("the records cannot be read: {error}"));
        }
        let mut inquiry = Inquiry::new(AUDITED);
        if let Some(first_break) = &progress.first_break {
            let subject = format!("audit record {}", first_break.record());
            inquiry.add_violation(Evidence::new(&subject, first_break.to_string()));
        }
        Finding {
            examined: progress.verified_records,
            ..inquiry.finish()
        }
    }

    /// Follows the chain from the last position, and checks its end if the end is reached.
    async fn verify_next(&self, progress: &mut Progress) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read")
            .execute(&mut *tx)
            .await?;
        let (head, state) = (
            queries::head(&mut tx).await?,
            queries::revision(&mut tx).await?,
        );
        let anchor = queries::anchor(&mut tx).await?;
        let mut position = match progress.position {
            // Pruned records are skipped.
            Some(position) if position.number >= anchor.number => position,
            _ => anchor,
        };
        if head.number > position.number + MAX_BEHIND {
            let near_end = queries::link_after(&mut tx, head.number - RECORDS_PER_CHECK).await?;
            position = near_end.unwrap_or(position);
        }
        let limit = i64::try_from(RECORDS_PER_CHECK).unwrap_or(i64::MAX);
        let records = queries::records_after(&mut tx, position.number, limit).await?;
        tx.commit().await?;
        let verified = records
            .iter()
            .try_for_each(|record| position.advance(record));
        progress.verified_records += u64::try_from(records.len()).unwrap_or(0);
        let caught_up = records.len() < usize::try_from(RECORDS_PER_CHECK).unwrap_or(usize::MAX);
        // At its end, the chain must not have fewer records than before, and the state must not
        // have a revision without a record.
        let check_end = || match caught_up {
            true if head.number < position.number => Err(Break::CutOff {
                last: head.number,
                recorded: head.revision,
                state,
            }),
            true => position.check_end(state),
            false => Ok(()),
        };
        progress.first_break = verified.and_then(|()| check_end()).err();
        progress.position = Some(position);
        *self.checked_to.lock() = Some(position.number);
        Ok(())
    }
}
