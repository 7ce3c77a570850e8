//! Effects of a policy that would come into force now. Snapshots and forecasts without and with the
//! policy are compared. The code is pure.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::{
    ClassShift, NodeShift, PolicyMoves, ProcessShift, UserShift, WorkShift,
};
use hayward_rm_scheduler_domain::forecast::{Forecast, Timeline};
use hayward_rm_scheduler_domain::{Snapshot, snapshot};
use hayward_vocabulary::{UserName, WorkId};

/// Maximum number of entries of each list.
const MAX_ENTRIES: usize = 1_000;

/// Returns the changes. `before` and `after` are the snapshots without and with the policy.
pub fn policy_moves(before: &Snapshot, after: &Snapshot, forecast: &Forecast) -> PolicyMoves {
    let (without, with) = (&forecast.without, &forecast.with);
    let started = added_processes(&count_starts(with), &count_starts(without));
    let preempted = added_processes(&count_leaves(with), &count_leaves(without));
    PolicyMoves {
        rounds: with.rounds,
        settled: with.settled,
        nodes: node_shifts(before, after),
        work: work_shifts(
            &PolicyResult {
                snapshot: before,
                timeline: without,
            },
            &PolicyResult {
                snapshot: after,
                timeline: with,
            },
        ),
        classes: class_shifts(without, with),
        users: user_shifts(without, with),
        started,
        preempted,
    }
}

fn node_shifts(before: &Snapshot, after: &Snapshot) -> Vec<NodeShift> {
    // A policy neither adds nor removes nodes, so both snapshots have the same nodes in one order.
    let pairs = before.nodes.iter().zip(after.nodes.values());
    let moved = pairs.filter(|((_, old), new)| old.pool != new.pool);
    moved
        .take(MAX_ENTRIES)
        .map(|((node, old), new)| NodeShift {
            node: node.clone(),
            before: old.pool.clone(),
            after: new.pool.clone(),
        })
        .collect()
}

/// The fleet under one policy, and what the planner would do with it.
struct PolicyResult<'a> {
    snapshot: &'a Snapshot,
    timeline: &'a Timeline,
}

/// Returns the work that gets another class, or whose class gets another policy, pool or priority.
fn work_shifts(old_policy: &PolicyResult, new_policy: &PolicyResult) -> Vec<WorkShift> {
    let (before, after) = (old_policy.snapshot, new_policy.snapshot);
    let (without, with) = (old_policy.timeline, new_policy.timeline);
    let name_of_serving_class = |timeline: &Timeline, work: &WorkId| {
        let verdict = timeline.verdicts.get(work)?;
        let class = verdict.class.as_deref().filter(|_| !verdict.refused);
        class.map(str::to_owned)
    };
    let shift = |(work, demand): (&WorkId, &snapshot::Demand)| {
        let (old, new) = (
            name_of_serving_class(without, work),
            name_of_serving_class(with, work),
        );
        let class = |snapshot: &Snapshot, name: &Option<String>| {
            let name = name.as_ref()?;
            snapshot.classes.get(name).cloned()
        };
        let why = reason_of_shift(
            (old.as_deref(), class(before, &old)),
            (new.as_deref(), class(after, &new)),
        )?;
        Some(WorkShift {
            work: work.clone(),
            user: demand.user.clone(),
            before: old,
            after: new,
            why,
        })
    };
    let all = before.demand.iter();
    all.filter_map(shift).take(MAX_ENTRIES).collect()
}

/// Name and rules of the class that serves a piece of work. Both are `None` if no class does.
type ServingClass<'a> = (Option<&'a str>, Option<snapshot::Class>);

/// Returns the reason of the change. Returns `None` if only amounts change for the work.
fn reason_of_shift(before: ServingClass<'_>, after: ServingClass<'_>) -> Option<String> {
    let (old, new) = match (before, after) {
        ((None, _), (None, _)) => return None,
        ((Some(old), _), (None, _)) => {
            return Some(format!("neither class {old:?} nor another would serve it"));
        }
        ((None, _), (Some(new), _)) => return Some(format!("class {new:?} would serve it")),
        ((Some(old), _), (Some(new), _)) if old != new => {
            return Some(format!("class {new:?} would serve it instead of {old:?}"));
        }
        ((_, old), (_, new)) => (old?, new?),
    };
    if old.policy != new.policy {
        return Some(format!(
            "the policy of its class would be {:?} instead of {:?}",
            new.policy, old.policy
        ));
    }
    if old.pool != new.pool {
        return Some(format!(
            "the pool of its class would be {:?} instead of {:?}",
            new.pool, old.pool
        ));
    }
    let (old, new) = (old.priority, new.priority);
    (old != new).then(|| format!("the priority of its class would be {new} instead of {old}"))
}

fn class_shifts(without: &Timeline, with: &Timeline) -> Vec<ClassShift> {
    let (old, new) = (&without.shares.classes, &with.shares.classes);
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let due_quanta = |timeline: &Timeline, name: &String| {
        let share = timeline.shares.classes.get(name);
        share.map_or(0, |share| share.tally.due)
    };
    let shift = |name: &String| ClassShift {
        class: name.clone(),
        due_before: due_quanta(without, name),
        due_after: due_quanta(with, name),
    };
    let shifts = names.into_iter().map(shift);
    shifts
        .filter(|it| it.due_before != it.due_after)
        .take(MAX_ENTRIES)
        .collect()
}

fn user_shifts(without: &Timeline, with: &Timeline) -> Vec<UserShift> {
    // Due quanta without and with the policy, by class and user.
    let mut due_quanta: BTreeMap<(&String, &UserName), (u64, u64)> = BTreeMap::new();
    for (class, share) in &without.shares.classes {
        for (user, share) in &share.users {
            let (due_before, _) = due_quanta.entry((class, user)).or_default();
            *due_before = share.tally.due;
        }
    }
    for (class, share) in &with.shares.classes {
        for (user, share) in &share.users {
            let (_, due_after) = due_quanta.entry((class, user)).or_default();
            *due_after = share.tally.due;
        }
    }
    let changed = due_quanta.into_iter().filter(|(_, (old, new))| old != new);
    changed
        .take(MAX_ENTRIES)
        .map(|((class, user), (due_before, due_after))| UserShift {
            user: user.clone(),
            class: class.clone(),
            due_before,
            due_after,
        })
        .collect()
}

/// Number of processes by work and user.
type Counts<'a> = BTreeMap<(&'a WorkId, &'a UserName), u64>;

fn count_starts(timeline: &Timeline) -> Counts<'_> {
    let mut counts = Counts::new();
    for start in &timeline.starts {
        *counts.entry((&start.work, &start.user)).or_default() += 1;
    }
    counts
}

/// Counts existing processes that would leave. A process that starts only in the forecast does not
/// count.
fn count_leaves(timeline: &Timeline) -> Counts<'_> {
    let mut counts = Counts::new();
    for leave in timeline.leaves.iter().filter(|leave| !leave.forecast) {
        *counts.entry((&leave.work, &leave.user)).or_default() += 1;
    }
    counts
}

/// Returns how many processes `with` has in addition to `without`.
fn added_processes(with: &Counts, without: &Counts) -> Vec<ProcessShift> {
    let added = with.iter().filter_map(|(key, count)| {
        let expected = without.get(key).copied().unwrap_or(0);
        let (work, user) = key;
        (*count > expected).then(|| ProcessShift {
            work: (*work).clone(),
            user: (*user).clone(),
            processes: count - expected,
        })
    });
    added.take(MAX_ENTRIES).collect()
}
