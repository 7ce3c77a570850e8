//! All SQL of container-manager, one file per group of tables.

pub mod container;
pub mod output;
pub mod placement;
pub mod work_output;

/// Converts a number for a column. Numbers above the maximum of the column do not occur.
fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number of a column. Negative numbers do not occur.
fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
