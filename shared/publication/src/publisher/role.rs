//! Whether this replica leads, and who is told when that changes.

use std::time::Instant;

use tokio::sync::watch;

use super::Publisher;
use crate::{CommitError, WentBack};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublisherRole {
    /// Somebody else leads, or nobody.
    Standby,
    /// The lease is ours until then, by the monotonic clock of this machine.
    Leading { epoch: u64, until: Instant },
    /// The database went back in time; nothing is written, and this says why (R9).
    WentBack(WentBack),
}

impl Publisher {
    pub fn role(&self) -> PublisherRole {
        match &*self.role.borrow() {
            PublisherRole::Leading { until, .. } if *until <= Instant::now() => {
                PublisherRole::Standby
            }
            role => role.clone(),
        }
    }

    /// The epoch while this replica leads.
    ///
    /// # Errors
    /// `Standby` or `WentBack` otherwise.
    pub fn leading(&self) -> Result<u64, CommitError> {
        match self.role() {
            PublisherRole::Leading { epoch, .. } => Ok(epoch),
            PublisherRole::Standby => Err(CommitError::Standby),
            PublisherRole::WentBack(found) => Err(CommitError::WentBack(found)),
        }
    }

    /// Whether what is in memory may be shown: while this replica leads, and after the database was
    /// found to have gone back in time (R9). Then it is as this replica committed it last.
    ///
    /// # Errors
    /// `Standby`, or `WentBack` where this process has never led that history.
    pub fn readable(&self) -> Result<(), CommitError> {
        match self.leading() {
            Err(CommitError::WentBack(found)) if found.lineage == self.lineage() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether rows may be shown: while this replica leads, and in whatever process knows that the
    /// database went back in time (R9), also one that was started after that. They are then as old
    /// as the database is, and [`crate::stale`] says so.
    ///
    /// # Errors
    /// `Standby`.
    pub fn rows_readable(&self) -> Result<(), CommitError> {
        match self.leading() {
            Err(CommitError::WentBack(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Follows changes of leadership.
    pub fn terms(&self) -> watch::Receiver<PublisherRole> {
        self.role.subscribe()
    }

    /// Stops all writing of this history, until an operator has given it another lineage.
    pub fn went_back(&self, found: WentBack) {
        let news = self.role.send_if_modified(|role| {
            let news = !matches!(role, PublisherRole::WentBack(_));
            if news {
                *role = PublisherRole::WentBack(found.clone());
            }
            news
        });
        if news {
            let evidence = found.evidence;
            tracing::error!(
                evidence,
                "the database went back in time; this service stops writing"
            );
        }
    }

    /// An operator has decided: what is in the database counts from now on.
    pub(crate) fn accept_new_history(&self) {
        tracing::warn!("the database has another lineage now; this service may lead again");
        self.role.send_replace(PublisherRole::Standby);
    }

    pub(crate) fn step_down(&self) {
        self.role.send_if_modified(|role| {
            let leading = matches!(role, PublisherRole::Leading { .. });
            if leading {
                *role = PublisherRole::Standby;
            }
            leading
        });
    }

    /// Every commit prolongs the lease, and that alone is no news: thousands of readers wait for
    /// the end of a term, and waking all of them at each commit costs more than the commit.
    pub(crate) fn lead(&self, epoch: u64, until: Instant) {
        let now = Instant::now();
        self.role.send_if_modified(|role| match role {
            PublisherRole::WentBack(_) => false,
            PublisherRole::Leading {
                epoch: held,
                until: end,
            } if *held == epoch && *end > now => {
                *end = until;
                false
            }
            _ => {
                *role = PublisherRole::Leading { epoch, until };
                true
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASE: Duration = Duration::from_mins(1);

    #[test]
    fn a_lease_that_goes_on_wakes_nobody_and_a_new_term_wakes_all() {
        let publisher = Publisher::new();
        let mut terms = publisher.terms();
        let now = Instant::now();
        publisher.lead(1, now + LEASE);
        assert!(terms.has_changed().unwrap());
        terms.mark_unchanged();
        publisher.lead(1, now + LEASE * 2);
        assert!(!terms.has_changed().unwrap(), "only the lease is longer");
        let until = match publisher.role() {
            PublisherRole::Leading { until, .. } => until,
            other => panic!("{other:?}"),
        };
        assert_eq!(until, now + LEASE * 2);
        publisher.lead(2, now + LEASE);
        assert!(terms.has_changed().unwrap());
    }

    #[test]
    fn r9_rows_are_shown_by_who_never_led_and_memory_is_not() {
        let publisher = Publisher::new();
        assert!(publisher.rows_readable().is_err(), "another replica leads");
        publisher.went_back(WentBack {
            lineage: uuid::Uuid::from_u128(7),
            evidence: "older".to_owned(),
        });
        assert!(publisher.rows_readable().is_ok());
        assert!(matches!(
            publisher.readable(),
            Err(CommitError::WentBack(_))
        ));
        publisher.accept_new_history();
        assert!(publisher.rows_readable().is_err());
    }

    #[test]
    fn a_lease_that_had_run_out_is_news_again() {
        let publisher = Publisher::new();
        publisher.lead(1, Instant::now());
        assert_eq!(publisher.leading().ok(), None);
        let terms = publisher.terms();
        publisher.lead(1, Instant::now() + LEASE);
        assert!(terms.has_changed().unwrap());
    }
}
