//! Forecasts of `what-if`: the effects of changes such as submitted work or lost nodes. A query is
//! validated and applied to a copy of the snapshot. The forecasts without and with the query become
//! the response. The code is pure.
//!
//! Operators and viewers may query any change. Submitters may query only changes that they could
//! make: submit work as themselves, and withdraw their own work. The response for a submitter names
//! the work of users that the submitter may know by name, and preemptions of or for that work. It
//! contains everything else as sums, as `/v1/shares` does (S12).

mod response;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_rm_scheduler_api::what_if::{NewNodes, Submission, WhatIf};
use hayward_rm_scheduler_domain::snapshot::{Demand, Node};
use hayward_rm_scheduler_domain::{Changes, Snapshot};
use hayward_rm_scheduler_policy::{Fault, Identity, Rules};
use hayward_service::auth::Tenant;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{NodeName, Queued, Size, Timestamp, UserName, WorkId, WorkKind};

use crate::command::FleetCopy;

pub use response::to_response;

// Limits and defaults of a query that are part of the API.
pub const MAX_SUBMISSIONS: usize = 1_000;
pub const MAX_INSTANCES: u64 = 1_000;
pub const MAX_NEW_NODES: u64 = 10_000;
pub const MAX_ROUNDS: u64 = 50;
pub const DEFAULT_ROUNDS: u64 = 10;
// Upper limits of amounts in a query. They prevent overflow, and are larger than any fleet.
const MAX_PROCESSES: u64 = 1_000_000;
const MAX_TASKS: u64 = 1_000_000_000;
const MAX_THREADS: u64 = 256;
/// 64 TiB, in bytes.
const MAX_MEMORY: u64 = 1 << 46;
/// Thousandths of CPUs or of GPUs.
const MAX_MILLI_UNITS: u64 = 1 << 26;
/// Tasks for each process if the query gives no number.
const TASKS_PER_PROCESS: u64 = 1_000;

/// The user that sends the query.
#[derive(Debug, Clone)]
pub struct Requester {
    /// User that a submission is charged to, unless the submission names another one.
    pub user: Option<UserName>,
    /// Groups of the user, for access lists and limits of queues.
    pub groups: Vec<String>,
    /// True if the user may see all users and query any change.
    pub sees_all_users: bool,
    /// Tenant of the user.
    pub tenant: Option<Arc<Tenant>>,
}

impl Requester {
    /// Returns true if the requester may see the name of this user.
    fn may_see_user(&self, user: &UserName) -> bool {
        let tenant = self.tenant.as_ref();
        let same_tenant = tenant.is_some_and(|it| it.has(user.as_str()));
        self.sees_all_users || same_tenant || Some(user) == self.user.as_ref()
    }
}

/// A valid query, applied to a copy of the fleet.
#[derive(Debug)]
pub struct ForecastInput {
    /// The snapshot with the changes of the query.
    pub changed: Snapshot,
    /// Milliseconds that a task of each submitted job takes, if the query says so.
    pub task_ms: BTreeMap<WorkId, u64>,
    /// Number of rounds to forecast.
    pub rounds: u64,
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.0.push(Fault {
            pointer: pointer.into(),
            detail: detail.into(),
        });
    }

    fn check_range(&mut self, pointer: &str, value: u64, min: u64, max: u64) {
        if value < min || value > max {
            self.add(pointer, format!("must be {min} to {max}"));
        }
    }
}

/// Returns a fault for each used field that only operators and viewers may use.
pub fn forbidden_fields(query: &WhatIf, requester: &Requester) -> Vec<Fault> {
    let mut faults = Faults::default();
    if requester.sees_all_users {
        return faults.0;
    }
    let fields = [
        ("/policy", query.policy.is_some()),
        ("/drain", !query.drain.is_empty()),
        ("/lose", !query.lose.is_empty()),
        ("/add_nodes", !query.add_nodes.is_empty()),
    ];
    for (pointer, _) in fields.into_iter().filter(|(_, used)| *used) {
        faults.add(pointer, "is only for operators and viewers");
    }
    for (index, submission) in query.submissions.iter().enumerate() {
        if submission.user.is_some() && submission.user != requester.user {
            let detail = "must be absent or yourself";
            faults.add(format!("/submissions/{index}/user"), detail);
        }
    }
    faults.0
}

