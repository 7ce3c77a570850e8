//! Whether a policy document can be simulated with the jobs of a trace.

use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};

use super::BadPolicy;
use crate::{case::Case, trace::Job};

pub(super) fn top_pool(policy: &Policy) -> Result<String, BadPolicy> {
    let mut tops = policy
        .pools
        .iter()
        .filter(|(_, pool)| pool.parent.is_none());
    let named = policy
        .pools
        .get_key_value("default")
        .filter(|(_, pool)| pool.parent.is_none());
    let top = named.or_else(|| tops.next());
    top.map(|(name, _)| name.clone()).ok_or(BadPolicy::NoPool)
}

pub(super) fn check(policy: &Policy) -> Result<(), BadPolicy> {
    for name in policy.pools.keys() {
        let above = |name: &String| policy.pools.get(name).map(|pool| pool.parent.clone());
        let mut at = Some(name.clone());
        let mut steps = 0;
        while let Some(pool) = at {
            steps += 1;
            let bad = || BadPolicy::BadTree { pool: name.clone() };
            at = above(&pool)
                .filter(|_| steps <= policy.pools.len())
                .ok_or_else(bad)?;
        }
    }
    for (name, class) in &policy.classes {
        if !policy.pools.contains_key(&class.pool) {
            let (class, pool) = (name.clone(), class.pool.clone());
            return Err(BadPolicy::UnknownPool { class, pool });
        }
        if class.weight == 0 {
            return Err(BadPolicy::NoWeight {
                class: name.clone(),
            });
        }
    }
    Ok(())
}

pub(super) fn class_of(case: &Case, policy: &Policy, job: &Job) -> Result<(), BadPolicy> {
    let name = case.workload.classes.name(job.class);
    let fair =
        |class: &hayward_rm_scheduler_api::policy::Class| class.policy == SharePolicy::FairShare;
    let serves = policy.classes.get(name).map_or_else(
        || {
            policy
                .classes
                .values()
                .any(|class| class.default && fair(class))
        },
        fair,
    );
    if serves {
        Ok(())
    } else {
        Err(BadPolicy::NoClass {
            class: name.to_owned(),
        })
    }
}
