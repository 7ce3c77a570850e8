//! Maps of orchestrators, rule by rule (fair-share scheduling, section 7 and 13).

#[path = "orchestrators/ends.rs"]
mod ends;
#[path = "orchestrators/maps.rs"]
mod maps;
#[path = "orchestrators/shares.rs"]
mod shares;
#[path = "orchestrators/world.rs"]
mod world;