/// Checks a query and applies it to a copy of the fleet.
///
/// # Errors
///
/// Returns all faults of the query at once.
pub fn forecast_input(
    query: &WhatIf,
    requester: &Requester,
    copy: &FleetCopy,
) -> Result<ForecastInput, Vec<Fault>> {
    let mut faults = Faults::default();
    let snapshot = &*copy.snapshot;
    let mut rules = &copy.rules;
    let mut changed = match &copy.preview {
        Some(Ok(previewed)) => {
            rules = &previewed.rules;
            previewed.snapshot.clone()
        }
        Some(Err(policy_faults)) => {
            let with_prefix = |fault: &Fault| Fault {
                pointer: format!("/policy{}", fault.pointer),
                detail: fault.detail.clone(),
            };
            faults.0.extend(policy_faults.iter().map(with_prefix));
            snapshot.clone()
        }
        None => snapshot.clone(),
    };
    let mut changes = Changes::default();
    add_submissions(&mut changes, query, requester, snapshot, &mut faults);
    for (index, work) in query.withdraw.iter().enumerate() {
        let is_own = |demand: &Demand| {
            requester.sees_all_users || Some(&demand.user) == requester.user.as_ref()
        };
        let mut parts = parts_of(snapshot, work).peekable();
        if parts.peek().is_none() || !parts.all(|part| is_own(&snapshot.demand[part])) {
            let detail = format!("there is no work {work}, or it is not yours");
            faults.add(format!("/withdraw/{index}"), detail);
        }
        changes.withdraw.extend(parts_of(snapshot, work).cloned());
    }
    changes.drain = existing_nodes("drain", &query.drain, snapshot, &mut faults);
    changes.lose = existing_nodes("lose", &query.lose, snapshot, &mut faults);
    add_new_nodes(&mut changes, &query.add_nodes, rules, &changed, &mut faults);
    let rounds = query.rounds.unwrap_or(DEFAULT_ROUNDS);
    faults.check_range("/rounds", rounds, 1, MAX_ROUNDS);
    if !faults.0.is_empty() {
        return Err(faults.0);
    }
    changes.apply(&mut changed);
    let is_removed = |host| changes.drain.contains(host) || changes.lose.contains(host);
    for pinned in copy.pinned.iter().filter(|it| is_removed(&it.host)) {
        // A process that must leave is no longer bound to its node, as in a round.
        if let Some(demand) = changed.demand.get_mut(&pinned.work) {
            demand.node_list.clone_from(&pinned.machines);
        }
    }
    Ok(ForecastInput {
        changed,
        task_ms: changes.task_ms,
        rounds,
    })
}

/// Returns a piece of work, or all parts of a service or an application.
fn parts_of<'a>(snapshot: &'a Snapshot, work: &'a WorkId) -> impl Iterator<Item = &'a WorkId> {
    // The id of a part begins with the id of the whole, so the parts follow it in the order of ids.
    let from = snapshot.demand.range(work.clone()..).map(|(id, _)| id);
    let with_prefix = from.take_while(|id| id.as_str().starts_with(work.as_str()));
    with_prefix.filter(move |id| *id == work || id.parent() == *work)
}

/// Returns the named nodes. Adds a fault for each node that does not exist.
fn existing_nodes(
    field: &str,
    names: &[NodeName],
    snapshot: &Snapshot,
    faults: &mut Faults,
) -> BTreeSet<NodeName> {
    for (index, name) in names.iter().enumerate() {
        if !snapshot.nodes.contains_key(name) {
            faults.add(
                format!("/{field}/{index}"),
                format!("there is no node {name}"),
            );
        }
    }
    names.iter().cloned().collect()
}

