//! Checks after each phase of faults, one function for each promise of Hayward. A check waits for a
//! state, up to a generous limit. A state that is not reached is a violation.

mod cleanup;
mod fleet_state;
mod proofs_logs_and_exits;
mod work_state;

use crate::fleet::Fleet;
use crate::work::{Clients, Item, SharedLedger};

/// The inputs of a check.
pub struct CheckContext<'a> {
    pub fleet: &'a Fleet,
    pub clients: &'a Clients,
    pub ledger: &'a SharedLedger,
}

impl CheckContext<'_> {
    /// Returns the acknowledged items for which `filter` is true.
    pub fn acknowledged_items(&self, filter: impl Fn(&Item) -> bool) -> Vec<Item> {
        let ledger = self.ledger.borrow();
        let acknowledged = ledger.items.iter().filter(|item| item.id.is_some());
        acknowledged.filter(|item| filter(item)).cloned().collect()
    }
}

/// A broken promise.
#[derive(Debug)]
pub struct Violation {
    /// Name of the check.
    pub check: &'static str,
    pub message: String,
}

/// Result of a check. The error is the message of a violation.
type CheckResult = anyhow::Result<()>;

/// Runs the checks of a list one after the other and collects the violations. The name of a check
/// function is the name of the check in the output.
macro_rules! run_checks {
    // These checks only read, so they are not async.
    (@ proofs_logs_and_exits :: $check:ident, $context:expr) => {
        proofs_logs_and_exits::$check($context)
    };
    (@ $module:ident :: $check:ident, $context:expr) => { $module::$check($context).await };
    ($context:expr, [$($module:ident :: $check:ident),* $(,)?]) => {{
        let mut violations = Vec::new();
        $(
            println!("  {}", stringify!($check).replace('_', " "));
            let outcome: CheckResult = run_checks!(@ $module :: $check, $context);
            if let Err(error) = outcome {
                let check = stringify!($check);
                println!("VIOLATION {check}: {error:#}");
                violations.push(Violation { check, message: format!("{error:#}") });
            }
        )*
        violations
    }};
}

/// Runs the checks that must hold after all repairs, while operations such as blocks and drains are
/// in force.
pub async fn check_after_repairs(context: &CheckContext<'_>) -> Vec<Violation> {
    run_checks!(
        context,
        [
            fleet_state::every_request_was_answered,
            fleet_state::every_service_answers,
            fleet_state::blocks_are_in_force,
            fleet_state::drained_nodes_are_empty,
        ]
    )
}

/// Runs the checks that must hold after operations that keep work from running, such as blocks and
/// drains, were withdrawn.
pub async fn check_after_withdrawals(context: &CheckContext<'_>) -> Vec<Violation> {
    run_checks!(
        context,
        [
            fleet_state::every_node_takes_work,
            work_state::every_job_ends_with_the_result_of_its_programs,
            work_state::every_task_has_one_outcome,
            work_state::no_success_without_a_run,
            work_state::services_run_their_instances,
            work_state::reservations_exist,
            work_state::gangs_end,
            work_state::worker_pools_have_their_size,
            work_state::moves_end,
            proofs_logs_and_exits::exclusive_work_never_ran_twice,
            fleet_state::invariants_hold,
        ]
    )
}

/// Runs the checks that must hold after all work was cancelled.
pub async fn check_after_cancellations(context: &CheckContext<'_>) -> Vec<Violation> {
    run_checks!(
        context,
        [
            cleanup::cancelled_work_has_ended,
            cleanup::no_process_is_left,
            cleanup::no_allocation_is_held,
            proofs_logs_and_exits::exclusive_work_never_ran_twice,
            fleet_state::invariants_hold,
            fleet_state::each_submission_has_one_audit_record,
            fleet_state::audit_chains_verify,
            fleet_state::the_doctor_finds_nothing,
            proofs_logs_and_exits::nothing_panicked,
            proofs_logs_and_exits::only_requested_ends_are_successful,
        ]
    )
}
