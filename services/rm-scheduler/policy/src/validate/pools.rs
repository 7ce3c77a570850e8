//! Validation of pools: trees without cycles, and each node in one pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hayward_rm_scheduler_api::policy::{Policy, Pool};
use hayward_rm_scheduler_capacity::config;
use hayward_vocabulary::NodeName;
use hayward_vocabulary::launch::is_plain_path;

use super::{MAX_PATTERNS, MAX_POOLS, amounts, check_name, list_existing, planners};
use crate::definition_order;
use crate::fault::{Fault, Faults, pointer};
use crate::node_pools::{compile_pattern, domain, short_name, with_domain};

pub(super) fn check(policy: &Policy, faults: &mut Faults) {
    if policy.pools.is_empty() {
        faults.add(
            &["pools"],
            "needs at least one pool, as in {\"default\": {}}",
        );
    }
    if policy.pools.len() > MAX_POOLS {
        faults.add(&["pools"], format!("must be at most {MAX_POOLS}"));
        return;
    }
    for (pool_name, pool) in &policy.pools {
        check_name("pools", pool_name, faults);
        check_tree(policy, pool_name, pool, faults);
        check_mounts(pool_name, pool, faults);
        check_queues(pool_name, pool, faults);
        planners::check(pool_name, pool, faults);
    }
    check_sources(policy, faults);
    check_patterns(policy, faults);
    check_nodes(policy, faults);
    check_domains(policy, faults);
}

/// Checks that the parent exists, that there is no cycle, and that only root pools have a
/// quantum.
fn check_tree(policy: &Policy, name: &str, pool: &Pool, faults: &mut Faults) {
    if let Some(quantum) = &pool.quantum {
        if pool.parent.is_some() {
            let detail = "only a pool without parent has a quantum of its own: remove it here";
            faults.add(&["pools", name, "quantum"], detail);
        }
        amounts::check_quantum(&["pools", name, "quantum"], quantum, faults);
    }
    let Some(parent) = pool.parent.as_deref() else {
        return;
    };
    if !policy.pools.contains_key(parent) {
        let others = policy.pools.keys().filter(|other| *other != name);
        let existing = list_existing(others.map(String::as_str));
        let detail = format!("there is no pool {parent:?}: {existing}");
        faults.add(&["pools", name, "parent"], detail);
        return;
    }
    let mut visited = BTreeSet::new();
    let mut next = Some(parent);
    while let Some(ancestor) = next {
        if ancestor == name {
            let detail = "pools form a cycle: remove one of its parents";
            faults.add(&["pools", name, "parent"], detail);
            return;
        }
        // This pool is below a cycle and not part of it.
        if !visited.insert(ancestor) {
            return;
        }
        next = policy
            .pools
            .get(ancestor)
            .and_then(|pool| pool.parent.as_deref());
    }
}

/// Checks the queues of a pool. A child pool has no queues, because it is divided with its parent
/// (section Queues of the application protocol).
fn check_queues(name: &str, pool: &Pool, faults: &mut Faults) {
    let Some(document) = &pool.queues else {
        return;
    };
    let prefix = pointer(&["pools", name, "queues"]);
    if let Some(parent) = &pool.parent {
        let detail = format!(
            "only a pool without parent has queues: move them to the top of {parent:?}'s tree"
        );
        faults.add(&["pools", name, "queues"], detail);
    }
    let queue_faults = config::read(document).err().unwrap_or_default();
    faults.0.extend(queue_faults.into_iter().map(|fault| Fault {
        pointer: format!("{prefix}{}", fault.pointer),
        detail: fault.detail,
    }));
}

/// Checks that mounts are directories, each listed once, and never the root (S21).
fn check_mounts(name: &str, pool: &Pool, faults: &mut Faults) {
    const MAX_MOUNTS: usize = 64;
    if pool.mounts.len() > MAX_MOUNTS {
        faults.add(
            &["pools", name, "mounts"],
            format!("must be at most {MAX_MOUNTS}"),
        );
    }
    let mut known = BTreeSet::new();
    for (index, mount) in pool.mounts.iter().enumerate().take(MAX_MOUNTS) {
        let index = index.to_string();
        let path = ["pools", name, "mounts", &index, "source"];
        if !is_plain_path(&mount.source) {
            let detail = "must be an absolute path in its shortest form, as /srv/data, and never /";
            faults.add(&path, detail);
        } else if !known.insert(mount.source.as_str()) {
            faults.add(
                &path,
                "appears twice here: once with `writable: true` is enough",
            );
        }
    }
}

