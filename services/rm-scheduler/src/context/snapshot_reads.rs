//! Copies of the snapshot for what-if and policy previews, and a slot for long computations.
//!
//! Making a copy stalls the rounds, so copies are limited to one part in [`COPIES_TAKE_ONE_IN`] of
//! the time. A more frequent reader gets the last copy with its revision. A copy under another
//! policy is always new. One computation at a time runs on a thread of its own, and ends when it
//! takes too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_service::http::problem::{Code, Problem};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::command::{Command, FleetCopy, PolicyQuestion};

/// Number of computations that may run at the same time. Each takes a whole CPU.
const SLOTS: usize = 1;
/// Longest wait of a caller for the slot.
const SLOT_WAIT: Duration = Duration::from_secs(3);
/// Time after which a forecast begins no further round.
const MAX_DURATION: Duration = Duration::from_secs(5);
/// Copies take at most 1/N of the time, where N is this number.
const COPIES_TAKE_ONE_IN: u32 = 20;

pub struct SnapshotReads {
    slot: Arc<Semaphore>,
    last: Mutex<Option<LastRead>>,
}

#[derive(Clone)]
struct LastRead {
    copy: FleetCopy,
    revision: u64,
    taken: Instant,
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
    pub async fn slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let slot = self.slot.clone().acquire_owned();
        let slot = tokio::time::timeout(SLOT_WAIT, slot).await;
        slot.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = "the slot for forecasts and recorded rounds is in use; try again";
            Problem::new(Code::TooManyRequests, detail)
        })
    }
    /// Returns the fleet as it is and as it would be under another policy, with the revision.
    pub async fn read(
        &self,
        handle: &Handle<Command>,
        question: Option<PolicyQuestion>,
    ) -> Result<(FleetCopy, u64), Problem> {
        let mut last = self.last.lock().await;
        let recent = |last: &&LastRead| last.taken.elapsed() < last.cost * COPIES_TAKE_ONE_IN;
        if let Some(known) = last.as_ref().filter(recent).filter(|_| question.is_none()) {
            return Ok((known.copy.clone(), known.revision));
        }
        let question = question.map(Box::new);
        let answer = handle
            .ask(|reply| Command::CopyFleet(question, reply))
            .await?;
        let Some((copy, cost)) = answer.value else {
            let detail = "not all neighbours of the scheduler have answered yet";
            return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1_000));
        };
        // A copy whose cost was zero is not stored, because it can be made again at once.
        *last = (!cost.is_zero()).then(|| LastRead {
            copy: FleetCopy {
                under: None,
                ..copy.clone()
            },
            revision: answer.revision,
            taken: Instant::now(),
            cost,
        });
        Ok((copy, answer.revision))
    }
}

/// Returns a condition that is true while neither the rounds nor the time are used up.
pub fn within_time(rounds: u64) -> impl FnMut(u64) -> bool {
    let started = Instant::now();
    move |planned| planned < rounds && (planned == 0 || started.elapsed() < MAX_DURATION)
}

/// Runs `work`, and returns its result and its duration in whole milliseconds.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let made = work();
    let cost = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(0));
    (made, cost)
}
