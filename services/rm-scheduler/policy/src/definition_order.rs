//! The order of definition of pools and classes. A JSON object has no order, so the field `place`
//! sets it. Entries without a place come last, sorted by name.

use hayward_rm_scheduler_api::policy::{Class, Policy, Pool};

/// Returns the pools in order of definition. Among pools without a place, the one named `default`
/// is first.
pub(crate) fn ordered_pools(policy: &Policy) -> Vec<(&str, &Pool)> {
    let mut pools: Vec<(&str, &Pool)> = policy
        .pools
        .iter()
        .map(|(name, pool)| (name.as_str(), pool))
        .collect();
    pools.sort_by_key(|(name, pool)| (pool.place.unwrap_or(u64::MAX), *name != "default", *name));
    pools
}

/// Returns the classes in order of definition.
pub(crate) fn ordered_classes(policy: &Policy) -> Vec<(&str, &Class)> {
    let mut classes: Vec<(&str, &Class)> = policy
        .classes
        .iter()
        .map(|(name, class)| (name.as_str(), class))
        .collect();
    classes.sort_by_key(|(name, class)| (class.place.unwrap_or(u64::MAX), *name));
    classes
}
