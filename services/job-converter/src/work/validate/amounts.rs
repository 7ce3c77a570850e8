//! Validates the amounts of one process of an application.

use hayward_service::http::problem::FieldFault;
use hayward_vocabulary::Size;

use super::{Faults, MAX_EXTRAS, MAX_MEMORY, MAX_MILLI_CPU, MAX_NAME_LENGTH, MOUNT_PREFIX};

/// Returns the faults of the amounts. `pointer` is the JSON pointer of the size.
pub fn amount_faults(pointer: &str, size: &Size) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    for (name, amount, limit, unit) in [
        ("memory", size.memory_bytes, MAX_MEMORY, ""),
        ("cpu", size.cpu_milli, MAX_MILLI_CPU, "m"),
        ("gpu", size.gpu_milli, MAX_MILLI_CPU, "m"),
    ] {
        faults.check(amount <= limit, &format!("{pointer}/{name}"), || {
            format!("more than {limit}{unit}, which no node has")
        });
    }
    faults.check(size.extras.len() <= MAX_EXTRAS, pointer, || {
        format!("more than {MAX_EXTRAS} resources")
    });
    for (name, amount) in size.extras.iter().take(MAX_EXTRAS) {
        faults.check_text(|| pointer.to_owned(), name, MAX_NAME_LENGTH);
        faults.check(!name.starts_with(MOUNT_PREFIX), pointer, || {
            format!("{name}: mounts need a container, and tasks have none")
        });
        faults.check(*amount <= MAX_MEMORY, pointer, || {
            format!("{name} is more than {MAX_MEMORY}")
        });
    }
    faults.0
}
