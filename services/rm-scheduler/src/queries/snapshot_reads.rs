//! Looks at the fleet for those who reckon on a copy of it: what-if, and who reads a kept round.
//!
//! A look is a copy that the round's own thread has to make, so looks are rationed: at most one
//! part in [`LOOKS_TAKE_ONE_IN`] of the time. Who asks more often is answered from the last look,
//! and told its revision; only a look under another policy is always fresh. What follows runs on a
//! thread of its own, one such question at a time, and stops when it takes too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_service::http::problem::{Code, Problem};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::command::{Command, FleetCopy, PolicyQuestion};

/// Forecasts and readings at the same time: they take a whole processor each.
const THINKING: usize = 1;
/// How long one waits for its turn.
const TURN: Duration = Duration::from_secs(3);
/// No forecast begins another round after this; it says how far it went.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of the time that looks take at most.
const LOOKS_TAKE_ONE_IN: u32 = 20;

pub struct SnapshotReads {
    thinking: Arc<Semaphore>,
    last: Mutex<Option<LastRead>>,
}

#[derive(Clone)]
struct LastRead {
    look: FleetCopy,
    revision: u64,
    taken: Instant,
    cost: Duration,
}

impl Default for SnapshotReads {
    fn default() -> Self {
        Self {
            thinking: Arc::new(Semaphore::new(THINKING)),
            last: Mutex::default(),
        }
    }
}

impl SnapshotReads {
    /// A place among the few that may think at the same time.
    pub async fn thinking(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = self.thinking.clone().acquire_owned();
        let turn = tokio::time::timeout(TURN, turn).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = "others who ask for a forecast or a kept round are being answered";
            Problem::new(Code::TooManyRequests, detail)
        })
    }
    /// The fleet as it is, and as it would be under another policy; with its revision.
    pub async fn look(
        &self,
        handle: &Handle<Command>,
        asked: Option<PolicyQuestion>,
    ) -> Result<(FleetCopy, u64), Problem> {
        let mut last = self.last.lock().await;
        let fresh = |last: &&LastRead| last.taken.elapsed() < last.cost * LOOKS_TAKE_ONE_IN;
        if let Some(known) = last.as_ref().filter(fresh).filter(|_| asked.is_none()) {
            return Ok((known.look.clone(), known.revision));
        }
        let asked = asked.map(Box::new);
        let answer = handle.ask(|reply| Command::CopyFleet(asked, reply)).await?;
        let Some((look, cost)) = answer.value else {
            let detail = "the scheduler has not heard from all its neighbours yet";
            return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1_000));
        };
        // What cost nothing need not be kept.
        *last = (!cost.is_zero()).then(|| LastRead {
            look: FleetCopy {
                under: None,
                ..look.clone()
            },
            revision: answer.revision,
            taken: Instant::now(),
            cost,
        });
        Ok((look, answer.revision))
    }
}

/// Goes on for so many rounds, as long as there is time.
pub fn within_time(rounds: u64) -> impl FnMut(u64) -> bool {
    let started = Instant::now();
    move |planned| planned < rounds && (planned == 0 || started.elapsed() < PATIENCE)
}

/// How long something takes, in whole milliseconds: what takes less costs nothing.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let made = work();
    let cost = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(0));
    (made, cost)
}
