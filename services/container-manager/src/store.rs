//! All SQL of container-manager, one file per table.

pub mod container;
pub mod output;
pub mod placement;
pub mod work_output;

/// Numbers of ours never come near the sign; one that does is kept at the largest there is.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
