//! Maps of orchestrators, rule by rule.

#[path = "orchestrators/ends.rs"]
mod ends;
#[path = "orchestrators/maps.rs"]
mod maps;
#[path = "orchestrators/shares.rs"]
mod shares;
#[path = "orchestrators/world.rs"]
mod world;
