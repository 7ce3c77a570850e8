//! Pools: trees without circles, and each node in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hayward_rm_scheduler_api::policy::{Policy, Pool};
use hayward_rm_scheduler_capacity::config;
use hayward_vocabulary::NodeName;
use hayward_vocabulary::launch::is_plain_path;

use super::{PATTERNS, POOLS, amounts, name, one_of, planners};
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
    if policy.pools.len() > POOLS {
        faults.say(&["pools"], format!("must be at most {POOLS}"));
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

/// 3.4.3 and 3.4.4: a parent that is there, no circle, and a quantum at the top only.
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
            let detail = "pools form a circle: remove one of its parents";
            faults.say(&["pools", name, "parent"], detail);
            return;
        }
        // What hangs below a circle is not part of it.
        if !seen.insert(above) {
            return;
        }
        at = policy
            .pools
            .get(above)
            .and_then(|pool| pool.parent.as_deref());
    }
}

/// Application protocol, 11.1; a pool below another is divided with it.
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

/// S21: directories, each once, and never all of a machine.
fn mounts(name: &str, pool: &Pool, faults: &mut Faults) {
    const MOST: usize = 64;
    if pool.mounts.len() > MOST {
        faults.say(
            &["pools", name, "mounts"],
            format!("must be at most {MOST}"),
        );
    }
    let mut seen = BTreeSet::new();
    for (at, mount) in pool.mounts.iter().enumerate().take(MOST) {
        let at = at.to_string();
        let at = ["pools", name, "mounts", &at, "source"];
        if !is_plain_path(&mount.source) {
            let detail = "must be an absolute path in its shortest form, as /srv/data, and never /";
            faults.say(&at, detail);
        } else if !seen.insert(mount.source.as_str()) {
            faults.say(
                &at,
                "stands here twice: once with `writable: true` is enough",
            );
        }
    }
}

/// 3.4.5: at most one pool has no source of nodes. Where agents may name a pool, that is a source.
fn sources(policy: &Policy, faults: &mut Faults) {
    let without = definition_order::pools(policy)
        .into_iter()
        .filter(|(_, pool)| pool.nodes.is_empty() && pool.pattern.is_none() && !pool.declared);
    let names: Vec<&str> = without.map(|(name, _)| name).collect();
    for name in names.iter().skip(1) {
        let first = names[0];
        let detail = format!(
            "no node would ever be in it, nor in {first:?}, and only one pool may be so: give it \
             `nodes`, a `pattern`, or `declared: true`"
        );
        faults.say(&["pools", name], detail);
    }
}

/// 3.4.7 and 3.4.8: expressions that can be read, each once.
fn patterns(policy: &Policy, faults: &mut Faults) {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, pool) in definition_order::pools(policy) {
        let Some(pattern) = pool.pattern.as_deref() else {
            continue;
        };
        let at = ["pools", name, "pattern"];
        if found.len() == PATTERNS {
            faults.say(
                &at,
                format!("at most {PATTERNS} pools may have one: list nodes instead"),
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

/// 3.4.6: a node is listed once; its short and its long name are the same node.
fn members(policy: &Policy, faults: &mut Faults) {
    let domain = domain(policy);
    // By whole name, and by short name what has been listed bare or not.
    let mut whole: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut bare: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut shortened: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for (pool, entry) in definition_order::pools(policy) {
        for (at, node) in entry.nodes.iter().enumerate() {
            let place = at.to_string();
            let steps = ["pools", pool, "nodes", &place];
            if NodeName::new(node.as_str()).is_err() && node.parse::<IpAddr>().is_err() {
                let detail = format!("{node:?} is no name or address of a node");
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

/// the domain is the first pool's to say.
fn domains(policy: &Policy, faults: &mut Faults) {
    for (at, (name, pool)) in definition_order::pools(policy).into_iter().enumerate() {
        let Some(domain) = pool.domain.as_deref() else {
            continue;
        };
        if at > 0 {
            let detail = "only the first pool says the domain: remove it here";
            faults.say(&["pools", name, "domain"], detail);
        }
        if NodeName::new(domain.trim_start_matches('.')).is_err() {
            let detail = format!("{domain:?} is no domain, as in \"example.org\"");
            faults.say(&["pools", name, "domain"], detail);
        }
    }
}
