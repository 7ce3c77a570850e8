//! Publications that outside programs can follow.

use hayward_publication::changes::{Feed, Kind, Visibility, as_view, show_unchanged};
use hayward_rm_scheduler_api::views::AllocationView;
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS};

use super::admission;
use crate::policy::POLICY;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[
        // A launch may hold secrets, so readers get a view.
        Kind {
            name: "allocation",
            publication: ALLOCATIONS,
            prefix: "",
            visible_to: Visibility::EntryUser,
            show: as_view::<AllocationEntry, AllocationView>,
        },
        // Verdicts name the work of other users (S12).
        Kind {
            name: "verdict",
            publication: VERDICTS,
            prefix: "",
            visible_to: Visibility::Operators,
            show: show_unchanged,
        },
        // The policy names users; its own route removes those names for each reader.
        Kind {
            name: "policy",
            publication: POLICY,
            prefix: "",
            visible_to: Visibility::Operators,
            show: show_unchanged,
        },
    ],
    admitted: admission::TABLE,
};
