//! Steps the wall clock of one process, for tests with a wrong clock. The file named by
//! [`VARIABLE`] contains the milliseconds by which the process is ahead, negative if it is behind.
//! The file may change while the process runs. Without the file there is no step.
//!
//! It must not be used in a real fleet, because tokens expire by this clock. Released images refuse
//! it. Elsewhere it is an insecure mode, which the status and the log show (S3). Durations, leases
//! and TLS certificates use other clocks and are not stepped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::runtime::RELEASE_MARKER;

/// Environment variable with the path of the file.
pub const VARIABLE: &str = "HAYWARD_TEST_CLOCK_OFFSET_FILE";
/// Name of the insecure mode.
pub(crate) const MODE: &str = "clock_stepped_by_a_test";

const REFRESH_INTERVAL: Duration = Duration::from_millis(50);

static OFFSET: LazyLock<Option<Offset>> = LazyLock::new(|| {
    let (_, file) = variable()?;
    (!Path::new(RELEASE_MARKER).exists()).then(|| Offset::open(file.into()))
});

/// Returns the variable and its value if a test may step the clock of this process. The variable is
/// passed to child processes that start with an empty environment.
pub fn variable() -> Option<(&'static str, OsString)> {
    Some((VARIABLE, std::env::var_os(VARIABLE)?))
}

/// Returns how many milliseconds the clock of this process is ahead of the system clock. Returns
/// `None` unless a test may step it.
pub(crate) fn offset_ms() -> Option<i64> {
    OFFSET.as_ref().map(Offset::ms)
}

struct Offset {
    file: PathBuf,
    last_read: Mutex<LastRead>,
}

/// The result of the last read of the file.
struct LastRead {
    read_at: Instant,
    offset_ms: i64,
}

impl Offset {
    fn open(file: PathBuf) -> Self {
        let last_read = Mutex::new(LastRead {
            read_at: Instant::now(),
            offset_ms: 0,
        });
        let offset = Self { file, last_read };
        offset.read(&mut offset.last_read.lock());
        offset
    }

    fn ms(&self) -> i64 {
        let mut last_read = self.last_read.lock();
        if last_read.read_at.elapsed() >= REFRESH_INTERVAL {
            self.read(&mut last_read);
        }
        last_read.offset_ms
    }

    /// Reads the file. An incompletely written file changes nothing.
    fn read(&self, last_read: &mut LastRead) {
        let text = std::fs::read_to_string(&self.file).ok();
        if let Some(offset_ms) = text.and_then(|text| text.trim().parse().ok()) {
            last_read.offset_ms = offset_ms;
        }
        last_read.read_at = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_steps_the_clock_of_a_running_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("offset");
        let offset = Offset::open(file.clone());
        assert_eq!(offset.ms(), 0, "no file yet");
        for (text, ms) in [("3600000\n", 3_600_000), ("", 3_600_000), ("-5", -5)] {
            std::fs::write(&file, text).unwrap();
            offset.read(&mut offset.last_read.lock());
            assert_eq!(offset.ms(), ms, "{text:?}");
        }
    }
}
