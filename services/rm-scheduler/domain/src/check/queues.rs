//! Checks the grants of work in queues, independently of the planner.
//!
//! A grant goes to a leaf queue in the tree of its node. No queue on the path from the root exceeds
//! its maximum. No user or group exceeds a limit of a queue on that path.

use std::collections::BTreeMap;

use hayward_vocabulary::{Size, UserName, WorkKind};

use super::{Fault, has_size_of, node_load::is_exact, quantum_of};
use crate::{
    input::{
        queues::{Amounts, Limit, Queue, Queued, Queues},
        snapshot::{Demand, Node, Snapshot},
    },
    output::plan::Grant,
};

/// Checks a grant of work in a queue. Its class is the path of the queue.
pub fn check_grant(
    snapshot: &Snapshot,
    grant: &Grant,
    demand: &Demand,
    queued: &Queued,
    node: &Node,
) -> Result<(), Fault> {
    let outside_pool = || {
        let (class, node) = (grant.class.to_string(), grant.node.clone());
        Fault::OutsidePools { class, node }
    };
    let (tree, queues) = tree_of(snapshot, &node.pool).ok_or_else(outside_pool)?;
    let pool_of_work = queued.pool.as_ref().or(snapshot.queues.keys().next());
    if pool_of_work.is_none_or(|pool| pool != tree) {
        return Err(outside_pool());
    }
    if !is_leaf(queues, &grant.class) {
        return Err(Fault::WrongClass(grant.class.to_string()));
    }
    if grant.fixed || demand.kind == WorkKind::Reservation {
        return Err(Fault::Misdescribed(grant.work.clone()));
    }
    let required = queued.required_node.as_ref();
    if required.is_some_and(|required| *required != grant.node) {
        return Err(Fault::NotListed(grant.node.clone()));
    }
    let quantum = quantum_of(snapshot, &node.pool);
    let in_tree =
        |node: &&Node| tree_of(snapshot, &node.pool).is_some_and(|(other, _)| other == tree);
    let nodes = snapshot.nodes.values().filter(in_tree);
    if has_size_of(grant, &demand.size, quantum, nodes) {
        return Ok(());
    }
    let (granted, needed) = (grant.quanta, quantum.quanta_of_work(&demand.size));
    Err(Fault::WrongSize { granted, needed })
}

/// Accounts in queues that an allocation is charged to.
#[derive(Clone, Copy)]
pub struct ChargedAccounts<'a> {
    pub tree: &'a str,
    /// Path of the leaf queue.
    pub path: &'a str,
    pub user: &'a UserName,
    pub group: Option<&'a str>,
}

/// Sums of the allocations of each account, including leaving allocations.
#[derive(Debug, Default)]
pub struct QueueSums(BTreeMap<Account, Sum>);

/// Account of a queue: the whole queue, or one user or group in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    tree: String,
    path: String,
    owner: AccountOwner,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum AccountOwner {
    All,
    User(UserName),
    Group(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    size: Size,
    /// Number of allocations.
    allocation_count: usize,
}

/// Returns the path of each queue from the root to this one: `root`, `root.a`, `root.a.b`.
fn paths(path: &str) -> impl Iterator<Item = &str> {
    let dots = path.match_indices('.').map(|(index, _)| index);
    dots.chain([path.len()]).map(|end| &path[..end])
}

impl ChargedAccounts<'_> {
    fn accounts(self) -> impl Iterator<Item = Account> {
        let user = AccountOwner::User(self.user.clone());
        let group = self
            .group
            .map(|group| AccountOwner::Group(group.to_owned()));
        let all: Vec<AccountOwner> = [Some(AccountOwner::All), Some(user), group]
            .into_iter()
            .flatten()
            .collect();
        paths(self.path).flat_map(move |path| {
            let account = |owner: &AccountOwner| Account {
                tree: self.tree.to_owned(),
                path: path.to_owned(),
                owner: owner.clone(),
            };
            all.iter().map(account).collect::<Vec<_>>()
        })
    }
}

impl QueueSums {
    pub fn add(&mut self, charged: ChargedAccounts<'_>, size: &Size) {
        for account in charged.accounts() {
            let sum = self.0.entry(account).or_default();
            sum.size.add(size);
            sum.allocation_count += 1;
        }
    }

    /// Subtracts what was added. Returns false if a sum was saturated.
    pub fn subtract(&mut self, charged: ChargedAccounts<'_>, size: &Size) -> bool {
        let mut is_exact_sum = true;
        for account in charged.accounts() {
            let Some(sum) = self.0.get_mut(&account) else {
                continue;
            };
            is_exact_sum &= is_exact(&sum.size);
            sum.size.subtract(size);
            sum.allocation_count -= 1;
            if sum.allocation_count == 0 {
                self.0.remove(&account);
            }
        }
        is_exact_sum
    }

