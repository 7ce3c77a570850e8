//! All SQL of container-manager, one file per table.

pub mod container;
pub mod output;
pub mod placement;
pub mod work_output;

/// Saturating conversion; these numbers never come near the limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
