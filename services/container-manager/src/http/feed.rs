//! The change feed of container-manager. Entries do not name their owner, so it is only for operators
//! and viewers; users follow their allocations instead.

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
