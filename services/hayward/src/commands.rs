//! The commands, one file each. The folders group them by purpose.

pub mod fleet;
pub mod inspect;
pub mod measure;
pub mod operate;
pub mod work;
