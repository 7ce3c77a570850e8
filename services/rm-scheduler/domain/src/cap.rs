//! How many processes a piece of work can use in this round (section 5).

use hayward_vocabulary::WorkKind;

use crate::{
    books::{Books, Request},
    snapshot::{Policy, Tunables},
};

/// The cap, and what it is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cap {
    /// by limit and remaining tasks alone. Sorting goes by this, because it does not move
    /// with what the work holds.
    pub base: u64,
    /// What it could use if it might grow at once.
    pub steady: u64,
    /// what it may use in this round.
    pub now: u64,
    /// The same before the room there is was looked at: beyond this it shrinks by itself.
    pub own: u64,
    /// no rate is known yet.
    pub starting: bool,
}

/// Caps of everything that was admitted.
pub(crate) fn set_caps(books: &mut Books) {
    for at in 0..books.requests.len() {
        if books.requests[at].class.is_none() {
            continue;
        }
        let fair = books.policy(at) == Some(Policy::FairShare);
        let request = &books.requests[at];
        let mean_start = mean_start_ms(books, request);
        let cap = match request.demand.kind {
            WorkKind::Job => cap_of_job(request, &books.snapshot.tunables, mean_start),
            // Instances and reservations are one process; those held are never cut by start-up.
            WorkKind::Service | WorkKind::Reservation => {
                let one = request.demand.max_processes.min(1);
                Cap {
                    base: one,
                    steady: one,
                    now: one,
                    own: one,
                    starting: false,
                }
            }
        };
        let reach = if fair {
            request.reach.saturating_add(request.resting)
        } else {
            u64::MAX
        };
        books.requests[at].cap = Cap {
            steady: cap.steady.min(reach),
            now: cap.now.min(reach),
            ..cap
        };
    }
}

fn cap_of_job(request: &Request, tunables: &Tunables, mean_start_ms: u64) -> Cap {
    let demand = request.demand;
    let current = request.current;
    let threads = u64::from(demand.threads.max(1));
    let want = demand.remaining_tasks.div_ceil(threads).max(current);
    let base = want.min(demand.max_processes);
    let task_ms = demand.task_ms.unwrap_or(0);
    let starting = task_ms == 0;
    let potential = if tunables.use_prediction && !starting {
        let horizon = mean_start_ms + tunables.cycle_ms + tunables.prediction_fudge_ms;
        let predicted = predicted(request, horizon, base);
        if predicted < base {
            predicted.max(current).min(base)
        } else {
            base
        }
    } else {
        base
    };
    let initial = tunables.initialization_cap;
    if starting {
        let now = if initial > 0 {
            potential.min(initial)
        } else {
            potential
        };
        return Cap {
            base,
            steady: now,
            now,
            own: now,
            starting,
        };
    }
    // What was just told to leave a node had been reached before: its successors need not double
    // their way up again.
    let reached = current + request.leaving;
    let now = match (tunables.expand_by_doubling, reached) {
        (false, _) => potential,
        (true, 0) => base.min(initial.max(1)),
        (true, _) => potential.min(reached.saturating_mul(2)),
    };
    Cap {
        base,
        steady: potential.max(now),
        now,
        own: now,
        starting,
    }
}

/// processes still useful once a new one could have started.
fn predicted(request: &Request, horizon_ms: u64, base: u64) -> u64 {
    let demand = request.demand;
    let threads = u64::from(demand.threads.max(1));
    let task_ms = u128::from(demand.task_ms.unwrap_or(1).max(1));
    let done = u128::from(horizon_ms) * u128::from(request.current) * u128::from(threads);
    let done_then = (done + task_ms / 2) / task_ms;
    let left = u128::from(demand.remaining_tasks).saturating_sub(done_then);
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    match (left.div_ceil(threads), request.current) {
        (0, 0) => base,
        (0, current) => current,
        (predicted, _) => predicted,
    }
}

fn mean_start_ms(books: &Books, request: &Request) -> u64 {
    let starts = request.held.iter().filter_map(|held| {
        let allocation = books.held[*held].allocation;
        let since = allocation.running_since?;
        let took = since.ms_since(allocation.started_at.unwrap_or(allocation.granted_at));
        (allocation.running && took > 0).then_some(took)
    });
    let (sum, count) = starts.fold((0_u64, 0_u64), |(sum, count), took| (sum + took, count + 1));
    sum.checked_div(count).unwrap_or(0)
}
