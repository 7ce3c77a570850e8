//! The role of this replica: leader, standby, or stopped because the database went back in time.

use std::time::Instant;

use tokio::sync::watch;

use super::Publisher;
use crate::{CommitError, WentBack};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublisherRole {
    /// Another replica leads, or no replica leads.
    Standby,
    /// This replica has the lease until the monotonic deadline.
    Leading { epoch: u64, until: Instant },
    /// The database went back in time, with the evidence. The service writes nothing (R9).
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

    /// Returns the epoch while this replica leads.
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

    /// Checks whether memory may be read: while this replica leads, and after the database went
    /// back in time. In the second case, memory holds the last commit of this replica (R9).
    ///
    /// # Errors
    /// `Standby`, or `WentBack` if this process has never led that history.
    pub fn readable(&self) -> Result<(), CommitError> {
        match self.leading() {
            Err(CommitError::WentBack(found)) if found.lineage == self.lineage() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Checks whether rows may be read: while this replica leads, and in any process after the
    /// database went back in time. [`crate::stale_responses`] marks such responses (R9).
    ///
    /// # Errors
    /// `Standby` in all other cases.
    pub fn rows_readable(&self) -> Result<(), CommitError> {
        match self.leading() {
            Err(CommitError::WentBack(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Returns a receiver of changes of leadership.
    pub fn watch_role(&self) -> watch::Receiver<PublisherRole> {
        self.role.subscribe()
    }

    /// Stops writing this history until an operator gives it another lineage.
    pub fn stop_writing(&self, found: WentBack) {
        let is_new = self.role.send_if_modified(|role| {
            let is_new = !matches!(role, PublisherRole::WentBack(_));
            if is_new {
                *role = PublisherRole::WentBack(found.clone());
            }
            is_new
        });
        if is_new {
            let evidence = found.evidence;
            tracing::error!(
                evidence,
                "the database went back in time; this service stops writing"
            );
        }
    }

    /// Accepts the content of the database, as decided by an operator.
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

    /// Sets the lease. An extension of the same term wakes no reader. Thousands wait for the end of
    /// a term, and waking them at each commit would cost more than the commit.
    pub(crate) fn set_lease(&self, epoch: u64, until: Instant) {
        let now = Instant::now();
        self.role.send_if_modified(|role| match role {
            PublisherRole::WentBack(_) => false,
            PublisherRole::Leading {
                epoch: current_epoch,
                until: deadline,
            } if *current_epoch == epoch && *deadline > now => {
                *deadline = until;
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
    fn an_extended_lease_wakes_no_reader_and_a_new_term_wakes_all() {
        let publisher = Publisher::new();
        let mut roles = publisher.watch_role();
        let now = Instant::now();
        publisher.set_lease(1, now + LEASE);
        assert!(roles.has_changed().unwrap());
        roles.mark_unchanged();
        publisher.set_lease(1, now + LEASE * 2);
        assert!(!roles.has_changed().unwrap(), "only the lease is longer");
        let until = match publisher.role() {
            PublisherRole::Leading { until, .. } => until,
            other => panic!("{other:?}"),
        };
        assert_eq!(until, now + LEASE * 2);
        publisher.set_lease(2, now + LEASE);
        assert!(roles.has_changed().unwrap());
    }

    #[test]
    fn a_replica_that_never_led_shows_rows_and_not_memory() {
        let publisher = Publisher::new();
        assert!(publisher.rows_readable().is_err(), "another replica leads");
        publisher.stop_writing(WentBack {
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
    fn a_lease_after_an_expired_one_wakes_readers() {
        let publisher = Publisher::new();
        publisher.set_lease(1, Instant::now());
        assert_eq!(publisher.leading().ok(), None);
        let roles = publisher.watch_role();
        publisher.set_lease(1, Instant::now() + LEASE);
        assert!(roles.has_changed().unwrap());
    }
}
