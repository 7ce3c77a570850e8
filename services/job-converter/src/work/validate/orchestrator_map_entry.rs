//! Validates an entry in the map of an orchestrator.

use hayward_job_converter_api::orchestrators::{LaunchOrder, WorkEntry};
use hayward_service::http::problem::FieldFault;

use super::{Faults, MAX_THREADS};

/// Returns the faults of the fields that have the same meaning as those of other submissions.
pub fn map_entry_faults(entry: &WorkEntry) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    faults.check_names(None, entry.class.as_ref());
    faults.check_size(entry.size.as_ref());
    let threads = entry.threads.unwrap_or(1);
    faults.check(threads <= MAX_THREADS, "/threads", || {
        format!("must be at most {MAX_THREADS}")
    });
    faults.check_machines(&entry.machines);
    if let Some(service) = &entry.service {
        faults.check_text(|| "/service".to_owned(), service, super::MAX_NAME_LENGTH);
    }
    if let Some(launch) = &entry.launch {
        faults.0.extend(launch_faults(launch));
    }
    faults.0
}

fn launch_faults(launch: &LaunchOrder) -> impl Iterator<Item = FieldFault> + use<> {
    let mut faults = Faults::default();
    faults.check_command(&launch.command);
    faults.check_environment(&launch.environment);
    faults.check_directory(launch.working_directory.as_ref());
    faults.0.into_iter().map(|fault| FieldFault {
        pointer: format!("/launch{}", fault.pointer),
        ..fault
    })
}
