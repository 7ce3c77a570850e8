//! Tests of orchestrators' maps, rule by rule.

#[path = "orchestrators/fake_orchestrator.rs"]
mod fake_orchestrator;
#[path = "orchestrators/launched_work.rs"]
mod launched_work;
#[path = "orchestrators/maps.rs"]
mod maps;
#[path = "orchestrators/shares.rs"]
mod shares;
