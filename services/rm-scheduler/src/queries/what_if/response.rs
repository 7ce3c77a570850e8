//! Converts a forecast to a response of the API, without the names that the caller may not see.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::what_if as api;
use hayward_rm_scheduler_domain::forecast::{Departure, Forecast, ProcessCountChange, Timeline};
use hayward_rm_scheduler_domain::{Verdict, plan};
use hayward_vocabulary::{UserName, WorkId};

use super::Requester;
use crate::translate::published_entries;

/// Maximum number of entries of one list.
const MAX_ENTRIES: usize = 10_000;

/// Converts a forecast. The caller of this function adds the time, the revision, the silent
/// neighbour and the previews of drains.
pub fn to_response(forecast: &Forecast, requester: &Requester) -> api::Forecast {
    let timeline = &forecast.with;
    let may_see = |user: &UserName| requester.may_see_user(user);
    let mut left_out = BTreeMap::new();
    let mut starts = started_processes(timeline);
    starts.retain(|start| may_see(&start.user));
    let mut waits = waiting_work(timeline);
    waits.retain(|wait| requester.sees_all_users || wait.user.as_ref().is_some_and(may_see));
    let visible = timeline.leaves.iter().filter(|leave| may_see(&leave.user));
    let mut leaves: Vec<_> = visible
        .map(|it| to_vacated_process(it, requester))
        .collect();
    let mut moves = process_count_changes(forecast);
    moves.retain(|it| may_see(&it.user));
    truncate("starts", &mut starts, &mut left_out);
    truncate("waits", &mut waits, &mut left_out);
    truncate("leaves", &mut leaves, &mut left_out);
    truncate("moves", &mut moves, &mut left_out);
    api::Forecast {
        revision: 0,
        at: hayward_vocabulary::Timestamp::default(),
        rounds: timeline.rounds,
        settled: timeline.settled,
        silent: None,
        starts,
        waits,
        leaves,
        leaves_of_others: vacated_processes_of_others(timeline, requester),
        moves,
        shares: shares_change(&forecast.without.shares, &timeline.shares, requester),
        drains: Vec::new(),
        left_out,
    }
}

/// Shortens a list, and records in `left_out` how many entries are missing.
fn truncate<T>(name: &str, entries: &mut Vec<T>, left_out: &mut BTreeMap<String, u64>) {
    if entries.len() > MAX_ENTRIES {
        left_out.insert(name.to_owned(), (entries.len() - MAX_ENTRIES) as u64);
        entries.truncate(MAX_ENTRIES);
    }
}

/// Sums the starts of each piece of work by round and node.
fn started_processes(timeline: &Timeline) -> Vec<api::StartedProcesses> {
    let mut entries: BTreeMap<(u64, &WorkId, &str), api::StartedProcesses> = BTreeMap::new();
    for start in &timeline.starts {
        let key = (start.round, &start.work, start.node.as_str());
        let entry = entries.entry(key).or_insert_with(|| api::StartedProcesses {
            round: start.round,
            work: start.work.clone(),
            user: start.user.clone(),
            class: start.class.clone(),
            node: start.node.clone(),
            processes: 0,
            order: start.quanta,
        });
        entry.processes += 1;
    }
    entries.into_values().collect()
}

/// Returns the work that waits at the end of the forecast.
fn waiting_work(timeline: &Timeline) -> Vec<api::WaitingWork> {
    let processes = timeline.processes();
    let users: BTreeMap<&WorkId, &UserName> =
        processes.map(|(work, (user, ..))| (work, user)).collect();
    let to_entry = |(work, verdict): (&WorkId, &Verdict)| api::WaitingWork {
        work: work.clone(),
        user: users.get(work).copied().cloned(),
        class: verdict.class.as_deref().map(str::to_owned),
        reason: verdict.reason,
        refused: verdict.refused,
        detail: verdict.detail.clone(),
    };
    timeline.waiting().map(to_entry).collect()
}

/// Returns the user that benefits from the preemption of this process, if it is known.
fn beneficiary_user(leave: &Departure) -> Option<&UserName> {
    let receipt = leave.receipt.as_ref()?;
    receipt.for_user.as_ref()
}

/// Sums the preemptions of users that the requester may not see, for work of users that it may see.
fn vacated_processes_of_others(
    timeline: &Timeline,
    requester: &Requester,
) -> Option<api::VacatedProcessesOfOthers> {
    let others = timeline
        .leaves
        .iter()
        .filter(|it| !requester.may_see_user(&it.user));
    let caused =
        others.filter(|it| beneficiary_user(it).is_some_and(|user| requester.may_see_user(user)));
    let sum = caused.fold(api::VacatedProcessesOfOthers::default(), |sum, it| {
        api::VacatedProcessesOfOthers {
            processes: sum.processes + 1,
            quanta: sum.quanta + it.quanta,
            lost_ms: sum.lost_ms + it.receipt.as_ref().map_or(0, |receipt| receipt.lost_ms),
        }
    });
    (sum.processes > 0).then_some(sum)
}

