//! What of container-manager can be followed as it changes (A7). Entries do not say whose they are,
//! so users follow their allocations instead, and this is for those who see all.

use hayward_container_manager_api::CONTAINERS;
use hayward_publication::changes::{Feed, Kind, Whose, as_it_is};

use super::admission;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[Kind {
        name: "container",
        publication: CONTAINERS,
        prefix: "",
        whose: Whose::Overseers,
        show: as_it_is,
    }],
    admitted: admission::TABLE,
};
