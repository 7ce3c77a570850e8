//! Watches the lease of exclusive work, independently of the agent (I4).
//!
//! A timer expires when the known lease requires an action. The clock of the timer counts the time
//! in suspend, so a node that slept ends its work when it wakes. The lease file is read only when
//! the timer expires, not at each renewal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use hayward_node_agent_domain::{Lease, LeaseAction, lease};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::lease::{boottime_ms, read};
use crate::process_identity;

pub struct WatchedLease {
    file: PathBuf,
    boot_id: String,
    /// Newest known lease. `None` before the first was read.
    last: Option<Lease>,
    timer: OwnedFd,
}

impl WatchedLease {
    pub fn new(file: PathBuf) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            file,
            boot_id: process_identity::boot_id(),
            last: None,
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
        })
    }

    /// Returns the required action on the work. The timer expires when this must be called again.
    pub fn required_action(&mut self) -> io::Result<LeaseAction> {
        let now_ms = boottime_ms();
        let mut action = lease::required_action(now_ms, self.last);
        if !matches!(action, LeaseAction::Run { .. }) {
            let stored = read(&self.file, &self.boot_id);
            self.last = Lease::latest(self.last, stored, now_ms);
            action = lease::required_action(now_ms, self.last);
        }
        match action {
            LeaseAction::Run { until_ms } => self.set_timer(until_ms)?,
            LeaseAction::Stop { kill_at_ms } => self.set_timer(kill_at_ms)?,
            LeaseAction::Kill => self.set_timer(0)?,
        }
        Ok(action)
    }

    /// Returns why the work ends, for display.
    pub fn expiry_reason(&self) -> String {
        let Some(lease) = self.last else {
            return "its node has no lease".to_owned();
        };
        let ms = lease.lease_ms();
        format!("the lease of its node ran out: no heartbeat was answered for {ms} ms")
    }

    /// Sets the timer. Zero disables it.
    fn set_timer(&self, at_ms: u64) -> io::Result<()> {
        let seconds = |ms: u64| i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
        let no_repetition = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let expiration = Timespec {
            tv_sec: seconds(at_ms),
            tv_nsec: i64::try_from(at_ms % 1_000).unwrap_or(0) * 1_000_000,
        };
        let setting = Itimerspec {
            it_interval: no_repetition,
            it_value: expiration,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }
}

impl AsFd for WatchedLease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
