//! Validation of pools: trees without cycles, and each node in one pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hayward_rm_scheduler_api::policy::{Policy, Pool};
use hayward_rm_scheduler_capacity::config;
use hayward_vocabulary::NodeName;
use hayward_vocabulary::launch::is_plain_path;

use super::{MAX_PATTERNS, MAX_POOLS, amounts, name, one_of, planners};
use crate::definition_order;
use crate::fault::{Fault, Faults, pointer};
use crate::node_pools::{compiled, domain, qualified, short};

pub(super) fn check(policy: &Policy, faults: &mut Faults) {
    if policy.pools.is_empty() {
        faults.say(
            &["pools"],
            "needs at least one pool, as in {\"default\": {}}",
        );
    }
    if policy.pools.len() > MAX_POOLS {
        faults.say(&["pools"], format!("must be at most {MAX_POOLS}"));
        return;
    }
    for (pool_name, pool) in &policy.pools {
        name("pools", pool_name, faults);
        tree(policy, pool_name, pool, faults);
        mounts(pool_name, pool, faults);
        queues(pool_name, pool, faults);
        planners::check(pool_name, pool, faults);
    }
    sources(policy, faults);
    patterns(policy, faults);
    members(policy, faults);
    domains(policy, faults);
}

/// Checks that the parent exists, that there is no cycle, and that only root pools have a
/// quantum.
fn tree(policy: &Policy, name: &str, pool: &Pool, faults: &mut Faults) {
    if let Some(quantum) = &pool.quantum {
        if pool.parent.is_some() {
            let detail = "only a pool without parent has a quantum of its own: remove it here";
            faults.say(&["pools", name, "quantum"], detail);
        }
        amounts::quantum(&["pools", name, "quantum"], quantum, faults);
    }
    let Some(parent) = pool.parent.as_deref() else {
        return;
    };
    if !policy.pools.contains_key(parent) {
        let others = policy.pools.keys().filter(|other| *other != name);
        let there = one_of(others.map(String::as_str));
        let detail = format!("there is no pool {parent:?}: {there}");
        faults.say(&["pools", name, "parent"], detail);
        return;
    }
    let mut seen = BTreeSet::new();
    let mut at = Some(parent);
    while let Some(above) = at {
        if above == name {
            let detail = "pools form a cycle: remove one of its parents";
            faults.say(&["pools", name, "parent"], detail);
            return;
        }
        // A pool below a cycle is not part of it.
        if !seen.insert(above) {
            return;
        }
        at = policy
            .pools
            .get(above)
            .and_then(|pool| pool.parent.as_deref());
    }
}

/// Checks the queues of a pool (application protocol, Queues). A child pool is divided with its
/// parent.
fn queues(name: &str, pool: &Pool, faults: &mut Faults) {
    let Some(document) = &pool.queues else {
        return;
    };
    let at = pointer(&["pools", name, "queues"]);
    if let Some(parent) = &pool.parent {
        let detail = format!(
            "only a pool without parent has queues: move them to the top of {parent:?}'s tree"
        );
        faults.say(&["pools", name, "queues"], detail);
    }
    let found = config::read(document).err().unwrap_or_default();
    faults.0.extend(found.into_iter().map(|fault| Fault {
        pointer: format!("{at}{}", fault.pointer),
        detail: fault.detail,
    }));
}

/// Checks that mounts are directories, each listed once, and never the root (S21).
fn mounts(name: &str, pool: &Pool, faults: &mut Faults) {
    const MAX: usize = 64;
    if pool.mounts.len() > MAX {
        faults.say(&["pools", name, "mounts"], format!("must be at most {MAX}"));
    }
    let mut seen = BTreeSet::new();
    for (at, mount) in pool.mounts.iter().enumerate().take(MAX) {
        let at = at.to_string();
        let at = ["pools", name, "mounts", &at, "source"];
        if !is_plain_path(&mount.source) {
            let detail = "must be an absolute path in its shortest form, as /srv/data, and never /";
            faults.say(&at, detail);
        } else if !seen.insert(mount.source.as_str()) {
            faults.say(
                &at,
                "appears twice here: once with `writable: true` is enough",
            );
        }
    }
}

/// Checks that at most one pool has no source of nodes. Agents are the source of a pool that they
/// may name.
fn sources(policy: &Policy, faults: &mut Faults) {
    let without = definition_order::pools(policy)
        .into_iter()
        .filter(|(_, pool)| pool.nodes.is_empty() && pool.pattern.is_none() && !pool.declared);
    let names: Vec<&str> = without.map(|(name, _)| name).collect();
    for name in names.iter().skip(1) {
        let first = names[0];
        let detail = format!(
            "no node would ever be in it, nor in {first:?}, and only one pool may have no nodes: \
            give it \
             `nodes`, a `pattern`, or `declared: true`"
        );
        faults.say(&["pools", name], detail);
    }
}

/// Checks that expressions compile and are unique.
fn patterns(policy: &Policy, faults: &mut Faults) {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, pool) in definition_order::pools(policy) {
        let Some(pattern) = pool.pattern.as_deref() else {
            continue;
        };
        let at = ["pools", name, "pattern"];
        if found.len() == MAX_PATTERNS {
            faults.say(
                &at,
                format!("at most {MAX_PATTERNS} pools may have one: list nodes instead"),
            );
            return;
        }
        if let Err(detail) = compiled(pattern) {
            faults.say(&at, detail);
        }
        if let Some(first) = found.get(pattern) {
            let detail = format!("pool {first:?} has the same expression: remove one of the two");
            faults.say(&at, detail);
        } else {
            found.insert(pattern, name);
        }
    }
}

/// Checks that a node is listed once, under its short or its long name.
fn members(policy: &Policy, faults: &mut Faults) {
    let domain = domain(policy);
    // By full name, and by short name for nodes listed with or without domain.
    let mut whole: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut bare: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut shortened: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for (pool, entry) in definition_order::pools(policy) {
        for (at, node) in entry.nodes.iter().enumerate() {
            let place = at.to_string();
            let steps = ["pools", pool, "nodes", &place];
            if NodeName::new(node.as_str()).is_err() && node.parse::<IpAddr>().is_err() {
                let detail = format!("{node:?} is not a name or address of a node");
                faults.say(&steps, detail);
                continue;
            }
            let full = qualified(node, domain);
            let known = match short(&full) {
                Some(short) => whole.get(&full).or_else(|| bare.get(short)),
                None => whole
                    .get(&full)
                    .or_else(|| bare.get(&full))
                    .or_else(|| shortened.get(&full)),
            };
            if let Some((other, written)) = known {
                let detail = format!(
                    "is in pool {other:?} already, as {written:?}: a node belongs to one pool, \
                     once"
                );
                faults.say(&steps, detail);
                continue;
            }
            if let Some(short) = short(&full) {
                shortened.insert(short.to_owned(), (pool, node));
            } else {
                bare.insert(full.clone(), (pool, node));
            }
            whole.insert(full, (pool, node));
        }
    }
}

/// Checks that only the first pool sets the domain.
fn domains(policy: &Policy, faults: &mut Faults) {
    for (at, (name, pool)) in definition_order::pools(policy).into_iter().enumerate() {
        let Some(domain) = pool.domain.as_deref() else {
            continue;
        };
        if at > 0 {
            let detail = "only the first pool sets the domain: remove it here";
            faults.say(&["pools", name, "domain"], detail);
        }
        if NodeName::new(domain.trim_start_matches('.')).is_err() {
            let detail = format!("{domain:?} is not a domain, as in \"example.org\"");
            faults.say(&["pools", name, "domain"], detail);
        }
    }
}
