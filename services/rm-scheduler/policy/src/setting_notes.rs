//! Notes about settings of a policy that have no effect or a surprising one.

use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};

use crate::definition_order;
use crate::fault::pointer;
use crate::inheritance::Ancestry;
use crate::node_pools::{compile_pattern, domain, short_name, with_domain};

/// Returns one line for each note. A line begins with the JSON pointer of the setting.
pub fn notes(policy: &Policy) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, class) in &policy.classes {
        let without_effect = [
            ("enforce", class.enforce.is_some()),
            ("max_processes", class.max_processes.is_some()),
            ("max_machines", class.max_machines.is_some()),
            ("cap", class.cap.is_some()),
        ];
        for (attribute, _) in without_effect.into_iter().filter(|(_, is_set)| *is_set) {
            let location = pointer(&["classes", name, attribute]);
            notes.push(format!("{location}: is accepted and has no effect"));
        }
        let debug = class.debug.as_ref();
        let debug_policy = debug.and_then(|debug| Ancestry::new(policy, debug).ok()?.policy());
        if debug_policy == Some(SharePolicy::FairShare) {
            let location = pointer(&["classes", name, "debug"]);
            notes.push(format!(
                "{location}: is FAIR_SHARE too, so services go to the FIXED_SHARE default instead"
            ));
        }
    }
    if !policy.tunables.use_global_allotment && policy.tunables.global_allotment_gb.is_some() {
        let location = pointer(&["tunables", "global_allotment_gb"]);
        notes.push(format!(
            "{location}: has no effect while use_global_allotment is false"
        ));
    }
    if policy.tunables.node_memory_override_gb > 0 {
        let location = pointer(&["tunables", "node_memory_override_gb"]);
        notes.push(format!(
            "{location}: nodes are given work that they may have no memory for"
        ));
    }
    for switch in policy.settings.ignored_names() {
        let location = pointer(&["settings", switch]);
        notes.push(format!(
            "{location}: is accepted and has no effect; use `profile`"
        ));
    }
    add_queue_notes(policy, &mut notes);
    add_overlap_notes(policy, &mut notes);
    notes
}

/// Adds notes about classes in a pool with queues, because no class is served there.
fn add_queue_notes(policy: &Policy, notes: &mut Vec<String>) {
    let queues_of = |name: &str| {
        let parent_of = |name: &&str| policy.pools.get(*name)?.parent.as_deref();
        let path = std::iter::successors(Some(name), parent_of).take(policy.pools.len().max(1));
        let root = policy.pools.get(path.last()?)?;
        root.queues.as_ref()
    };
    for (name, class) in &policy.classes {
        let pool = Ancestry::new(policy, name).ok().and_then(|it| it.pool());
        let is_useless = !class.is_abstract && pool.is_some_and(|pool| queues_of(pool).is_some());
        if let (true, Some(pool)) = (is_useless, pool) {
            let location = pointer(&["classes", name, "pool"]);
            notes.push(format!(
                "{location}: {pool:?} is divided among queues, so work of this class finds no node \
                 there"
            ));
        }
    }
}

/// Adds notes about nodes that one pool lists and the pattern of another pool matches. The pattern
/// has precedence.
fn add_overlap_notes(policy: &Policy, notes: &mut Vec<String>) {
    let domain = domain(policy);
    let mut patterns = Vec::new();
    for (name, pool) in definition_order::ordered_pools(policy) {
        patterns.extend(
            pool.pattern
                .as_deref()
                .and_then(|text| Some((name, compile_pattern(text).ok()?))),
        );
    }
    for (name, pool) in definition_order::ordered_pools(policy) {
        for (index, node) in pool.nodes.iter().enumerate() {
            let full_name = with_domain(node, domain);
            let matching = patterns.iter().find(|(_, pattern)| {
                pattern.is_match(&full_name)
                    || short_name(&full_name).is_some_and(|it| pattern.is_match(it))
            });
            if let Some((other, _)) = matching.filter(|(other, _)| *other != name) {
                let location = pointer(&["pools", name, "nodes", &index.to_string()]);
                notes.push(format!(
                    "{location}: {node:?} matches the pattern of {other:?}, which comes first"
                ));
            }
        }
    }
}
