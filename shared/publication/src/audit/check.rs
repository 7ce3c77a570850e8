//! I19 on live state: the chain is followed from where the last look left it, a bounded number of
//! records a look, and where it is caught up with it has to end at the revision of the state.

use hayward_vocabulary::invariant::{Evidence, Finding, Inquiry, Rule};

use super::{Auditor, Break, Link, rows};

pub const AUDITED: Rule = Rule {
    id: "I19",
    title: "every change is audited",
};

/// Records that one look follows: some milliseconds.
const RECORDS_PER_CHECK: u64 = 5_000;
/// A look that is further behind begins anew near the end; the whole chain is for
/// `hayward audit verify`.
const MAX_BEHIND: u64 = 50_000;

/// What looks remember.
#[derive(Debug, Default)]
pub(super) struct Progress {
    at: Option<Link>,
    followed: u64,
    /// Once broken, broken until somebody has looked and the service is started again.
    broken: Option<Break>,
}

impl Auditor {
    /// How I19 stands, as far as one look tells.
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
            // What was pruned need not be followed any more.
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
        // Fewer records than were seen before, or a state that has no record: the end is gone.
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
