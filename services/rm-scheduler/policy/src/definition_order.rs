//! The order of definition. The fields of a JSON object have none, so `place` says it; what has no
//! place comes last, by name.

use hayward_rm_scheduler_api::policy::{Class, Policy, Pool};

/// Of pools without a place, the one named `default` is the first, as it always was.
pub(crate) fn pools(policy: &Policy) -> Vec<(&str, &Pool)> {
    let mut pools: Vec<(&str, &Pool)> = policy
        .pools
        .iter()
        .map(|(name, pool)| (name.as_str(), pool))
        .collect();
    pools.sort_by_key(|(name, pool)| (pool.place.unwrap_or(u64::MAX), *name != "default", *name));
    pools
}

pub(crate) fn classes(policy: &Policy) -> Vec<(&str, &Class)> {
    let mut classes: Vec<(&str, &Class)> = policy
        .classes
        .iter()
        .map(|(name, class)| (name.as_str(), class))
        .collect();
    classes.sort_by_key(|(name, class)| (class.place.unwrap_or(u64::MAX), *name));
    classes
}
