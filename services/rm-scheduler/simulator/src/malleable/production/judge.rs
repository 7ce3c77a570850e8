//! Whether a policy can serve the jobs of a trace.

use hayward_rm_scheduler_domain::snapshot;
use hayward_rm_scheduler_policy::Rules;

use super::BadPolicy;
use crate::{case::Case, trace::Job};

pub(super) fn class_of(case: &Case, rules: &Rules, job: &Job) -> Result<(), BadPolicy> {
    let name = case.workload.classes.name(job.class);
    let fair = |class: &snapshot::Class| class.policy == snapshot::Policy::FairShare;
    let serves = rules.classes.get(name).map_or_else(
        || {
            let mut all = rules.classes.values();
            all.any(|class| class.default && fair(class))
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