fn to_vacated_process(leave: &Departure, requester: &Requester) -> api::VacatedProcess {
    let receipt = leave.receipt.as_ref();
    // The beneficiary is named only to a requester that may see its user.
    let visible_receipt = receipt
        .filter(|_| beneficiary_user(leave).is_some_and(|user| requester.may_see_user(user)));
    api::VacatedProcess {
        round: leave.round,
        // A process that starts only in the forecast has no id outside the forecast.
        allocation: (!leave.forecast).then(|| leave.allocation.clone()),
        work: leave.work.clone(),
        user: leave.user.clone(),
        node: leave.node.clone(),
        order: leave.quanta,
        reason: published_entries::vacate_reason(leave.reason),
        detail: leave.detail.clone(),
        lost_ms: receipt.map(|receipt| receipt.lost_ms),
        beneficiary: visible_receipt.and_then(|receipt| receipt.beneficiary.clone()),
        for_user: visible_receipt.and_then(|receipt| receipt.for_user.clone()),
    }
}

/// Returns the work whose number of processes changes.
fn process_count_changes(forecast: &Forecast) -> Vec<api::ProcessCountChange> {
    let to_change = |(work, change): (WorkId, ProcessCountChange)| api::ProcessCountChange {
        work,
        user: change.user,
        class: change.class,
        now: change.now,
        without: change.without,
        with: change.with,
    };
    forecast.moves().into_iter().map(to_change).collect()
}

fn shares_change(
    without: &plan::Shares,
    with: &plan::Shares,
    requester: &Requester,
) -> api::SharesChange {
    let classes: BTreeSet<&String> = without.classes.keys().chain(with.classes.keys()).collect();
    let change_of_class = |name: &String| {
        let (without, with) = (without.classes.get(name), with.classes.get(name));
        class_change(name, without, with, requester)
    };
    api::SharesChange {
        capacity: change(without.capacity, with.capacity),
        held: change(without.held, with.held),
        classes: classes.into_iter().map(change_of_class).collect(),
    }
}

/// Compares a class without and with the changes. A side is `None` if it does not have the class.
fn class_change(
    name: &str,
    without: Option<&plan::ClassShare>,
    with: Option<&plan::ClassShare>,
    requester: &Requester,
) -> api::ClassChange {
    let users_of = |share: Option<&plan::ClassShare>| {
        let users = share.into_iter().flat_map(|share| share.users.keys());
        users.cloned().collect::<BTreeSet<UserName>>()
    };
    // Returns the due and the held quanta of a user.
    let due_and_held = |share: Option<&plan::ClassShare>, user: &UserName| {
        let found = share.and_then(|share| share.users.get(user));
        found.map_or((0, 0), |found| (found.tally.due, found.tally.held))
    };
    let change_of_user = |user: UserName| {
        let (due_without, held_without) = due_and_held(without, &user);
        let (due_with, held_with) = due_and_held(with, &user);
        api::UserChange {
            user,
            due: change(due_without, due_with),
            held: change(held_without, held_with),
        }
    };
    let amount = |share: Option<&plan::ClassShare>, field: fn(&plan::ClassShare) -> u64| {
        share.map_or(0, field)
    };
    let due = |share| amount(share, |share| share.tally.due);
    let held = |share| amount(share, |share| share.tally.held);
    let all_users = users_of(without).into_iter().chain(users_of(with));
    let all_users: BTreeSet<_> = all_users.collect();
    let changes = all_users.into_iter().map(change_of_user);
    let (visible, others): (Vec<_>, Vec<_>) =
        changes.partition(|it| requester.may_see_user(&it.user));
    api::ClassChange {
        class: name.to_owned(),
        due: change(due(without), due(with)),
        held: change(held(without), held(with)),
        users: visible,
        others: (!others.is_empty()).then(|| sum_of_others(&others)),
    }
}

fn sum_of_others(others: &[api::UserChange]) -> api::OthersChange {
    let sum = |field: fn(&api::UserChange) -> api::Change| {
        let parts = || others.iter().map(field);
        change(
            parts().map(|it| it.without).sum(),
            parts().map(|it| it.with).sum(),
        )
    };
    api::OthersChange {
        users: others.len() as u64,
        due: sum(|it| it.due),
        held: sum(|it| it.held),
    }
}

fn change(without: u64, with: u64) -> api::Change {
    api::Change { without, with }
}
