//! Checks whether a policy, and the planner itself, can serve the jobs of a trace.

use hayward_rm_scheduler_domain::snapshot::{self, GPU_MILLI};
use hayward_rm_scheduler_policy::Rules;

use super::PolicyError;
use crate::{case::Case, trace::Job};

/// Checks that each process uses whole GPUs or a part of one.
pub(super) fn check_gpus(case: &Case) -> Result<(), PolicyError> {
    let uses_fractions_of_many =
        |job: &&&Job| job.request.gpu_count > 1 && !job.request.gpu_milli.is_multiple_of(GPU_MILLI);
    case.jobs
        .iter()
        .find(uses_fractions_of_many)
        .map_or(Ok(()), |job| {
            Err(PolicyError::FractionsOfManyGpus {
                job: job.id.clone(),
                gpus: job.request.gpu_count,
            })
        })
}

/// Returns the class of a job: the class that it names, or the default class.
pub(super) fn find_class<'a>(
    case: &Case,
    rules: &'a Rules,
    job: &Job,
) -> Result<&'a snapshot::Class, PolicyError> {
    let name = case.workload.classes.name(job.class);
    let is_fair_share = |class: &&snapshot::Class| class.policy == snapshot::Policy::FairShare;
    let class = rules.classes.get(name).map_or_else(
        || {
            let mut classes = rules.classes.values();
            classes.find(|class| class.default && is_fair_share(class))
        },
        |class| Some(class).filter(is_fair_share),
    );
    class.ok_or_else(|| PolicyError::NoClass {
        class: name.to_owned(),
    })
}
