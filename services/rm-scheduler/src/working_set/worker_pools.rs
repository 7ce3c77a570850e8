//! The worker pools in memory, and the ids of their works. Each worker is one work for the planner.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_worker_pools::Rules;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, Launch, Program, WorkId};

use crate::config::Settings;
use crate::model::PoolRecord;

const DEFAULT_STOP_GRACE_MS: u64 = 10_000;
/// Prefix of the ids of pools and of their works.
const ID_PREFIX: &str = "wp_";

#[derive(Debug, Default)]
pub struct WorkerPools {
    pub(crate) by_id: BTreeMap<WorkId, PoolRecord>,
    /// Changed allocations of workers, in the order of the changes. They are applied to the pools
    /// before and after each round.
    pub(crate) changed: Vec<AllocationEntry>,
    /// True in a new term until the pools have been compared with the allocations.
    pub(crate) resume_pending: bool,
}

impl WorkerPools {
    pub fn new(by_id: BTreeMap<WorkId, PoolRecord>) -> Self {
        Self {
            by_id,
            changed: Vec::new(),
            resume_pending: true,
        }
    }

    /// Records a changed allocation, if it belongs to a pool.
    pub fn record_change(&mut self, entry: &AllocationEntry) {
        if is_pool_work(&entry.work) {
            self.changed.push(entry.clone());
        }
    }

    /// Returns true if a pool requests this work now.
    pub fn wants(&self, work: &WorkId) -> bool {
        let found =
            pool_and_number(work).and_then(|(pool, number)| Some((self.by_id.get(&pool)?, number)));
        found.is_some_and(|(record, number)| record.numbers_in_snapshot.contains(&number))
    }

    /// Returns the program to start in an allocation of a pool.
    pub fn launch(&self, work: &WorkId, allocation: &AllocationId) -> Option<Launch> {
        let (pool, _) = pool_and_number(work)?;
        let PoolRecord {
            description, pool, ..
        } = self.by_id.get(&pool)?;
        let spec = description.spec.as_ref()?;
        // These variables override variables of the same name in the worker spec.
        let mut environment = spec.environment.clone();
        let variables = [
            ("HAYWARD_POOL", description.id.to_string()),
            ("HAYWARD_WORKER", allocation.to_string()),
            ("HAYWARD_OWNER", pool.owner.address.clone()),
        ];
        environment.extend(BTreeMap::from(
            variables.map(|(name, value)| (name.to_owned(), value)),
        ));
        Some(Launch {
            program: Program::Command {
                argv: spec.command.clone(),
            },
            environment,
            working_directory: spec.working_directory.clone(),
            stop_grace_ms: spec.stop_grace_ms.unwrap_or(DEFAULT_STOP_GRACE_MS),
            traceparent: None,
            within: None,
            account: None,
            limits: None,
        })
    }
}

/// Returns true if the work is a worker of a pool, or the pool itself.
pub fn is_pool_work(work: &WorkId) -> bool {
    work.as_str().starts_with(ID_PREFIX)
}

pub fn new_pool_id() -> Option<WorkId> {
    WorkId::new(format!("{ID_PREFIX}{}", fresh_uuid().simple())).ok()
}

/// Returns the pool of a work, and the number of the work in it.
pub fn pool_and_number(work: &WorkId) -> Option<(WorkId, u64)> {
    let (pool, number) = work.as_str().split_once('.')?;
    let pool = is_pool_work(work).then(|| WorkId::new(pool).ok())??;
    Some((pool, number.parse().ok()?))
}

/// Returns the id of a work of a pool.
pub fn work_id(pool: &WorkId, number: u64) -> Option<WorkId> {
    WorkId::new(format!("{pool}.{number}")).ok()
}

pub fn pool_rules(settings: &Settings) -> Rules {
    Rules {
        register_deadline_ms: settings.pool_register_deadline_ms,
        reregister_grace_ms: settings.pool_reregister_grace_ms,
        start_failures_per_min: settings.pool_start_failures_per_min,
        cooldown_ms: settings.pool_cooldown_ms,
        owner_lease_ms: settings.pool_owner_lease_ms,
        failure_window_ms: settings.pool_failure_window_ms,
        recovery_timeout_ms: settings.pool_recovery_timeout_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_pool_work_has_the_prefix_and_names_its_pool() {
        let pool = new_pool_id().unwrap();
        let work = work_id(&pool, 12).unwrap();
        assert_eq!(pool_and_number(&work), Some((pool.clone(), 12)));
        assert_eq!(work.parent(), pool);
        assert_eq!(pool_and_number(&pool), None);
        for other in ["job_1", "svc_1.2", "rsv_1"] {
            let other: WorkId = other.parse().unwrap();
            assert!(!is_pool_work(&other) && pool_and_number(&other).is_none());
        }
    }
}
