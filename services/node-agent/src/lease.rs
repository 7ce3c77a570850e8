//! The lease file holds the lease that node-status grants to this node. The agent writes it, and
//! the supervisors of exclusive work read it (I4).
//!
//! The file is rewritten at each answered heartbeat. If the agent is stopped, killed or
//! disconnected, the last lease expires and supervisors end their work.

use std::path::{Path, PathBuf};

use hayward_node_agent_domain::{Lease, Tenure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::atomic_files;

/// Returns the milliseconds since the boot, including suspend. All processes see the same time, and
/// changes of the wall clock have no effect (R4).
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ms = now.tv_sec.saturating_mul(1_000) + now.tv_nsec / 1_000_000;
    u64::try_from(ms).unwrap_or(0)
}

pub fn lease_file(state_dir: &Path) -> PathBuf {
    state_dir.join("lease")
}

#[derive(Serialize, Deserialize)]
struct StoredLease {
    /// Boot of the lease. A lease of another boot is invalid.
    boot_id: String,
    lease: Lease,
}

/// Reads the lease. Returns `None` if it is missing, damaged or of another boot.
pub fn read(file: &Path, boot_id: &str) -> Option<Lease> {
    let stored: StoredLease = atomic_files::read_json(file)?;
    (stored.boot_id == boot_id).then_some(stored.lease)
}

/// Stores leases granted by node-status.
pub struct LeaseWriter {
    /// Path of the lease file. `None` on a simulated node, whose containers end with the agent.
    pub file: Option<PathBuf>,
    pub boot_id: String,
    /// Sender of the current tenure. Receivers are notified when a tenure begins, not at each
    /// renewal.
    pub tenure: watch::Sender<Option<Tenure>>,
}

impl LeaseWriter {
    /// Handles the response to a heartbeat sent at `sent_ms`. A response without a lease changes
    /// nothing.
    pub fn renew(&self, sent_ms: u64, lease_ms: Option<u64>) {
        let Some(lease_ms) = lease_ms else {
            return;
        };
        let lease = Lease::new(sent_ms, lease_ms);
        if let Err(error) = self.write(lease) {
            tracing::error!(%error, "the lease cannot be written; exclusive work will end");
            return;
        }
        self.tenure.send_if_modified(|tenure| {
            let renewed = Tenure::renew(*tenure, lease, boottime_ms());
            let is_new_tenure = tenure.is_none_or(|previous| previous.since_ms != renewed.since_ms);
            *tenure = Some(renewed);
            is_new_tenure
        });
    }

    fn write(&self, lease: Lease) -> std::io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let boot_id = self.boot_id.clone();
        atomic_files::replace_unsynced(file, &serde_json::to_vec(&StoredLease { boot_id, lease })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(dir: &Path) -> LeaseWriter {
        let tenure = watch::channel(None).0;
        LeaseWriter {
            file: Some(lease_file(dir)),
            boot_id: "boot".into(),
            tenure,
        }
    }

    #[test]
    fn only_an_intact_file_of_this_boot_is_a_lease() {
        let dir = tempfile::tempdir().unwrap();
        let path = lease_file(dir.path());
        assert_eq!(read(&path, "boot"), None);
        writer(dir.path()).renew(7, Some(50));
        assert_eq!(read(&path, "boot"), Some(Lease::new(7, 50)));
        assert_eq!(read(&path, "another"), None);
        let content = std::fs::read(&path).unwrap();
        for length in 0..content.len() {
            std::fs::write(&path, &content[..length]).unwrap();
            assert_eq!(read(&path, "boot"), None, "{length}");
        }
    }

    #[test]
    fn a_response_without_a_lease_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        writer.renew(boottime_ms(), None);
        assert!(writer.tenure.borrow().is_none() && !lease_file(dir.path()).exists());
        let sent_ms = boottime_ms();
        writer.renew(sent_ms, Some(60_000));
        writer.renew(sent_ms + 1, None);
        let tenure = writer.tenure.borrow().unwrap();
        assert_eq!(tenure.lease, Lease::new(sent_ms, 60_000));
    }

    /// Supervisors could not read the lease, so the agent must not start work under it (F29).
    #[test]
    fn a_lease_that_cannot_be_written_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir.path().join("gone"));
        writer.renew(boottime_ms(), Some(60_000));
        assert!(writer.tenure.borrow().is_none());
    }

    #[test]
    fn the_clock_is_monotonic() {
        let first = boottime_ms();
        assert!(first > 0 && boottime_ms() >= first);
    }
}
