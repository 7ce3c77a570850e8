//! Checks whether a policy, and the planner itself, can serve the jobs of a trace.

use hayward_rm_scheduler_domain::snapshot::{self, GPU_MILLI};
use hayward_rm_scheduler_policy::Rules;

use super::BadPolicy;
use crate::{case::Case, trace::Job};

/// Checks that each process uses whole GPUs or a part of one.
pub(super) fn gpus(case: &Case) -> Result<(), BadPolicy> {
    let shares =
        |job: &&&Job| job.need.gpu_count > 1 && !job.need.gpu_milli.is_multiple_of(GPU_MILLI);
    case.jobs.iter().find(shares).map_or(Ok(()), |job| {
        Err(BadPolicy::SharesOfMany {
            job: job.id.clone(),
            gpus: job.need.gpu_count,
        })
    })
}

/// Returns the class of a job: the class that it names, or the default class.
pub(super) fn class_of<'a>(
    case: &Case,
    rules: &'a Rules,
    job: &Job,
) -> Result<&'a snapshot::Class, BadPolicy> {
    let name = case.workload.classes.name(job.class);
    let fair = |class: &&snapshot::Class| class.policy == snapshot::Policy::FairShare;
    let class = rules.classes.get(name).map_or_else(
        || {
            let mut all = rules.classes.values();
            all.find(|class| class.default && fair(class))
        },
        |class| Some(class).filter(fair),
    );
    class.ok_or_else(|| BadPolicy::NoClass {
        class: name.to_owned(),
    })
}