/// Checks that at most one pool has no source of nodes. Agents are the source of a pool that they
/// may name.
fn check_sources(policy: &Policy, faults: &mut Faults) {
    let without_nodes = definition_order::ordered_pools(policy)
        .into_iter()
        .filter(|(_, pool)| pool.nodes.is_empty() && pool.pattern.is_none() && !pool.declared);
    let names: Vec<&str> = without_nodes.map(|(name, _)| name).collect();
    for name in names.iter().skip(1) {
        let first = names[0];
        let detail = format!(
            "no node would ever be in it, nor in {first:?}, and only one pool may have no nodes: \
            give it \
             `nodes`, a `pattern`, or `declared: true`"
        );
        faults.add(&["pools", name], detail);
    }
}

/// Checks that patterns compile and are unique.
fn check_patterns(policy: &Policy, faults: &mut Faults) {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, pool) in definition_order::ordered_pools(policy) {
        let Some(pattern) = pool.pattern.as_deref() else {
            continue;
        };
        let path = ["pools", name, "pattern"];
        if known.len() == MAX_PATTERNS {
            faults.add(
                &path,
                format!("at most {MAX_PATTERNS} pools may have one: list nodes instead"),
            );
            return;
        }
        if let Err(detail) = compile_pattern(pattern) {
            faults.add(&path, detail);
        }
        if let Some(first) = known.get(pattern) {
            let detail = format!("pool {first:?} has the same expression: remove one of the two");
            faults.add(&path, detail);
        } else {
            known.insert(pattern, name);
        }
    }
}

/// Checks that a node is listed once, under its short or its long name.
fn check_nodes(policy: &Policy, faults: &mut Faults) {
    let domain = domain(policy);
    // Pool and listed name of each node: by full name, and by short name for nodes listed without
    // or with domain.
    let mut by_full_name: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut by_bare_name: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut by_short_name: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for (pool, entry) in definition_order::ordered_pools(policy) {
        for (index, node) in entry.nodes.iter().enumerate() {
            let index_text = index.to_string();
            let path = ["pools", pool, "nodes", &index_text];
            if NodeName::new(node.as_str()).is_err() && node.parse::<IpAddr>().is_err() {
                let detail = format!("{node:?} is not a name or address of a node");
                faults.add(&path, detail);
                continue;
            }
            let full_name = with_domain(node, domain);
            let known = match short_name(&full_name) {
                Some(short) => by_full_name
                    .get(&full_name)
                    .or_else(|| by_bare_name.get(short)),
                None => by_full_name
                    .get(&full_name)
                    .or_else(|| by_bare_name.get(&full_name))
                    .or_else(|| by_short_name.get(&full_name)),
            };
            if let Some((other, listed_as)) = known {
                let detail = format!(
                    "is in pool {other:?} already, as {listed_as:?}: a node belongs to one pool, \
                     once"
                );
                faults.add(&path, detail);
                continue;
            }
            if let Some(short) = short_name(&full_name) {
                by_short_name.insert(short.to_owned(), (pool, node));
            } else {
                by_bare_name.insert(full_name.clone(), (pool, node));
            }
            by_full_name.insert(full_name, (pool, node));
        }
    }
}

/// Checks that only the first pool sets the domain.
fn check_domains(policy: &Policy, faults: &mut Faults) {
    for (index, (name, pool)) in definition_order::ordered_pools(policy)
        .into_iter()
        .enumerate()
    {
        let Some(domain) = pool.domain.as_deref() else {
            continue;
        };
        if index > 0 {
            let detail = "only the first pool sets the domain: remove it here";
            faults.add(&["pools", name, "domain"], detail);
        }
        if NodeName::new(domain.trim_start_matches('.')).is_err() {
            let detail = format!("{domain:?} is not a domain, as in \"example.org\"");
            faults.add(&["pools", name, "domain"], detail);
        }
    }
}
