//! Malleable jobs: a job is its tasks × its run time of divisible work, done at a rate equal to the
//! processes it has at the moment, which may be any number up to its tasks.
//!
//! Time is in milliseconds. Whoever shares the cluster out looks every ten seconds, and only when
//! something arrived or ended since. Processes start and go at once.

mod fluid;
mod production;
mod unsound;
mod world;

pub use fluid::Fluid;
pub use production::{BadPolicy, Production};
pub use unsound::Unsound;
pub use world::World;

use crate::{
    case::{Case, Progress},
    measure::{Books, Fairness, Moment, Refused},
};

/// Milliseconds between looks.
const TICK_MS: u64 = 10_000;

/// Who gives processes and takes them back.
pub trait Sharing {
    /// One look at the world. Tells when it wants to look again if nothing happens until then.
    ///
    /// # Errors
    /// When what it decided cannot be: nothing of it is carried out.
    fn round(&mut self, world: &mut World) -> Result<Option<Moment>, Unsound>;

    /// Why these jobs, which never ran, still wait when nothing happens any more.
    fn why_waiting(&self, _jobs: &[usize]) -> Vec<(usize, Refused)> {
        Vec::new()
    }
}

/// # Errors
/// When a round fails, which ends it there.
pub fn simulate(
    case: &Case,
    sharing: &mut dyn Sharing,
    fairness: &Fairness,
    progress: Progress,
) -> Result<Books, Unsound> {
    let mut world = World::new(case, fairness);
    let first = world.now();
    let next_tick = |at: Moment| first + (at - first).div_ceil(TICK_MS) * TICK_MS;
    let mut arrivals = (0..case.jobs.len()).peekable();
    let mut tick: Option<Moment> = None;
    let mut done = 0;
    loop {
        let arrival = arrivals.peek().map(|job| case.submit_s(*job) * 1000);
        let Some(now) = [arrival, world.next_end(), tick]
            .into_iter()
            .flatten()
            .min()
        else {
            break;
        };
        world.advance(now);
        let mut news = false;
        while world.end_one() {
            done += 1;
            news = true;
            progress(done);
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) * 1000 == now) {
            world.submit(job);
            news = true;
        }
        if news {
            let next = next_tick(now);
            tick = Some(tick.map_or(next, |tick| tick.min(next)));
        }
        if tick == Some(now) {
            let again = sharing.round(&mut world)?;
            tick = again.map(|at| next_tick(at.max(now + 1)));
        }
    }
    for (job, why) in sharing.why_waiting(&world.never_started()) {
        world.still_waits(job, why);
    }
    Ok(world.close())
}

#[cfg(test)]
mod tests;
