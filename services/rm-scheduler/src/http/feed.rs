//! What of rm-scheduler can be followed as it changes (A7).

use hayward_publication::changes::{Feed, Kind, Whose, as_it_is, as_view};
use hayward_rm_scheduler_api::views::AllocationView;
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS};

use super::admission;
use crate::policy::POLICY;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[
        // What is launched may hold secrets, so people see a view.
        Kind {
            name: "allocation",
            publication: ALLOCATIONS,
            prefix: "",
            whose: Whose::InEntry,
            show: as_view::<AllocationEntry, AllocationView>,
        },
        // S12: verdicts name other users' work.
        Kind {
            name: "verdict",
            publication: VERDICTS,
            prefix: "",
            whose: Whose::Overseers,
            show: as_it_is,
        },
        // As are names of users in the policy, which its own route leaves out for each reader.
        Kind {
            name: "policy",
            publication: POLICY,
            prefix: "",
            whose: Whose::Overseers,
            show: as_it_is,
        },
    ],
    admitted: admission::TABLE,
};