fn add_submissions(
    changes: &mut Changes,
    query: &WhatIf,
    requester: &Requester,
    snapshot: &Snapshot,
    faults: &mut Faults,
) {
    if query.submissions.len() > MAX_SUBMISSIONS {
        let detail = format!("must be at most {MAX_SUBMISSIONS}");
        return faults.add("/submissions", detail);
    }
    let newest_groups = LazyCell::new(|| newest_groups_by_user(snapshot));
    for (index, submission) in query.submissions.iter().enumerate() {
        let pointer = format!("/submissions/{index}");
        check_submission(submission, &pointer, faults);
        let Some(user) = submission.user.clone().or_else(|| requester.user.clone()) else {
            faults.add(format!("{pointer}/user"), "name the user to charge");
            continue;
        };
        let Some(work) = name_or_default(submission, index) else {
            continue;
        };
        let mut demand = submitted_demand(submission, user);
        if let Some(queued) = &mut demand.queued {
            queued.groups = if requester.user.as_ref() == Some(&demand.user) {
                requester.groups.clone()
            } else {
                let known = newest_groups.get(&demand.user);
                known.map_or_else(Vec::new, |(_, groups)| groups.to_vec())
            };
        }
        // New work follows all existing work, in the order of the query.
        demand.submitted_at = snapshot.now.plus_ms(index as u64);
        for (work, demand) in instances(work, demand, submission) {
            if let Some(task_ms) = submission.task_ms {
                changes.task_ms.insert(work.clone(), task_ms);
            }
            let exists = snapshot.demand.contains_key(&work);
            if changes.submissions.insert(work.clone(), demand).is_some() || exists {
                let detail = format!("work {work} exists already; use another name");
                faults.add(format!("{pointer}/name"), detail);
            }
        }
    }
}

/// Returns the groups of each user with work in a queue, and the submission time of the newest such
/// work, which names the groups. The groups of other users are known only from their work.
fn newest_groups_by_user(snapshot: &Snapshot) -> BTreeMap<&UserName, (Timestamp, &[String])> {
    let mut newest = BTreeMap::new();
    for demand in snapshot.demand.values() {
        let Some(queued) = &demand.queued else {
            continue;
        };
        let groups = &queued.groups[..];
        let known = newest.entry(&demand.user);
        let (known_at, known_groups) = known.or_insert((demand.submitted_at, groups));
        if *known_at <= demand.submitted_at {
            (*known_at, *known_groups) = (demand.submitted_at, groups);
        }
    }
    newest
}

fn name_or_default(submission: &Submission, index: usize) -> Option<WorkId> {
    let prefix = submission.kind.prefix();
    let default_name = || WorkId::new(format!("{prefix}_what-if-{}", index + 1)).ok();
    submission.name.clone().or_else(default_name)
}

fn check_submission(submission: &Submission, pointer: &str, faults: &mut Faults) {
    let field_pointer = |field: &str| format!("{pointer}/{field}");
    let max_processes = match submission.kind {
        WorkKind::Job => MAX_PROCESSES,
        WorkKind::Service => MAX_INSTANCES,
        WorkKind::Reservation => 1,
    };
    if let Some(processes) = submission.processes {
        faults.check_range(&field_pointer("processes"), processes, 1, max_processes);
    }
    if let Some(tasks) = submission.tasks {
        faults.check_range(&field_pointer("tasks"), tasks, 1, MAX_TASKS);
    }
    if let Some(threads) = submission.threads {
        faults.check_range(&field_pointer("threads"), threads.into(), 1, MAX_THREADS);
    }
    let in_queue = submission.queue.is_some() || submission.pool.is_some();
    if in_queue && submission.class.is_some() {
        let detail = "work in a queue has no class: leave out `class`, or `queue` and `pool`";
        faults.add(field_pointer("class"), detail);
    }
    if submission.kind != WorkKind::Job
        && (submission.tasks.is_some() || submission.task_ms.is_some())
    {
        faults.add(
            field_pointer("kind"),
            "only a job has tasks; leave them out",
        );
    }
    if let Some(size) = &submission.size {
        check_size(&field_pointer("size"), size, faults);
    }
}

fn check_size(pointer: &str, size: &Size, faults: &mut Faults) {
    let ranges = [
        ("memory_bytes", size.memory_bytes, MAX_MEMORY),
        ("cpu_milli", size.cpu_milli, MAX_MILLI_UNITS),
        ("gpu_milli", size.gpu_milli, MAX_MILLI_UNITS),
    ];
    for (name, amount, max) in ranges {
        faults.check_range(&format!("{pointer}/{name}"), amount, 0, max);
    }
    for (name, amount) in &size.extras {
        faults.check_range(&format!("{pointer}/extras/{name}"), *amount, 0, MAX_MEMORY);
    }
}

