//! A step of one process's wall clock, for tests of what a wrong clock does: the file that
//! [`VARIABLE`] names holds the milliseconds by which the process is ahead, with a minus if behind,
//! and may be written again while it runs. A file that is not there says nothing.
//!
//! Not for a fleet at work: it decides when tokens end. Released images refuse it, and everywhere
//! else it is one of the insecure modes, which the status names and the log repeats (S3).
//! Durations, leases and the certificates of TLS go by other clocks and are not stepped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::http::insecure_modes::RELEASE;

pub const VARIABLE: &str = "HAYWARD_TEST_CLOCK_OFFSET_FILE";
/// Its name among the insecure modes.
pub(crate) const MODE: &str = "clock_stepped_by_a_test";

const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

static OFFSET: LazyLock<Option<Offset>> = LazyLock::new(|| {
    let (_, file) = variable()?;
    (!Path::new(RELEASE).exists()).then(|| Offset::open(file.into()))
});

/// The variable and its value where a test may step this process's clock, for a process of ours
/// that is started from here with an empty environment.
pub fn variable() -> Option<(&'static str, OsString)> {
    Some((VARIABLE, std::env::var_os(VARIABLE)?))
}

/// By how much this process's clock is ahead of its machine's; none unless a test may step it.
pub(crate) fn offset_ms() -> Option<i64> {
    OFFSET.as_ref().map(Offset::ms)
}

struct Offset {
    file: PathBuf,
    last: Mutex<(Instant, i64)>,
}

impl Offset {
    fn open(file: PathBuf) -> Self {
        let last = Mutex::new((Instant::now(), 0));
        let offset = Self { file, last };
        offset.look(&mut offset.last.lock());
        offset
    }

    fn ms(&self) -> i64 {
        let mut last = self.last.lock();
        if last.0.elapsed() >= READ_AGAIN_AFTER {
            self.look(&mut last);
        }
        last.1
    }

    /// A file that is half written changes nothing.
    fn look(&self, last: &mut (Instant, i64)) {
        let text = std::fs::read_to_string(&self.file).ok();
        let ms = text.and_then(|text| text.trim().parse().ok());
        *last = (Instant::now(), ms.unwrap_or(last.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_stepped_while_its_process_runs_by_what_a_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("offset");
        let offset = Offset::open(file.clone());
        assert_eq!(offset.ms(), 0, "no file yet");
        for (text, ms) in [("3600000\n", 3_600_000), ("", 3_600_000), ("-5", -5)] {
            std::fs::write(&file, text).unwrap();
            offset.look(&mut offset.last.lock());
            assert_eq!(offset.ms(), ms, "{text:?}");
        }
    }
}
