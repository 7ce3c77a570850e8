//! Tests of orchestrators: their maps, and the allocations of their work.

#[path = "orchestrators/allocations.rs"]
mod allocations;
#[path = "orchestrators/fake_orchestrator.rs"]
mod fake_orchestrator;
#[path = "orchestrators/launched_work.rs"]
mod launched_work;
#[path = "orchestrators/maps.rs"]
mod maps;
