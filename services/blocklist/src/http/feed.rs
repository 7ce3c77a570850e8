//! Content of `GET /v1/changes`, the change feed that every service has (A7). Owners use `GET
//! /v1/blocklist/changes` instead, which also has the reason of each end.

use hayward_blocklist_api::BLOCKS;
use hayward_publication::changes::{Feed, Kind, Visibility, show_unchanged};

use super::route_roles;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[Kind {
        name: "block",
        publication: BLOCKS,
        prefix: "",
        visible_to: Visibility::Everyone,
        show: show_unchanged,
    }],
    roles: route_roles::ROUTE_ROLES,
};
