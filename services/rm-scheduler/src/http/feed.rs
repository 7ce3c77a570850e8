//! Publications that programs outside Hayward can follow through the feed of changes.

use hayward_publication::changes::{Feed, Kind, Visibility, as_view, show_unchanged};
use hayward_rm_scheduler_api::views::AllocationView;
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry, VERDICTS};

use super::route_roles;
use crate::policy_check::POLICY;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[
        // A launch may contain secrets, so readers get a view without the launch.
        Kind {
            name: "allocation",
            publication: ALLOCATIONS,
            prefix: "",
            visible_to: Visibility::EntryUser,
            show: as_view::<AllocationEntry, AllocationView>,
        },
        // Verdicts name the work of other users, so only operators see them (S12).
        Kind {
            name: "verdict",
            publication: VERDICTS,
            prefix: "",
            visible_to: Visibility::Operators,
            show: show_unchanged,
        },
        // The policy names users, so only operators see it here. `GET /v1/policy` removes the names
        // of users that the caller may not know.
        Kind {
            name: "policy",
            publication: POLICY,
            prefix: "",
            visible_to: Visibility::Operators,
            show: show_unchanged,
        },
    ],
    roles: route_roles::TABLE,
};
