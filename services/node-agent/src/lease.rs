//! The lease this node has from node-status (I4, W7): where the agent puts it, and where the
//! supervisors of exclusive work find it.
//!
//! One small file for the whole node, written anew at each answered heartbeat. An agent that is
//! stopped, killed or cut off writes nothing more, and that is all it takes: whoever watches over
//! exclusive work reads what was written last and knows when to end it.

use std::path::{Path, PathBuf};

use hayward_node_agent_domain::{Lease, Tenure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::files;

/// Milliseconds since the boot of the machine, time asleep included (R4). The same for every
/// process, and whatever is done to the wall clock.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ms = now.tv_sec.saturating_mul(1_000) + now.tv_nsec / 1_000_000;
    u64::try_from(ms).unwrap_or(0)
}

pub fn file(state_dir: &Path) -> PathBuf {
    state_dir.join("lease")
}

#[derive(Serialize, Deserialize)]
struct Written {
    /// Times of another boot mean nothing.
    boot_id: String,
    lease: Lease,
}

/// None when it is not there, not whole, or of another boot.
pub fn read(file: &Path, boot_id: &str) -> Option<Lease> {
    let written: Written = files::read_json(file)?;
    (written.boot_id == boot_id).then_some(written.lease)
}

/// Passes on what node-status grants.
pub struct Keeper {
    /// None where the machine is pretended: then nobody outlives the agent.
    pub file: Option<PathBuf>,
    pub boot_id: String,
    /// Its followers are woken when a tenure begins, not each time it goes on.
    pub tenure: watch::Sender<Option<Tenure>>,
}

impl Keeper {
    /// A heartbeat that left at `asked_ms` was answered. No lease in the answer renews none.
    pub fn renew(&self, asked_ms: u64, lease_ms: Option<u64>) {
        let Some(lease_ms) = lease_ms else {
            return;
        };
        let lease = Lease::new(asked_ms, lease_ms);
        if let Err(error) = self.write(lease) {
            tracing::error!(%error, "the lease cannot be written; exclusive work will end");
            return;
        }
        self.tenure.send_if_modified(|tenure| {
            let renewed = Tenure::renewed(*tenure, lease, boottime_ms());
            let begins = tenure.is_none_or(|before| before.since_ms != renewed.since_ms);
            *tenure = Some(renewed);
            begins
        });
    }

    fn write(&self, lease: Lease) -> std::io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let boot_id = self.boot_id.clone();
        files::note(file, &serde_json::to_vec(&Written { boot_id, lease })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(dir: &Path) -> Keeper {
        let tenure = watch::channel(None).0;
        Keeper {
            file: Some(file(dir)),
            boot_id: "boot".into(),
            tenure,
        }
    }

    #[test]
    fn only_what_is_whole_and_of_this_boot_is_a_lease() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path());
        assert_eq!(read(&path, "boot"), None);
        keeper(dir.path()).renew(7, Some(50));
        assert_eq!(read(&path, "boot"), Some(Lease::new(7, 50)));
        assert_eq!(read(&path, "another"), None);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&path, "boot"), None, "{length}");
        }
    }

    #[test]
    fn an_answer_without_a_lease_renews_none() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        keeper.renew(boottime_ms(), None);
        assert!(keeper.tenure.borrow().is_none() && !file(dir.path()).exists());
        let asked_ms = boottime_ms();
        keeper.renew(asked_ms, Some(60_000));
        keeper.renew(asked_ms + 1, None);
        let tenure = keeper.tenure.borrow().unwrap();
        assert_eq!(tenure.lease, Lease::new(asked_ms, 60_000));
    }

    /// A lease nobody could read is none: the agent must not start under it.
    #[test]
    fn f29_a_lease_that_cannot_be_written_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(&dir.path().join("gone"));
        keeper.renew(boottime_ms(), Some(60_000));
        assert!(keeper.tenure.borrow().is_none());
    }

    #[test]
    fn the_clock_only_goes_on() {
        let first = boottime_ms();
        assert!(first > 0 && boottime_ms() >= first);
    }
}
