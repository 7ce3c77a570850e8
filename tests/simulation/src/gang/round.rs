//! One round of gang scheduling. First each user gets the entitlement, if necessary by preempting
//! jobs of users above theirs. Then free space is filled with any job that fits.

use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use crate::{
    cluster::Emptying,
    share::{Member, Share, two_levels},
};

pub(super) fn run(state: &mut State) {
    let fair = fair(state);
    give_due(state, &fair);
    fill(state, &fair);
}

/// Returns the fair share by account.
fn fair(state: &State) -> Vec<Share> {
    let members: Vec<Member> = state
        .accounts
        .iter()
        .map(|account| Member {
            class: account.class.0,
            class_weight: account.class.1,
            demand: account.demand,
        })
        .collect();
    two_levels(state.whole.parts, &members)
}

/// Returns the order in which accounts are served. The account with the lowest value is the worst
/// served and goes first.
fn turn(state: &State, fair: &[Share], account: usize) -> (Share, usize) {
    (
        (state.accounts[account].held << 32) / fair[account].max(1),
        account,
    )
}

fn serve_order(state: &State, fair: &[Share]) -> BTreeSet<(Share, usize)> {
    let waits = |account: &usize| !state.accounts[*account].pending.is_empty();
    let waiting = (0..state.accounts.len()).filter(waits);
    waiting.map(|account| turn(state, fair, account)).collect()
}

/// Starts the oldest job of each user if the user stays within the fair share or runs nothing.
fn give_due(state: &mut State, fair: &[Share]) {
    let mut serve_order = serve_order(state, fair);
    while let Some((_, at)) = serve_order.pop_first() {
        let account = &state.accounts[at];
        let Some(job) = account.pending.first().copied() else {
            continue;
        };
        let within = account.held + state.weight(job) <= fair[at];
        if (within || account.held == 0) && start_with_force(state, fair, job) {
            serve_order.insert(turn(state, fair, at));
        }
    }
}

fn start_with_force(state: &mut State, fair: &[Share], job: usize) -> bool {
    if state.start(job) {
        return true;
    }
    let Some(victims) = victims(state, fair, job) else {
        return false;
    };
    for victim in victims {
        state.preempt(victim);
    }
    state.start(job)
}

/// Returns the jobs to preempt, or `None` if preemption cannot make space. Their users stay at or
/// above the fair share without them. Jobs with the least lost work come first.
fn victims(state: &State, fair: &[Share], job: usize) -> Option<Vec<usize>> {
    let it = state.job(job);
    let above = |running: &usize| {
        let account = state.account_of[*running];
        state.accounts[account].held >= fair[account] + state.weight(*running)
    };
    let mut candidates: Vec<(u128, usize)> = state
        .running
        .keys()
        .filter(|running| above(running) && !state.is_protected(**running))
        .map(|running| (state.loss(*running), *running))
        .collect();
    candidates.sort_unstable();
    let mut then = Emptying::new(&state.cluster, &it.need);
    let mut gone: BTreeMap<usize, Share> = BTreeMap::new();
    let mut chosen = Vec::new();
    for (_, victim) in candidates {
        let (account, weight) = (state.account_of[victim], state.weight(victim));
        let taken = gone.entry(account).or_default();
        if state.accounts[account].held - *taken < fair[account] + weight {
            continue;
        }
        *taken += weight;
        then.remove(&state.job(victim).need, &state.running[&victim].parts);
        chosen.push(victim);
        if then.fits(it.tasks) {
            return Some(needed(state, job, then, chosen));
        }
    }
    None
}

/// Removes jobs from the victims while the others free enough space, the most expensive first.
fn needed(state: &State, job: usize, mut then: Emptying, chosen: Vec<usize>) -> Vec<usize> {
    let tasks = state.job(job).tasks;
    let mut victims = Vec::new();
    for victim in chosen.into_iter().rev() {
        let (need, parts) = (&state.job(victim).need, &state.running[&victim].parts);
        then.put_back(need, parts);
        if !then.fits(tasks) {
            then.remove(need, parts);
            victims.push(victim);
        }
    }
    victims
}

/// Starts any job that fits, one per user at a time.
fn fill(state: &mut State, fair: &[Share]) {
    let mut serve_order = serve_order(state, fair);
    while let Some((_, at)) = serve_order.pop_first() {
        let pending: Vec<usize> = state.accounts[at].pending.iter().copied().collect();
        if pending.into_iter().any(|job| state.start(job)) {
            serve_order.insert(turn(state, fair, at));
        }
    }
}
