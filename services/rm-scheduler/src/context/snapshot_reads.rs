//! Copies of the snapshot for what-if queries and policy previews, and a slot for long
//! computations.
//!
//! Making a copy stalls the rounds, so copies take at most 1/[`COPY_INTERVAL_FACTOR`] of the time.
//! A more frequent reader gets the last copy with its revision. A copy under another policy is
//! always new. One computation at a time runs on a thread of its own, and ends when it takes too
//! long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_service::http::problem::{Code, Problem};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::command::{Command, FleetCopy, PolicyPreview};

/// Number of computations that may run at the same time. Each takes a whole CPU.
const SLOTS: usize = 1;
/// Maximum time that a caller waits for the slot.
const SLOT_WAIT: Duration = Duration::from_secs(3);
/// Time after which a forecast begins no further round.
const MAX_DURATION: Duration = Duration::from_secs(5);
/// Minimum time between two copies, as a multiple of the time that a copy takes.
const COPY_INTERVAL_FACTOR: u32 = 20;

pub struct SnapshotReads {
    slot: Arc<Semaphore>,
    last: Mutex<Option<LastRead>>,
}

/// The last copy, with the time that making it took.
#[derive(Clone)]
struct LastRead {
    copy: FleetCopy,
    revision: u64,
    made_at: Instant,
    cost: Duration,
}

impl Default for SnapshotReads {
    fn default() -> Self {
        Self {
            slot: Arc::new(Semaphore::new(SLOTS)),
            last: Mutex::default(),
        }
    }
}

impl SnapshotReads {
    /// Waits for the slot of long computations.
    pub async fn acquire_slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let slot = self.slot.clone().acquire_owned();
        let slot = tokio::time::timeout(SLOT_WAIT, slot).await;
        slot.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = "the slot for forecasts and recorded rounds is in use; try again";
            Problem::new(Code::TooManyRequests, detail)
        })
    }

    /// Returns a copy of the fleet and its revision. With a `preview`, the copy also contains the
    /// fleet as it would be under that policy.
    pub async fn read(
        &self,
        handle: &Handle<Command>,
        preview: Option<PolicyPreview>,
    ) -> Result<(FleetCopy, u64), Problem> {
        let mut last = self.last.lock().await;
        let is_recent =
            |last: &&LastRead| last.made_at.elapsed() < last.cost * COPY_INTERVAL_FACTOR;
        if let Some(last) = last
            .as_ref()
            .filter(is_recent)
            .filter(|_| preview.is_none())
        {
            return Ok((last.copy.clone(), last.revision));
        }
        let preview = preview.map(Box::new);
        let committed = handle
            .execute(|reply| Command::CopyFleet(preview, reply))
            .await?;
        let Some((copy, cost)) = committed.value else {
            let detail = "not all neighbours of the scheduler have answered yet";
            return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1_000));
        };
        // A copy whose cost was zero is not stored, because it can be made again at once.
        *last = (!cost.is_zero()).then(|| LastRead {
            copy: FleetCopy {
                preview: None,
                ..copy.clone()
            },
            revision: committed.revision,
            made_at: Instant::now(),
            cost,
        });
        Ok((copy, committed.revision))
    }
}

/// Returns the condition under which a forecast plans one more round: neither the number of rounds
/// nor the time is used up. The first round is always planned.
pub fn forecast_limit(rounds: u64) -> impl FnMut(u64) -> bool {
    let started = Instant::now();
    move |planned| planned < rounds && (planned == 0 || started.elapsed() < MAX_DURATION)
}

/// Runs `work`, and returns its result and its duration in whole milliseconds.
pub fn run_timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    let cost = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(0));
    (result, cost)
}
