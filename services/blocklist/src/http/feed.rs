//! What of the blocklist can be followed as it changes (A7). `GET /v1/blocklist/changes` tells
//! owners in words of their own why an item went.

use hayward_blocklist_api::BLOCKS;
use hayward_publication::changes::{Feed, Kind, Whose, as_it_is};

use super::admission;

pub const FEED: Feed = Feed {
    service: crate::NAME,
    kinds: &[Kind {
        name: "block",
        publication: BLOCKS,
        prefix: "",
        whose: Whose::Everybodys,
        show: as_it_is,
    }],
    admitted: admission::TABLE,
};
