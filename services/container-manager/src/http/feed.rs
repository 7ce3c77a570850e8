//! The change feed of container-manager. Entries do not name their owner, so the feed is only for
//! operators and viewers. Users follow their allocations instead.

use hayward_container_manager_api::CONTAINERS;
use hayward_publication::changes::{Feed, Kind, Visibility, show_unchanged};

use super::route_roles;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[Kind {
        name: "container",
        publication: CONTAINERS,
        prefix: "",
        visible_to: Visibility::Operators,
        show: show_unchanged,
    }],
    roles: route_roles::ROUTE_ROLES,
};