fn submitted_demand(submission: &Submission, user: UserName) -> Demand {
    let job = submission.kind == WorkKind::Job;
    let threads = submission.threads.unwrap_or(1);
    let processes = submission.processes.or(submission.tasks).unwrap_or(1);
    let default_tasks = || {
        processes
            .saturating_mul(u64::from(threads))
            .saturating_mul(TASKS_PER_PROCESS)
    };
    let default_size = match submission.kind {
        WorkKind::Reservation => Size::default(),
        _ => Size::memory(GIB),
    };
    Demand {
        kind: submission.kind,
        user,
        class: submission.class.clone(),
        submitted_at: hayward_vocabulary::Timestamp::default(),
        size: submission.size.clone().unwrap_or(default_size),
        max_processes: if job { processes } else { 1 },
        remaining_tasks: if job {
            submission.tasks.unwrap_or_else(default_tasks)
        } else {
            1
        },
        threads,
        task_ms: None,
        node_list: submission.machines.iter().cloned().collect(),
        avoids: BTreeSet::new(),
        service: None,
        anti_affinity: None,
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
        queued: requested_queue(submission),
    }
}

fn requested_queue(submission: &Submission) -> Option<Box<Queued>> {
    let in_queue = submission.queue.is_some() || submission.pool.is_some();
    in_queue.then(|| {
        Box::new(Queued {
            queue: submission.queue.clone(),
            pool: submission.pool.clone(),
            ..Queued::default()
        })
    })
}

/// Returns one piece of work for each instance of a service.
fn instances(work: WorkId, demand: Demand, submission: &Submission) -> Vec<(WorkId, Demand)> {
    if submission.kind != WorkKind::Service {
        return vec![(work, demand)];
    }
    let count = submission.processes.unwrap_or(1).min(MAX_INSTANCES);
    let instance = |number: u64| {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let demand = Demand {
            service: Some(work.clone()),
            ..demand.clone()
        };
        (work.instance(number), demand)
    };
    (0..count).map(instance).collect()
}

/// Returns the pool of a new node: the given pool, or else the pool by the rules.
fn pool_of_new_nodes(nodes: &NewNodes, rules: &Rules) -> String {
    let identity = Identity {
        name: nodes.name.as_ref().map_or("", NodeName::as_str),
        ..Identity::default()
    };
    let pool = nodes.pool.as_deref();
    pool.or_else(|| rules.pool_of(identity))
        .unwrap_or_default()
        .to_owned()
}

fn add_new_nodes(
    changes: &mut Changes,
    new: &[NewNodes],
    rules: &Rules,
    snapshot: &Snapshot,
    faults: &mut Faults,
) {
    let total: u64 = new
        .iter()
        .map(|nodes| nodes.count)
        .fold(0, u64::saturating_add);
    if total > MAX_NEW_NODES {
        let detail = format!("are {total} nodes; at most {MAX_NEW_NODES} can be added");
        return faults.add("/add_nodes", detail);
    }
    for (index, nodes) in new.iter().enumerate() {
        let pointer = format!("/add_nodes/{index}");
        faults.check_range(&format!("{pointer}/count"), nodes.count, 1, MAX_NEW_NODES);
        check_size(&format!("{pointer}/size"), &nodes.size, faults);
        let pool = nodes.pool.as_deref().unwrap_or_default();
        if nodes.pool.is_some() && !rules.pools.contains_key(pool) {
            let detail = format!("there is no pool {pool:?}");
            faults.add(format!("{pointer}/pool"), detail);
        }
        let node = Node {
            pool: pool_of_new_nodes(nodes, rules),
            capacity: nodes.size.clone(),
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        for number in 1..=nodes.count {
            let Some(name) = name_of_new_node(nodes, number, changes) else {
                faults.add(format!("{pointer}/name"), "is too long to be numbered");
                break;
            };
            let exists = snapshot.nodes.contains_key(&name);
            if changes.add.insert(name.clone(), node.clone()).is_some() || exists {
                let detail = format!("node {name} exists already; use another name");
                faults.add(format!("{pointer}/name"), detail);
            }
        }
    }
}

fn name_of_new_node(nodes: &NewNodes, number: u64, changes: &Changes) -> Option<NodeName> {
    match &nodes.name {
        Some(name) if nodes.count == 1 => Some(name.clone()),
        Some(name) => NodeName::new(format!("{name}-{number}")).ok(),
        None => NodeName::new(format!("what-if-{}", changes.add.len() + 1)).ok(),
    }
}

#[cfg(test)]
mod tests;
