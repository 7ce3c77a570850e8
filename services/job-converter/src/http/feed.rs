//! Change feed of job-converter (A7).

use hayward_job_converter_api::JOBS;
use hayward_job_converter_api::orchestrators::ORCHESTRATORS;
use hayward_publication::changes::{Feed, Kind, Whose, as_it_is};

use super::admission;

const fn work(name: &'static str, prefix: &'static str) -> Kind {
    Kind {
        name,
        publication: JOBS,
        prefix,
        whose: Whose::InScope,
        show: as_it_is,
    }
}

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[
        work("job", "job_"),
        work("service", "svc_"),
        work("reservation", "rsv_"),
        // Work of a user is visible to that user and to operators (S12).
        Kind {
            name: "orchestrator",
            publication: ORCHESTRATORS,
            prefix: "",
            whose: Whose::Overseers,
            show: as_it_is,
        },
    ],
    admitted: admission::TABLE,
};
