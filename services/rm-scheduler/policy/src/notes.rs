//! Notes about settings of a policy that have no effect or a surprising one.

use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};

use crate::definition_order;
use crate::fault::pointer;
use crate::inheritance::Lineage;
use crate::node_pools::{compiled, domain, qualified, short};

/// Returns one line for each note, with its place.
pub fn notes(policy: &Policy) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, class) in &policy.classes {
        let historic = [
            ("enforce", class.enforce.is_some()),
            ("max_processes", class.max_processes.is_some()),
            ("max_machines", class.max_machines.is_some()),
            ("cap", class.cap.is_some()),
        ];
        for (attribute, _) in historic.into_iter().filter(|(_, is_set)| *is_set) {
            let at = pointer(&["classes", name, attribute]);
            notes.push(format!("{at}: is accepted and has no effect"));
        }
        let debug = class.debug.as_ref();
        let fair = debug.and_then(|debug| Lineage::new(policy, debug).ok()?.policy());
        if fair == Some(SharePolicy::FairShare) {
            let at = pointer(&["classes", name, "debug"]);
            notes.push(format!(
                "{at}: is FAIR_SHARE too, so services go to the FIXED_SHARE default instead"
            ));
        }
    }
    if !policy.tunables.use_global_allotment && policy.tunables.global_allotment_gb.is_some() {
        let at = pointer(&["tunables", "global_allotment_gb"]);
        notes.push(format!(
            "{at}: has no effect while use_global_allotment is false"
        ));
    }
    if policy.tunables.node_memory_override_gb > 0 {
        let at = pointer(&["tunables", "node_memory_override_gb"]);
        notes.push(format!(
            "{at}: nodes are given work that they may have no memory for"
        ));
    }
    for switch in policy.settings.ignored() {
        let at = pointer(&["settings", switch]);
        notes.push(format!(
            "{at}: is accepted and has no effect; use `profile`"
        ));
    }
    divided(policy, &mut notes);
    overlaps(policy, &mut notes);
    notes
}

/// Adds notes about classes in a pool with queues, because no class is served there.
fn divided(policy: &Policy, notes: &mut Vec<String>) {
    let divided = |name: &str| {
        let above = |name: &&str| policy.pools.get(*name)?.parent.as_deref();
        let path = std::iter::successors(Some(name), above).take(policy.pools.len().max(1));
        let top = policy.pools.get(path.last()?)?;
        top.queues.as_ref()
    };
    for (name, class) in &policy.classes {
        let pool = Lineage::new(policy, name).ok().and_then(|it| it.pool());
        let serves = !class.is_abstract && pool.is_some_and(|pool| divided(pool).is_some());
        if let (true, Some(pool)) = (serves, pool) {
            let at = pointer(&["classes", name, "pool"]);
            notes.push(format!(
                "{at}: {pool:?} is divided among queues, so work of this class finds no node there"
            ));
        }
    }
}

/// Adds notes about listed nodes that match the expression of another pool, which has precedence
///
fn overlaps(policy: &Policy, notes: &mut Vec<String>) {
    let domain = domain(policy);
    let mut patterns = Vec::new();
    for (name, pool) in definition_order::pools(policy) {
        patterns.extend(
            pool.pattern
                .as_deref()
                .and_then(|text| Some((name, compiled(text).ok()?))),
        );
    }
    for (name, pool) in definition_order::pools(policy) {
        for (at, node) in pool.nodes.iter().enumerate() {
            let full = qualified(node, domain);
            let hit = patterns.iter().find(|(_, pattern)| {
                pattern.is_match(&full) || short(&full).is_some_and(|it| pattern.is_match(it))
            });
            if let Some((other, _)) = hit.filter(|(other, _)| *other != name) {
                let at = pointer(&["pools", name, "nodes", &at.to_string()]);
                notes.push(format!(
                    "{at}: {node:?} matches the pattern of {other:?}, which comes first"
                ));
            }
        }
    }
}
