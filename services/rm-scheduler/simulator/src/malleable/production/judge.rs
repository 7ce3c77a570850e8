//! Whether a policy can serve the jobs of a trace.

use hayward_rm_scheduler_domain::snapshot;
use hayward_rm_scheduler_policy::Rules;

use super::BadPolicy;
use crate::{case::Case, trace::Job};

/// The class that serves a job: its own, or a default one.
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
