//! The change feed of job-converter: which published entries it has, and who may see them (A7).

use hayward_job_converter_api::JOBS;
use hayward_job_converter_api::orchestrators::ORCHESTRATORS;
use hayward_publication::changes::{Feed, Kind, Visibility, show_unchanged};

use super::route_roles;

const fn work_kind(name: &'static str, prefix: &'static str) -> Kind {
    Kind {
        name,
        publication: JOBS,
        prefix,
        visible_to: Visibility::ScopeOwner,
        show: show_unchanged,
    }
}

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[
        work_kind("job", "job_"),
        work_kind("service", "svc_"),
        work_kind("reservation", "rsv_"),
        // A view of an orchestrator lists users, so only operators see it (S12).
        Kind {
            name: "orchestrator",
            publication: ORCHESTRATORS,
            prefix: "",
            visible_to: Visibility::Operators,
            show: show_unchanged,
        },
    ],
    roles: route_roles::ROUTE_ROLES,
};
