//! The commands, one file each, in folders by what they are for.

pub mod fleet;
pub mod inspect;
pub mod measure;
pub mod operate;
pub mod work;
