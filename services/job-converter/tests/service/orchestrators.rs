//! Tests of orchestrators' maps, rule by rule.

#[path = "orchestrators/ends.rs"]
mod ends;
#[path = "orchestrators/fixture.rs"]
mod fixture;
#[path = "orchestrators/maps.rs"]
mod maps;
#[path = "orchestrators/shares.rs"]
mod shares;
