//! Publications other than `allocations`: how their entries are made and kept up to date.

pub mod entries;
pub mod evacuations;
pub mod machine_facts;
pub mod receipts;
