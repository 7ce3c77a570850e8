//! One round of gang scheduling. First each user gets the entitlement, if necessary by preempting
//! jobs of users above theirs. Then free space is filled with any job that fits.

use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use crate::{
    cluster::ReleasePreview,
    fair_shares::{Member, Share, divide_by_class_and_member},
};

pub(super) fn run(state: &mut State) {
    let fair_shares = compute_fair_shares(state);
    grant_entitlements(state, &fair_shares);
    fill_free_space(state, &fair_shares);
}

/// Returns the fair share by account.
fn compute_fair_shares(state: &State) -> Vec<Share> {
    let members: Vec<Member> = state
        .accounts
        .iter()
        .map(|account| Member {
            class: account.class.index,
            class_weight: account.class.weight,
            demand: account.demand,
        })
        .collect();
    divide_by_class_and_member(state.scale.total, &members)
}

/// Returns the sort key of an account. The account with the lowest key holds least in relation to
/// its fair share and is served first.
fn service_order_key(state: &State, fair_shares: &[Share], account: usize) -> (Share, usize) {
    (
        // The shift keeps 32 binary places of the quotient.
        (state.accounts[account].held << 32) / fair_shares[account].max(1),
        account,
    )
}

fn accounts_to_serve(state: &State, fair_shares: &[Share]) -> BTreeSet<(Share, usize)> {
    let has_waiting_jobs = |account: &usize| !state.accounts[*account].pending.is_empty();
    let waiting = (0..state.accounts.len()).filter(has_waiting_jobs);
    waiting
        .map(|account| service_order_key(state, fair_shares, account))
        .collect()
}

/// Starts the oldest job of each user if the user stays within the fair share or runs nothing.
fn grant_entitlements(state: &mut State, fair_shares: &[Share]) {
    let mut queue = accounts_to_serve(state, fair_shares);
    while let Some((_, account_index)) = queue.pop_first() {
        let account = &state.accounts[account_index];
        let Some(job) = account.pending.first().copied() else {
            continue;
        };
        let is_within_share =
            account.held + state.dominant_share(job) <= fair_shares[account_index];
        if (is_within_share || account.held == 0) && start_with_preemption(state, fair_shares, job)
        {
            queue.insert(service_order_key(state, fair_shares, account_index));
        }
    }
}

fn start_with_preemption(state: &mut State, fair_shares: &[Share], job: usize) -> bool {
    if state.start(job) {
        return true;
    }
    let Some(victims) = find_victims(state, fair_shares, job) else {
        return false;
    };
    for victim in victims {
        state.preempt(victim);
    }
    state.start(job)
}

/// Returns the jobs to preempt, or `None` if preemption cannot make space. The user of a preempted
/// job must still hold the fair share without it. Jobs with the least lost work are chosen first.
fn find_victims(state: &State, fair_shares: &[Share], job: usize) -> Option<Vec<usize>> {
    let spec = state.job(job);
    let stays_entitled = |running: &usize| {
        let account = state.account_by_job[*running];
        state.accounts[account].held >= fair_shares[account] + state.dominant_share(*running)
    };
    let mut candidates: Vec<(u128, usize)> = state
        .running
        .keys()
        .filter(|running| stays_entitled(running) && !state.is_protected(**running))
        .map(|running| (state.preemption_loss(*running), *running))
        .collect();
    candidates.sort_unstable();
    let mut preview = ReleasePreview::new(&state.cluster, &spec.request);
    let mut share_by_account: BTreeMap<usize, Share> = BTreeMap::new();
    let mut chosen_victims = Vec::new();
    for (_, victim) in candidates {
        let (account, share) = (state.account_by_job[victim], state.dominant_share(victim));
        let preempted_share = share_by_account.entry(account).or_default();
        if state.accounts[account].held - *preempted_share < fair_shares[account] + share {
            continue;
        }
        *preempted_share += share;
        preview.release(
            &state.job(victim).request,
            &state.running[&victim].placements,
        );
        chosen_victims.push(victim);
        if preview.fits(spec.tasks) {
            return Some(drop_unneeded_victims(state, job, preview, chosen_victims));
        }
    }
    None
}

/// Removes victims without which the other victims still free enough space, the most expensive
/// first.
fn drop_unneeded_victims(
    state: &State,
    job: usize,
    mut preview: ReleasePreview,
    chosen_victims: Vec<usize>,
) -> Vec<usize> {
    let tasks = state.job(job).tasks;
    let mut victims = Vec::new();
    for victim in chosen_victims.into_iter().rev() {
        let (request, placements) = (
            &state.job(victim).request,
            &state.running[&victim].placements,
        );
        preview.restore(request, placements);
        if !preview.fits(tasks) {
            preview.release(request, placements);
            victims.push(victim);
        }
    }
    victims
}

/// Starts any job that fits, one per user at a time.
fn fill_free_space(state: &mut State, fair_shares: &[Share]) {
    let mut queue = accounts_to_serve(state, fair_shares);
    while let Some((_, account_index)) = queue.pop_first() {
        let pending: Vec<usize> = state.accounts[account_index]
            .pending
            .iter()
            .copied()
            .collect();
        if pending.into_iter().any(|job| state.start(job)) {
            queue.insert(service_order_key(state, fair_shares, account_index));
        }
    }
}
