//! Validates the amounts of one process of an application.

use hayward_service::http::problem::FieldFault;
use hayward_vocabulary::Size;

use super::{Faults, LONGEST_NAME, MOST_EXTRAS, MOST_MEMORY, MOST_MILLI, MOUNT};

pub fn amounts(at: &str, size: &Size) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    for (name, amount, most, unit) in [
        ("memory", size.memory_bytes, MOST_MEMORY, ""),
        ("cpu", size.cpu_milli, MOST_MILLI, "m"),
        ("gpu", size.gpu_milli, MOST_MILLI, "m"),
    ] {
        faults.check(amount <= most, &format!("{at}/{name}"), || {
            format!("more than {most}{unit}, which no node has")
        });
    }
    faults.check(size.extras.len() <= MOST_EXTRAS, at, || {
        format!("more than {MOST_EXTRAS} resources")
    });
    for (name, amount) in size.extras.iter().take(MOST_EXTRAS) {
        faults.text(|| at.to_owned(), name, LONGEST_NAME);
        faults.check(!name.starts_with(MOUNT), at, || {
            format!("{name}: mounts need a container, and tasks have none")
        });
        faults.check(*amount <= MOST_MEMORY, at, || {
            format!("{name} is more than {MOST_MEMORY}")
        });
    }
    faults.0
}
