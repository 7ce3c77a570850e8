//! Promises that are checked after each phase, one function each. A check waits for its state with
//! a generous limit. A state that is not reached is a violation.

mod ends;
mod proofs;
mod rules;
mod works;

use crate::fleet::Fleet;
use crate::work::{Doors, Shared};

/// The inputs of a check.
pub struct Scene<'a> {
    pub fleet: &'a Fleet,
    pub doors: &'a Doors,
    pub ledger: &'a Shared,
}

/// A broken promise.
#[derive(Debug)]
pub struct Violation {
    /// Name of the check.
    pub check: &'static str,
    pub what: String,
}

/// Result of a check. An error names the violation.
type Outcome = anyhow::Result<()>;

/// Runs the checks of a list one after the other and collects the violations.
macro_rules! all_of {
    // Proofs are already written, so their checks do not wait.
    (@ proofs :: $check:ident, $scene:expr) => { proofs::$check($scene) };
    (@ $module:ident :: $check:ident, $scene:expr) => { $module::$check($scene).await };
    ($scene:expr, [$($module:ident :: $check:ident),* $(,)?]) => {{
        let mut found = Vec::new();
        $(
            println!("  {}", stringify!($check).replace('_', " "));
            let outcome: Outcome = all_of!(@ $module :: $check, $scene);
            if let Err(error) = outcome {
                let check = stringify!($check);
                println!("VIOLATION {check}: {error:#}");
                found.push(Violation { check, what: format!("{error:#}") });
            }
        )*
        found
    }};
}

/// Runs the checks that need the work of the phase.
pub async fn in_the_calm(scene: &Scene<'_>) -> Vec<Violation> {
    all_of!(
        scene,
        [
            rules::every_request_was_answered,
            rules::every_service_answers,
            rules::blocks_are_in_force,
            rules::drained_means_empty,
        ]
    )
}

/// Runs the checks that must hold after all orders that hinder work were withdrawn.
pub async fn after_space_is_free_again(scene: &Scene<'_>) -> Vec<Violation> {
    all_of!(
        scene,
        [
            rules::every_node_takes_work,
            works::every_job_ends_as_it_should,
            works::every_task_has_one_outcome,
            works::no_success_without_a_run,
            works::services_run_their_instances,
            works::reservations_are_there,
            works::gangs_come_to_an_end,
            works::pools_are_at_their_size,
            works::moves_come_to_an_end,
            proofs::exclusive_work_never_ran_twice,
            rules::invariants_hold,
        ]
    )
}

/// Runs the checks that must hold after all work was cancelled.
pub async fn at_the_end(scene: &Scene<'_>) -> Vec<Violation> {
    all_of!(
        scene,
        [
            ends::cancelled_work_has_ended,
            ends::no_process_is_left,
            ends::no_place_is_held,
            proofs::exclusive_work_never_ran_twice,
            rules::invariants_hold,
            rules::each_submission_has_one_audit_record,
            rules::audit_chains_verify,
            rules::the_doctor_finds_nothing,
            proofs::nothing_panicked,
            proofs::only_requested_ends_are_successful,
        ]
    )
}