    /// Checks that the queues allow one more grant, in addition to these sums and to `planned`.
    pub fn check(
        &self,
        planned: &Self,
        queues: &Queues,
        tree: &str,
        grant: &Grant,
    ) -> Result<(), Fault> {
        let sum_of = |prefix: &str, owner: AccountOwner| {
            let account = Account {
                tree: tree.to_owned(),
                path: prefix.to_owned(),
                owner,
            };
            let mut held = Size::default();
            let sums = [&self.0, &planned.0].map(|all| all.get(&account));
            for sum in sums.into_iter().flatten() {
                held.add(&sum.size);
            }
            held
        };
        for prefix in paths(&grant.class) {
            // A dynamic queue is not in the configuration, so its limits are not checked.
            let Some(queue) = find_queue(&queues.root, prefix) else {
                break;
            };
            // The limit of the root is the capacity of its nodes.
            if prefix != "root" {
                check_limit(
                    &queue.max,
                    &sum_of(prefix, AccountOwner::All),
                    grant,
                    prefix,
                )?;
            }
            if let Some(limit) = limit_of(queue, grant.user.as_str()) {
                let held = sum_of(prefix, AccountOwner::User(grant.user.clone()));
                check_limit(&limit.max, &held, grant, prefix)?;
            }
            // The limit applies to all members of the chosen group together.
            let group = grant.group.as_deref();
            let has_group =
                |limit: &&Limit| limit.groups.iter().any(|name| Some(name.as_str()) == group);
            if let (Some(group), Some(limit)) = (group, queue.limits.iter().find(has_group)) {
                let held = sum_of(prefix, AccountOwner::Group(group.to_owned()));
                check_limit(&limit.max, &held, grant, prefix)?;
            }
        }
        Ok(())
    }

    /// Asserts equal sums, without amounts of zero.
    #[cfg(test)]
    pub fn assert_same(&self, other: &Self) {
        let without_zeros = |(account, sum): (&Account, &Sum)| {
            let mut size = sum.size.clone();
            size.extras.retain(|_, amount| *amount > 0);
            (account.clone(), size, sum.allocation_count)
        };
        let [own, others] = [self, other].map(|held| held.0.iter().map(without_zeros));
        assert!(own.eq(others), "{self:?} is not {other:?}");
    }
}

/// Returns the limit of this user. An entry with the name takes precedence over `*`.
fn limit_of<'a>(queue: &'a Queue, user: &str) -> Option<&'a Limit> {
    let limit_named = |name: &str| {
        let has_name = |limit: &&Limit| limit.users.iter().any(|user| user == name);
        queue.limits.iter().find(has_name)
    };
    limit_named(user).or_else(|| limit_named("*"))
}

fn check_limit(max: &Amounts, held: &Size, grant: &Grant, queue: &str) -> Result<(), Fault> {
    for (resource, limit) in max {
        let would_hold = amount(held, resource).saturating_add(amount(&grant.size, resource));
        if amount(&grant.size, resource) > 0 && would_hold > *limit {
            return Err(Fault::OverQuota {
                queue: queue.to_owned(),
                resource: resource.clone(),
                would_hold,
                limit: *limit,
            });
        }
    }
    Ok(())
}

fn amount(size: &Size, resource: &str) -> u64 {
    match resource {
        "memory" => size.memory_bytes,
        "vcore" => size.cpu_milli,
        "gpu" => size.gpu_milli,
        other => size.extras.get(other).copied().unwrap_or(0),
    }
}

/// Returns whether the path is a configured leaf, or a dynamic leaf below a parent queue.
fn is_leaf(queues: &Queues, path: &str) -> bool {
    let mut nearest = None;
    for prefix in paths(path) {
        let Some(queue) = find_queue(&queues.root, prefix) else {
            break;
        };
        nearest = Some((queue, prefix));
    }
    nearest.is_some_and(|(queue, prefix)| {
        // A configured leaf is the queue of the path itself. A dynamic leaf is below a queue that
        // is no leaf.
        let is_leaf = queue.children.is_empty() && !queue.parent;
        is_leaf == (prefix == path) && path != "root"
    })
}

fn find_queue<'a>(root: &'a Queue, path: &str) -> Option<&'a Queue> {
    let mut names = path.split('.');
    let root = (names.next() == Some("root")).then_some(root);
    names.fold(root, |queue, name| queue?.children.get(name))
}

/// Returns the tree of a pool with its queues, or `None` if the tree has no queues.
pub fn tree_of<'a>(snapshot: &'a Snapshot, pool: &str) -> Option<(&'a str, &'a Queues)> {
    let (mut name, _) = snapshot.pools.get_key_value(pool)?;
    for _ in 0..snapshot.pools.len() {
        let parent = snapshot.pools.get(name)?.parent.as_ref();
        let Some(parent) = parent.and_then(|parent| snapshot.pools.get_key_value(parent)) else {
            break;
        };
        (name, _) = parent;
    }
    Some((name, snapshot.queues.get(name)?))
}
