//! Checks the chain of audit records while the service runs. Each check continues after the last
//! one and follows a limited number of records. The end of the chain must have the revision of the
//! state (I19).

use hayward_vocabulary::invariant::{Evidence, Finding, Inquiry, Rule};

use super::{Auditor, Break, Link, rows};

pub const AUDITED: Rule = Rule {
    id: "I19",
    title: "every change is audited",
};

/// Most records followed in one check.
const RECORDS_PER_CHECK: u64 = 5_000;
/// Most records that a check may be behind. Beyond that, it starts again near the end. `hayward
/// audit verify` checks the whole chain.
const MAX_BEHIND: u64 = 50_000;

/// Progress of the checks.
#[derive(Debug, Default)]
pub(super) struct Progress {
    at: Option<Link>,
    followed: u64,
    /// First break of the chain. It stays reported until an operator has examined it and restarts
    /// the service.
    broken: Option<Break>,
}

impl Auditor {
    /// Returns the result of one check as a finding (I19).
    pub async fn check(&self) -> Finding {
        let mut checked = self.checked.lock().await;
        if checked.broken.is_none()
            && let Err(error) = self.follow(&mut checked).await
        {
            return Finding::not_checked(AUDITED, format!("the records cannot be read: {error}"));
        }
        let mut inquiry = Inquiry::into(AUDITED);
        if let Some(broken) = &checked.broken {
            let subject = format!("audit record {}", broken.record());
            inquiry.breach(Evidence::new(&subject, broken.to_string()));
        }
        Finding {
            examined: checked.followed,
            ..inquiry.end()
        }
    }

    async fn follow(&self, checked: &mut Progress) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read")
            .execute(&mut *tx)
            .await?;
        let (head, state) = (rows::head(&mut tx).await?, rows::revision(&mut tx).await?);
        let anchor = rows::anchor(&mut tx).await?;
        let mut at = match checked.at {
            // Pruned records are skipped.
            Some(at) if at.number >= anchor.number => at,
            _ => anchor,
        };
        if head.number > at.number + MAX_BEHIND {
            let near = rows::place(&mut tx, head.number - RECORDS_PER_CHECK).await?;
            at = near.unwrap_or(at);
        }
        let limit = i64::try_from(RECORDS_PER_CHECK).unwrap_or(i64::MAX);
        let records = rows::after(&mut tx, at.number, limit).await?;
        tx.commit().await?;
        let followed = records.iter().try_for_each(|record| at.follow(record));
        checked.followed += u64::try_from(records.len()).unwrap_or(0);
        let caught_up = records.len() < usize::try_from(RECORDS_PER_CHECK).unwrap_or(usize::MAX);
        // Without the end, the service has fewer records than before or a revision without a
        // record.
        let ended = || match caught_up {
            true if head.number < at.number => Err(Break::CutOff {
                last: head.number,
                recorded: head.revision,
                state,
            }),
            true => at.ends_at(state),
            false => Ok(()),
        };
        checked.broken = followed.and_then(|()| ended()).err();
        checked.at = Some(at);
        *self.checked_to.lock() = Some(at.number);
        Ok(())
    }
}
