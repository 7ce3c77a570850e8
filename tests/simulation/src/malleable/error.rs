//! Errors that end a simulation early.

use hayward_rm_scheduler_domain::Violation;
use hayward_vocabulary::WorkId;

/// The planner made an invalid decision, which is a defect of the planner. Later figures would be
/// worthless, so the simulation ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    #[error("the plan of round {round} breaks its rules: {}", join_violations(.violations))]
    InvalidPlan {
        round: u64,
        violations: Vec<Violation>,
    },
    #[error("round {round} has no verdict on {work}, which belongs in a queue")]
    MissingVerdict { round: u64, work: WorkId },
}

fn join_violations(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
