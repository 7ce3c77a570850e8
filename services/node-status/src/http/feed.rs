//! Change feed of nodes. It contains no heartbeats (A7).

use hayward_node_status_api::NODES;
use hayward_publication::changes::{Feed, Kind, Visibility, show_unchanged};

use super::route_roles;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[Kind {
        name: "node",
        publication: NODES,
        prefix: "",
        visible_to: Visibility::Everyone,
        show: show_unchanged,
    }],
    roles: route_roles::ROUTE_ROLES,
};
